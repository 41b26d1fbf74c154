"""What switches packets on this machine: the kernel's Open vSwitch, or its daemon in userspace."""

from __future__ import annotations

import os
import shutil
import subprocess
from enum import Enum
from pathlib import Path

from fabric.world.engines import current_engine

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
SWITCH_NICENESS = -10
"""Switches are hardware: they go before the hosts' programs, which share this machine with them. With -10 they have
nine parts of ten of a core that both want; with -20 they have all of it, and programs there once waited for 0.7 s."""


class Datapath(str, Enum):
    """Where packets are switched: in the kernel's openvswitch module, or in the ovs-vswitchd process."""

    KERNEL = "kernel"
    USERSPACE = "userspace"

    @property
    def ovs_type(self) -> str:
        """Open vSwitch's name for it."""
        return "system" if self is Datapath.KERNEL else "netdev"


def find_datapath() -> Datapath:
    """Return the kernel datapath where this machine has it (loading its module if need be), else userspace."""
    if current_engine().has_own_kernel:
        return Datapath.KERNEL  # Built in, so that it is not among the modules.
    module = Path("/sys/module/openvswitch")
    modprobe = shutil.which("modprobe", path=os.environ.get("PATH", "") + ":" + SBIN)
    if not module.exists() and modprobe is not None:
        subprocess.run([modprobe, "openvswitch"], capture_output=True, timeout=20, check=False)
    return Datapath.KERNEL if module.exists() else Datapath.USERSPACE
