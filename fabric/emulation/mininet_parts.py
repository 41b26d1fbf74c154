"""What is used of Mininet, and the only module that imports it: a MininetMissingError where it is not installed."""
# ruff: noqa: E402

from __future__ import annotations

from fabric.emulation.mininet_place import make_importable
from fabric.pythons_distutils import load_pythons_distutils

make_importable()
load_pythons_distutils()  # Before Mininet asks for it.

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import error, output
from mininet.net import Mininet
from mininet.node import Host, Node, OVSSwitch
from mininet.util import quietRun

__all__ = ["CLI", "Host", "Intf", "Link", "Mininet", "Node", "OVSSwitch", "error", "output", "quietRun"]
