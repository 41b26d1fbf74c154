"""What makes frames vanish, a thousand times each, in a guest: is every credit back, and the link as fast as before?"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable

from fabric.queueing import vl
from fabric.world.kernel_api import modules, netlink
from fabric.world.kernel_api.netlink import Request
from tests.vl import lab as labs
from tests.vl.lab import Lab

TIMES = 1000
RATE_BPS = 10_000_000_000
DROP_DSCP, LOCAL_DSCP, CLONE_DSCP, UPCALL_DSCP = 8, 16, 24, 32
LOCAL_IP = "10.0.0.99"
_DELETE_MODULE = 176  # x86_64


def port(**changes: int) -> vl.VlConfig:
    """Return a port whose credits a leak of a few frames would use up."""
    return labs.one_lane(RATE_BPS, **{"credit_bytes": 32 * 1024, "delay_ns": 500, "return_ns": 700, **changes})


def switched(options: vl.VlConfig) -> Lab:
    """Return two hosts and a switch whose rules drop, consume, clone or show to ovs-vswitchd what has their DSCPs."""
    lab = Lab()
    for host in "ab":
        lab.add_host(host)
        lab.link(host, "s", options)
    lab.give_addresses()
    pass_on = [f"priority=1,ip,nw_dst={lab.ip(host)},actions=output:{{s-{host}}}" for host in "ab"]
    special = {
        DROP_DSCP: "drop",
        LOCAL_DSCP: "mod_dl_dst:02:00:00:00:00:99,mod_nw_dst:10.0.0.99,local",
        CLONE_DSCP: "local,output:{s-b},output:{s-b}",
        UPCALL_DSCP: "controller(max_len=64),output:{s-b}",
    }
    special_rules = [f"priority=2,ip,nw_tos={4 * dscp},actions={does}" for dscp, does in special.items()]
    lab.switch({"s": pass_on + special_rules})
    for command in ("link set s address 02:00:00:00:00:99 up", f"addr add {LOCAL_IP}/32 dev s"):
        subprocess.run(["ip", *command.split()], check=True, timeout=60)
    return lab


def redirected(options: vl.VlConfig) -> Lab:
    """Return two hosts and a switch made of redirections, whose ports can be deleted and made again at no cost."""
    lab = Lab()
    for host in "ab":
        lab.add_host(host)
        lab.link(host, "s", options)
    lab.give_addresses()
    redirect(lab, "s-a", "s-b")
    redirect(lab, "s-b", "s-a")
    return lab


def redirect(lab: Lab, source: str, target: str) -> None:
    """Send what comes in at one interface out of another."""
    index, other = lab.interfaces[source].index, lab.interfaces[target].index
    parent = 0xFFFF0000
    ingress = netlink._TCMSG.pack(0, index, parent, 0xFFFFFFF1, 0) + netlink._text(1, "ingress")
    mirred = struct.pack("=IIiiiiI", 0, 0, 4, 0, 0, 1, other)  # TC_ACT_STOLEN, TCA_EGRESS_REDIR
    action = netlink._text(1, "mirred") + netlink.attribute(2, netlink.attribute(2, mirred))
    options = netlink.attribute(2, netlink.attribute(1, action))
    chain = netlink._TCMSG.pack(0, index, 1, parent, 1 << 16 | 0x0300) + netlink._text(1, "matchall")
    lab.socket_of("").send(
        [
            Request(netlink.RTM_NEWQDISC, netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE, ingress, "adding ingress"),
            Request(
                netlink.RTM_NEWTFILTER,
                netlink.NLM_F_CREATE,
                chain + netlink.attribute(2, options),
                f"redirecting {source} to {target}",
            ),
        ]
    )


def injected(name: str) -> dict[str, object]:
    """Inject a fault a thousand times; return what is found afterwards."""
    lab, before = INJECTIONS[name]()
    time.sleep(0.1)
    stats = lab.stats()
    found: dict[str, object] = {
        "used_bytes": {end: sum(lane.used_bytes for lane in each.lanes.values()) for end, each in stats.items()},
        "buffered_bytes": {
            end: sum(lane.buffered_bytes for lane in each.lanes.values()) for end, each in stats.items()
        },
        "backlog_bytes": sum(lane.backlog_bytes for each in stats.values() for lane in each.lanes.values()),
        "most_buffered_bytes": max(lane.most_buffered_bytes for each in stats.values() for lane in each.lanes.values()),
        "dropped_packets": {
            f"{end} {cause.name}": lane.dropped_packets[cause]
            for end, each in stats.items()
            for lane in each.lanes.values()
            for cause in vl.DropCause
            if lane.dropped_packets[cause]
        },
        "before": before,
        "rate": labs.goodput_bps(lab, "a", "b", 20_000_000),
    }
    found["unloaded"] = unloaded(lab)
    return found


def unloaded(lab: Lab) -> bool:
    """Take all qdiscs away; return whether the kernel then finds the module unused and unloads it."""
    for end in lab.interfaces.values():
        lab.socket_of(end.node).send([netlink.delete_root_qdisc(end.index, end.name)])
    time.sleep(0.1)
    return int(ctypes.CDLL(None).syscall(_DELETE_MODULE, modules.VL.encode(), os.O_NONBLOCK)) == 0


def _flooded(dscp: int) -> tuple[Lab, int]:
    lab = switched(port())
    sink = lab.udp("b")
    os.waitpid(labs.flood(lab, "a", "b", 3 * TIMES, tos=4 * dscp), 0)
    time.sleep(0.01)
    sent = sum(lane.sent_packets for lane in lab.stats()["a-s"].lanes.values())
    sink.close()
    return lab, sent


def _disturbed(lab: Lab, disturb: Callable[[int], None], mend: Callable[[], None] | None = None) -> tuple[Lab, int]:
    """Disturb a lab a thousand times, while both hosts flood; also return how often both ports of the switch held
    frames at that moment, of the hundred times that this is looked at. What takes long and needs no load is for
    ``mend``: the floods stand still meanwhile, which they would otherwise have spent by the time of the last ones."""
    sinks = [lab.udp(host) for host in "ab"]
    floods = [labs.flood(lab, a, b, 10**6, pause_s=5e-6) for a, b in (("a", "b"), ("b", "a"))]
    worked = 0
    for i in range(TIMES):
        time.sleep(17.3e-6)
        if i % 10 == 0:
            stats = lab.stats()
            worked += all(stats[name].link_packets for name in ("s-a", "s-b"))
        disturb(i)
        if mend is not None:
            _signal(floods, signal.SIGSTOP)
            mend()
            _signal(floods, signal.SIGCONT)
    _signal(floods, signal.SIGKILL)
    for child in floods:
        os.waitpid(child, 0)
    for sink in sinks:
        sink.close()
    return lab, worked


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process, number)


def _flap() -> tuple[Lab, int]:
    lab = redirected(port())
    ends = ["s-b", "b-s", "a-s", "s-a"]

    def flap(i: int) -> None:
        lab.set_up(ends[i % 4], False)
        time.sleep(3e-6)
        lab.set_up(ends[i % 4], True)
        restore_neighbours(lab, lab.interfaces[ends[i % 4]].node)

    return _disturbed(lab, flap)


def restore_neighbours(lab: Lab, host: str) -> None:
    """Give a host its neighbour table again, which it lost with its link."""
    if host in lab.hosts:
        lab.give_neighbours(host)


def _replace() -> tuple[Lab, int]:
    lab = redirected(port())
    ends = ["s-b", "b-s", "a-s", "s-a"]

    def replace_or_change(i: int) -> None:
        name = ends[i % 4]
        if i % 3 == 0:
            lab.change(name, port(credit_bytes=16 * 1024 + 64 * (i % 256), return_ns=i))
        else:
            end = lab.interfaces[name]
            lab.socket_of(end.node).send([netlink.delete_root_qdisc(end.index, name)])
            lab.install(name, port())

    lab, worked = _disturbed(lab, replace_or_change)
    for name in ends:
        lab.install(name, port())
    return lab, worked


def _delete() -> tuple[Lab, int]:
    lab = redirected(port())

    def make_again() -> None:
        index = lab.interfaces["s-a"].index
        body = netlink._TCMSG.pack(0, index, 0xFFFF0000, 0xFFFFFFF1, 0)
        lab.socket_of("").send([Request(netlink.RTM_DELQDISC, 0, body, "ending the redirection of s-a")])
        lab.link("b", "s", port())
        lab.give_addresses(["b"])
        redirect(lab, "s-a", "s-b")
        redirect(lab, "s-b", "s-a")

    return _disturbed(lab, lambda _: lab.unlink("b", "s"), make_again)


INJECTIONS: dict[str, Callable[[], tuple[Lab, int]]] = {
    "dropped by a rule": lambda: _flooded(DROP_DSCP),
    "consumed by the switch's own stack": lambda: _flooded(LOCAL_DSCP),
    "cloned": lambda: _flooded(CLONE_DSCP),
    "shown to the controller": lambda: _flooded(UPCALL_DSCP),
    "link flaps": _flap,
    "queues replaced": _replace,
    "interface deleted": _delete,
}
