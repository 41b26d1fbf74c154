"""Mininet's hosts, switches and links over what is built here."""

from __future__ import annotations

import codecs
import select
import time
from collections.abc import Iterable
from typing import Any

from fabric.emulation.mininet_parts import Host, Intf, Node, OVSSwitch
from fabric.emulation.mininet_parts import Link as MininetLink
from fabric.errors import EmulationError
from fabric.model.network import Link, Port
from fabric.world.isolation import netns
from fabric.world.programs import hosts

_PROMPT_TIMEOUT_S, _LOOK_S = 60.0, 0.1


class _LazyShell(Node):  # type: ignore[misc]
    """A Mininet node whose shell starts when first needed, and lives in the namespace made for the node."""

    is_built = False
    """Mininet configures nodes by shell commands as it makes them; ours are configured already."""
    _starts = False
    _printed = ""
    """What the shell has printed before its first prompt: why it ends if it ends there."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Put the start of the shell off."""

    def _ensure_shell(self) -> None:
        if self.shell is None:
            self.is_built = True
            self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # Programs may print any byte.
            self._starts, self._printed = True, ""
            try:
                super().startShell()
            except EmulationError:
                self.forget_shell()
                raise
            finally:
                self._starts = False

    def read(self, size: int = 1024) -> str:
        """Return at most ``size`` characters of the shell's output, as Mininet's ``read`` does.

        Raises EmulationError if the shell ends before its first prompt, or prints none in time.
        """
        if self._starts:
            self._await_prompt()
        text: str = super().read(size)
        if self._starts:
            self._printed += text
        return text

    def _await_prompt(self) -> None:
        deadline = time.monotonic() + _PROMPT_TIMEOUT_S
        while not select.select([self.stdout], [], [], _LOOK_S)[0]:
            if self.shell.poll() is not None and not select.select([self.stdout], [], [], 0)[0]:
                printed = " ".join(self._printed.split())
                raise EmulationError(f"{self.name}: its shell ended with {self.shell.returncode}: {printed}")
            if time.monotonic() > deadline:
                raise EmulationError(f"{self.name}: its shell printed no prompt within {_PROMPT_TIMEOUT_S:g} s")

    def forget_shell(self) -> None:
        """Take note that the shell has ended: the next command starts another."""
        self.waiting = False
        self.waitExited = False
        self.cleanup()

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        """Start a process in the node's namespace, with no files but its own, without mnexec's means for either.

        To close files, mnexec calls close() for every number up to the limit: a million times in a guest, for a minute.
        """
        words = [*self.program_prefix(), *_without_mnexec_options(cmd, "nc")]
        return super()._popen(words, **{**params, "close_fds": True})

    def prefix(self) -> list[str]:
        """Return what to put before a command to run it in this node's network, with the run's own files."""
        return netns.prefix(self.name) if self.inNamespace else []

    def program_prefix(self) -> list[str]:
        """Return what to put before a user's command to run it on this node, with all that a host has to itself."""
        return hosts.prefix(self.name) if self.inNamespace else []

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in the node's shell and return what it prints, as Mininet's ``cmd`` does."""
        if not self.is_built:
            return ""
        self._ensure_shell()
        return super().cmd(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - Mininet's name
        """Send a command to the shell, starting it first."""
        self._ensure_shell()
        super().sendCmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Start a process in this node, as Mininet's ``popen`` does."""
        self._ensure_shell()
        return super().popen(*args, **kwargs)


def _without_mnexec_options(command: list[str], unwanted: str) -> list[str]:
    if command[:1] != ["mnexec"] or not command[1:] or not command[1].startswith("-"):
        return command
    options = "".join(letter for letter in command[1][1:] if letter not in unwanted)
    return [command[0], f"-{options}", *command[2:]] if options else command[2:]


class FabricHost(_LazyShell, Host):  # type: ignore[misc]
    """A host of the fabric."""


class FabricSwitch(_LazyShell, OVSSwitch):  # type: ignore[misc]
    """A switch of the fabric: a bridge that :mod:`fabric.emulation.openvswitch` made."""

    OVSVersion = "2.0"
    """Mininet tells those before 1.10 from the others."""

    @classmethod
    def setup(cls) -> None:
        """Do nothing: Mininet would ask the database what it holds, and end this process if that took over a second."""

    def dpctl(self, *args: Any) -> Any:
        """Run a command of ovs-ofctl for this switch, in its version of OpenFlow."""
        return self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self, *args[1:])

    def start(self, controllers: Iterable[Any]) -> None:
        """Do nothing: all bridges were made in one transaction."""

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Do nothing: a bridge ends with its world."""


class BuiltLink(MininetLink):  # type: ignore[misc]
    """A Mininet link whose interfaces exist already."""

    def __init__(self, node1: Any, node2: Any, link: Link) -> None:
        self.intf1 = _interface(node1, link.a, self)
        self.intf2 = _interface(node2, link.b, self)


class BuiltInterface(Intf):  # type: ignore[misc]
    """A Mininet interface that is configured already."""

    def config(self, **_: Any) -> dict[str, Any]:
        """Leave the interface as it is."""
        return {}


def _interface(node: Any, port: Port, link: BuiltLink) -> Any:
    return BuiltInterface(port.interface, node=node, port=port.number, link=link, moveIntfFn=lambda *_: None)
