"""Mininet's prompt over a fabric: each of its commands does what it says here, or says what to do instead."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
from typing import Any

from fabric.emulation.mininet_parts import CLI, error, output, quietRun
from fabric.world.engines import current_engine


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's command line over a :class:`fabric.emulation.mininet_net.FabricNet`."""

    identchars = f"{CLI.identchars}-."
    """What words of commands are made of: users' own names of nodes have these, too."""

    def onecmd(self, line: str) -> Any:
        """Run a line; what a command of Mininet's raises ends that command, and not the prompt."""
        try:
            return super().onecmd(line)
        except Exception as fault:
            error(f"*** {line.strip()}: {type(fault).__name__}: {fault}\n")
            for node in [node for node in self.mn.values() if node.waiting]:
                node.forget_shell()
            return None

    def default(self, line: str) -> None:
        """Run a command on a node. Names of hosts become the addresses by which that node reaches them."""
        first, arguments, line = self.parseline(line)
        if first not in self.mn:
            error(f"*** Unknown command: {line}\n")
            return
        if not arguments:
            error(f"*** Please enter a command for node: {first} <cmd>\n")
            return
        node = self.mn[first]
        command = " ".join(self._address(node, word) for word in arguments.split(" "))
        node.sendCmd(command if self.isatty() else _without_keys(command))
        self.waitForNode(node)

    def _address(self, node: Any, word: str) -> str:
        """Return the address of a node's name, where it has one that can be reached, and any other word as it is."""
        return (self.mn.address(node, self.mn[word]) if word in self.mn else None) or word

    def waitForNode(self, node: Any) -> None:  # noqa: N802 - Mininet's name
        """Print what a node's command prints until it ends. Keys are for it, lines of a file or a pipe are not."""
        ended = os.pidfd_open(node.shell.pid)
        wanted = select.poll()
        for source in (node.stdout, ended, *([self.stdin] if self.isatty() else [])):
            wanted.register(source, select.POLLIN)
        if self.isatty():
            quietRun("stty -icanon min 1")  # Each key at once, for commands that read them.
        try:
            while node.waiting:
                try:
                    self._attend(node, {source for source, _ in wanted.poll()}, ended)
                except KeyboardInterrupt:
                    node.sendInt()
        finally:
            os.close(ended)

    def _attend(self, node: Any, ready: set[int], ended: int) -> None:
        if node.stdout.fileno() in ready:
            output(node.monitor(findPid=node.lastCmd.endswith("&")))  # Whose mark could be in what a program prints.
        elif ended in ready:
            node.forget_shell()
            error(f"*** the shell of {node} has ended; the next command starts another\n")
        else:
            os.write(node.stdin.fileno(), os.read(self.stdin.fileno(), 1024))

    def do_sh(self, line: str) -> None:
        """Run a command of the machine's, in the network of the switches: sh [cmd args]"""
        subprocess.call(line, shell=True, stdin=None if self.isatty() else subprocess.DEVNULL)

    def do_source(self, line: str) -> Any:
        """Run the lines of a file: source <file>"""
        arguments = line.split()
        if len(arguments) != 1:
            error("usage: source <file>\n")
            return None
        try:
            with open(arguments[0]) as file:  # noqa: PTH123 - as the user has written it
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as fault:
            hidden = (
                "" if current_engine().has_terminal else "; in virtual time /tmp, /run and /dev are the guest's own"
            )
            error(f"*** cannot read {arguments[0]}: {fault}{hidden}\n")
            return None
        ends = (self.onecmd(self.precmd(one)) for one in lines)
        return next((end for end in ends if end), None)

    def do_links(self, _line: str) -> None:
        """Tell of each link whether its ends are up"""
        running = self.mn.running_ends()
        for link in self.mn.links:
            states = " ".join("OK" if end.name in running else "DOWN" for end in (link.intf1, link.intf2))
            output(f"{link} ({states})\n")

    def do_switch(self, line: str) -> None:
        """Cut all links of a switch, or join them again; it keeps its rules: switch <name> stop|start"""
        arguments = line.split()
        if len(arguments) != 2 or arguments[1] not in ("start", "stop"):
            error("usage: switch <name> start|stop\n")
        else:
            self.mn.set_switch(arguments[0], is_up=arguments[1] == "start")

    def do_wait(self, _line: str) -> None:
        """Say whether the switches have connected to the controller"""
        output("*** all switches have connected and have their rules: the prompt is not there before\n")

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """Open terminals for nodes: xterm node1 node2 ..."""
        program = {"xterm": "xterm", "gterm": "gnome-terminal"}[term]
        if self._has_display(term, program):
            super().do_xterm(line, term)

    def do_x(self, line: str) -> None:
        """Run an X11 program on a node: x node [cmd args]"""
        arguments = line.split()
        if arguments and arguments[0] not in self.mn:
            error(f"*** no node {arguments[0]!r}; nodes lists them\n")
        elif self._has_display("x", arguments[1] if len(arguments) > 1 else "socat"):
            super().do_x(line)

    def _has_display(self, command: str, program: str) -> bool:
        instead = "run the command here: <node> <cmd>"
        if not current_engine().has_terminal:
            error(f"*** {command}: no display can be reached from virtual time; {instead}\n")
        elif "DISPLAY" not in os.environ:
            error(f"*** {command}: DISPLAY is not set, so there is nowhere to show a window; {instead}\n")
        elif shutil.which(program) is None:
            error(f"*** {command}: {program} is not installed; install it, or {instead}\n")
        else:
            return True
        return False


def _without_keys(command: str) -> str:
    """Return what lets the node's own shell run a command that finds nothing on stdin, where it would wait for keys
    that nobody presses; what goes to the background does not read."""
    return command if command.rstrip().endswith("&") else f"eval {shlex.quote(command)} </dev/null"


class PromptInGuest(Prompt):
    """The command line, of a file; the host has what a terminal adds: the prompt, editing, history."""

    prompt = ""
    use_rawinput = False

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Leave the history to the host."""
