"""Run in each of two guests: guest 0 uses programs, sockets and functions of guest 1, and prints what came of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from multiprocessing.connection import wait
from pathlib import Path

from fabric.errors import TrafficError, UsageError
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from fabric.world.programs import guest_calls
from fabric.world.programs.agents import Agent, AgentPool, ProgramStart
from fabric.world.virtual import kernel
from fabric.world.virtual.guest import CONTROL
from fabric.world.virtual.joining import MODULE, Together, join

HOST = "h0"
INTERFACE, INDEX = "a", 1001


def echo(agent: Agent, arguments: object) -> None:
    while True:
        agent.report((agent.receive(), arguments, os.getpid(), [name for _, name in socket.if_nameindex()]))


def fail(agent: Agent, _: object) -> None:
    raise ValueError("nothing works here")


def make_host() -> None:
    with netns.created(HOST):
        pass
    with Netlink(netns.netns_path(HOST)) as link:
        ends = (LinkEnd(INTERFACE, INDEX, "02:00:00:00:00:01"), LinkEnd("b", INDEX + 1, "02:00:00:00:00:02"))
        link.send(
            [netlink.veth_pair(*ends, 1500), *(netlink.link_state(end.index, end.interface, True) for end in ends)]
        )


def refuse(words: str) -> None:
    raise UsageError(words)


def break_down() -> None:
    raise KeyError("lost")


def words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def found_of_calls() -> dict[str, object]:
    (other,) = guest_calls.others()
    other.call(make_host)
    found: dict[str, object] = {"numbers": guest_calls.everywhere(guest_calls.own_number)}
    for function, arguments in ((refuse, ("too much",)), (break_down, ())):
        try:
            other.call(function, *arguments)
        except Exception as error:
            found[function.__name__] = words_of(error)
    file = Path("/tmp/handed/out")
    file.parent.mkdir()
    file.write_bytes(b"content")
    guest_calls.hand_out(file)
    found["file"] = other.call(Path.read_bytes, file).decode()
    return found


def found_of_sockets(namespace: Path) -> dict[str, object]:
    with Netlink(namespace) as link:
        names = sorted(link.link_counters())
        try:
            link.send([netlink.link_state(77, "none", True)])
        except Exception as error:
            return {"interfaces": names, "no interface": words_of(error)}
    return {}


def found_of_programs(namespace: Path) -> dict[str, object]:
    pool = AgentPool()
    one, two = pool.start_together([ProgramStart(name, HOST, echo, name, namespace) for name in ("one", "two")])
    for handle in (two, one):
        handle.send("hello")
    found: dict[str, object] = {handle.name: handle.receive(10, "echo")[:2] for handle in (one, two)}
    found["interfaces there"] = sorted(_there(one))
    one.send_signal(signal.SIGSTOP)
    one.send("are you there")
    found["answers when stopped"] = one.pipe.poll(1)
    one.send_signal(signal.SIGCONT)
    found["answers after that"] = one.receive(10, "echo")[0]
    found["ended"] = bool(wait([one.process.sentinel], 0))
    one.kill()
    found["ended when killed"] = bool(wait([one.process.sentinel], 10))
    found["exit code"] = one.process.exitcode
    failing = pool.start("failing", HOST, fail, None, namespace)
    try:
        failing.receive(10, "anything")
    except TrafficError as error:
        found["failure"] = str(error).splitlines()[-1]
    pool.stop()
    return found


def _there(handle: object) -> list[str]:
    handle.send("who")  # type: ignore[attr-defined]
    return list(handle.receive(10, "echo")[3])  # type: ignore[attr-defined]


def main() -> None:
    together = Together.read(CONTROL)
    assert together is not None
    join(together, kernel.running().module(MODULE))
    if together.number:
        guest_calls.serve()
    time.sleep(0.1)
    found = found_of_calls()
    namespace = netns.in_guest(1, netns.netns_path(HOST))
    assert namespace is not None
    print(json.dumps({**found, **found_of_sockets(namespace), **found_of_programs(namespace)}))


if __name__ == "__main__":
    # Under the name by which the other guest finds its functions.
    from tests.fabric.world.programs import remote_agents

    remote_agents.main()
