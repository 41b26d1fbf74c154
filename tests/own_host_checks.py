"""What :mod:`tests.own_host` must have found, in either engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOSTS = ("z0h000", "z0h001")
PROGRAM = Path(__file__).with_name("own_host.py")
COMMAND = ["bash", "-c", f"other=z0h001; [ $FABRIC_HOST = z0h000 ] || other=z0h000; exec python3 {PROGRAM} $other"]


def check(seen: dict[str, Any], host: str, other: str) -> None:
    """What a host finds is its own; ssh to another is as OpenSSH's."""
    assert seen["hostname"] == host
    assert seen["sysfs"] == seen["netlink"] == ["eth0", "lo"]
    assert seen["speed"] == "20\n", "Mbit/s, as its link"
    assert seen["addresses"][1].startswith("eth0@")
    assert seen["left"] == sorted(f"{place}/left-behind-{host}" for place in ("/dev/shm", "/run", "/tmp"))
    assert seen["queues"] == [f"left-behind-{host}"]
    assert seen["copied"] in (None, [host, other])
    assert len(seen["machine_ids"]) == 1, "whatever file programs read it from"
    assert seen["named_host"] is None, "`host` in PATH is what asks name servers"
    assert seen["unknown_name"] == "errno -2", "there is no such name: to be asked again would be of no use"
    assert seen["names"] == {"backwards": other, "asked": True, "asked_for_nobody": "3"}
    assert seen["locks"] == 0o1777
    assert seen["rdma"] == [], "without --verbs programs find no RDMA device, and take sockets"
    assert seen["looked_up_s"] < 5, "the machine's resolver takes ten seconds to give up"
    assert seen["first_process"] == "host", "who looks for a program finds only that"
    assert seen["processes"] < 10, "a host sees its own processes only"
    ssh = seen["ssh"]
    for way in ("plain", "options", "user", "address", "url", "rsh"):
        assert ssh[way] == [0, other], way
    assert ssh["code"] == [7, ""]
    assert ssh["quoting"] == [0, "a  b 2"]
    assert ssh["terminal"][0] == 5
    assert str(ssh["terminal"][1]).startswith("/dev/pts/")
    assert f"hostname {other}\nport 22" in ssh["settings"][1]
    assert ssh["signal"][0] == 255
    assert ssh["nobody"] == [255, "ssh: Could not resolve hostname no-such-host: Name or service not known"]
    assert ssh["forwarding"][0] == 255
    assert ssh["names"] == [0, f"eth0\nlo\n{other}"]
    assert seen["stdin"] == [0, "from here"]
    assert seen["no_stdin"] == [0, ""]


def check_both(output: str) -> None:
    """Two hosts that each ran the program share nothing."""
    lines = (line.partition("] ") for line in output.splitlines())
    seen = {host.removeprefix("["): json.loads(text) for host, _, text in lines}
    for host, other in (HOSTS, HOSTS[::-1]):
        check(seen[host], host, other)
    a, b = (seen[host] for host in HOSTS)
    assert a["boot_id"] != b["boot_id"]
    assert a["machine_ids"] != b["machine_ids"]
    assert not set(a["ids"].values()) & set(b["ids"].values())


def check_notes(output: str, said: str) -> None:
    """What the command says at its end names the copies over ssh, of each host to and from the other, and nothing else:
    no host has sent anything, which is what programs without sockets do."""
    first = json.loads(output.splitlines()[0].partition("] ")[2])
    by = "scp (z0h000, z0h001)"
    wanted = [] if first["copied"] is None else [f"note: copied over ssh by {by}, which crosses no NIC"]
    notes = [line for line in said.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(wanted)
    assert all(note.startswith(start) for note, start in zip(notes, wanted, strict=True)), notes
