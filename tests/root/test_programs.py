"""``fabric exec`` and ``fabric shell``: unmodified programs on hosts of the fabric, and captures of its ports."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.utils import rdpcap

from fabric.world.isolation.devices import LINKS, NODES
from tests.terminal import in_terminal
from tests.worlds import SMALL, TINY, Command, nothing_left

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).with_name("programs.py")
DEVICES = Path(__file__).with_name("devices.py")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def sent_bytes(words: str) -> dict[str, float]:
    """Return what hosts sent in each lane, as the table at the end of ``fabric exec`` says."""
    table = words.split("Bytes carried by each lane", 1)[1].split("┘", 1)[0]
    rows = re.findall(r"^│ (\w+) +│ ([\d.]+) (\w+) ", table, re.MULTILINE)
    return {lane: float(size) * _UNITS[unit] for lane, size, unit in rows}


def test_programs_find_each_other_on_several_hosts(command: Command) -> None:
    hosts = ("z0h000", "z0h005", "z1h002")
    with nothing_left(command):
        done = command.run("exec", SMALL, *hosts, "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [f"[{host}] {host} is {rank} of 3: the sum is 7" for rank, host in enumerate(hosts)]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


@pytest.mark.parametrize(
    ("tos", "lane"), [pytest.param("0x60", "hfreduce", id="hfreduce"), pytest.param("0x20", "storage", id="storage")]
)
def test_iperf3_lands_in_the_lane_that_its_dscp_says_and_captures_show_it(
    command: Command, tos: str, lane: str
) -> None:
    """Some 5 MB from a host of leaf z0l00, whose port 1 is z0h000's, to one that is found by its name."""
    program = ["iperf3", "-c", "z0h005", "-S", tos, "-t", "2", "-C", "cubic"]
    options = ["--background", "z0h005=iperf3 -s", "--capture", "z0l00:1=port.pcap"]
    done = command.run("exec", SMALL, "z0h000", *options, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    sent = sent_bytes(done.stderr)
    print(sent)
    assert sent[lane] > 1e6
    assert sum(size for name, size in sent.items() if name != lane) < 0.1 * sent[lane]
    assert command.processes() == []

    pcap = command.here / "port.pcap"
    assert command.files() == [pcap]
    packets = [packet for packet in rdpcap(str(pcap)) if TCP in packet and packet[IP].dst == "10.0.0.6"]
    data = [packet for packet in packets if packet[IP].tos == int(tos, 16)]
    others = [packet for packet in packets if packet[IP].tos != int(tos, 16)]
    print(f"{len(data)} packets with {tos}, {len(others)} without: iperf3's own words")
    # The table rounds to three digits. Nothing was dropped on the way to that port, or in the capture.
    assert sum(len(packet) for packet in data) == pytest.approx(sent[lane], rel=0.01)
    assert sum(len(packet[TCP].payload) for packet in others) < 1e4
    assert all(packet[IP].src == "10.0.0.1" for packet in packets)


def test_programs_have_a_small_dev_of_their_own_and_the_queues_asked_for(command: Command) -> None:
    """What a program does to /dev, as root, does not reach the machine's; it tries only where it is another one."""
    options = ["--queueing", "shared", "--set", "queues.shared_limit=48KiB"]
    program = [sys.executable, str(DEVICES), str(Path("/dev").stat().st_dev)]
    with nothing_left(command):
        done = command.run("exec", TINY, "z0h000", *options, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"} <= set(seen["dev"])
    assert set(seen["dev"]) <= {*NODES, *LINKS, "mqueue", "net", "pts", "shm"}
    assert seen["unlinked"] == [], "without /dev/null other programs of the world would fail"
    assert seen["null_mode"] == 0o600
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == 0o666
    assert Path("/dev/null").is_char_device()
    assert not Path("/dev/shm", seen["shared_memory"]).exists()
    assert seen["terminal"].startswith("/dev/pts/")
    assert "bfifo 11: dev eth0" in seen["queues"]
    assert "bfifo 12:" not in seen["queues"], "one queue is shared by all"
    assert list(sent_bytes(done.stderr)) == ["shared"]


def test_a_program_that_fails_is_told_with_its_host(command: Command) -> None:
    done = command.run("exec", TINY, "z0h000", "z0h001", "--", "sh", "-c", 'echo "rank $RANK"; exit "$RANK"')
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["[z0h000] rank 0", "[z0h001] rank 1"]
    (failed,) = (line for line in done.stderr.splitlines() if "ended with" in line)
    assert failed.startswith("z0h001: ")
    assert failed.endswith("ended with 1")


def test_what_a_program_prints_comes_byte_for_byte_and_its_stderr_apart(command: Command) -> None:
    script = r"printf 'a\0\377\nhalf'; printf 'err\n' >&2; kill -TERM $$"
    done = command.run("exec", TINY, "z0h000", "--", "sh", "-c", script, "[/no tag]", errors="surrogateescape")
    assert done.returncode == 1
    assert done.stdout == "a\0\udcff\nhalf"
    assert "\nerr\n" in done.stderr
    assert "[/no tag]' was ended by SIGTERM\n" in done.stderr


def test_where_stdout_and_stderr_are_one_what_a_program_prints_stays_in_order(command: Command) -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done"
    done = command.run("exec", TINY, "z0h000", "--", "sh", "-c", script, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert "".join(f"out {i}\nerr {i}\n" for i in range(1, 9)) in done.stdout


def test_a_program_in_the_background_that_fails_by_itself_is_told(command: Command) -> None:
    done = command.run("exec", TINY, "z0h000", "--background", "z0h001=sh -c 'echo begun; exit 3'", "--", "echo", "x")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["begun", "x"]
    assert "z0h001: sh -c 'echo begun; exit 3' in the background ended with 3, by itself" in done.stderr


WHO = """
import os, socket
name = socket.gethostname()
listener = socket.create_server(("::", 5000), family=socket.AF_INET6, dualstack_ipv6=True)
near = socket.getaddrinfo("st000", 1, type=socket.SOCK_STREAM)[0][4][0]
print(name, os.uname().nodename, socket.gethostbyname(name), socket.getfqdn(), near)
socket.create_connection(("::1", 5000)), socket.create_connection(("127.0.0.1", 5000))
"""


def test_each_host_has_a_hostname_that_resolves_and_loopback_in_both_families(command: Command) -> None:
    hosts = ("z0h000", "z1h000", "st000")
    done = command.run("exec", TINY, *hosts, "--", sys.executable, "-c", WHO)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split()[1:] for line in sorted(done.stdout.splitlines())]
    addresses = {"st000": ("10.128.0.1", "10.128.0.1"), "z0h000": ("10.0.0.1", "10.128.0.1")}
    addresses["z1h000"] = ("10.1.0.1", "10.129.0.1")
    assert found == [[name, name, own, name, near] for name, (own, near) in addresses.items()]


def test_ctrl_c_reaches_the_program_and_what_it_then_prints_comes(command: Command) -> None:
    script = "trap 'echo interrupted; exit' INT; echo begun; sleep 60 & wait"
    with nothing_left(command):
        process = command.start("exec", TINY, "z0h000", "--", "bash", "-c", script)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert out == "interrupted\n"
    assert err.endswith("interrupted\n")


def test_a_program_that_does_not_exist_is_told(command: Command) -> None:
    done = command.run("exec", TINY, "z0h003", "--", "no-such-program")
    assert done.returncode == 2
    assert "no-such-program" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_does_not_end_is_ended_after_the_timeout(command: Command) -> None:
    with nothing_left(command):
        done = command.run("exec", TINY, "z0h003", "z0h002", "--timeout", "1", "--", "sleep", "100", timeout_s=60)
    assert done.returncode == 1
    assert "z0h003, z0h002: 'sleep' still runs after 1 s" in done.stderr
    by_name = "on z0h002 'sleep' waits, on z0h003 'sleep' waits"
    assert by_name in done.stderr, "not in the order in which the kernel happened to number them"


def test_the_host_that_is_busy_at_the_timeout_is_named(command: Command) -> None:
    loop = "[ $FABRIC_RANK = 2 ] && exit; [ $FABRIC_RANK = 0 ] && exec sleep 100; while :; do :; done"
    with nothing_left(command):
        words = ["z0h000", "z0h001", "z1h000", "--timeout", "3", "--", "sh", "-c", loop]
        done = command.run("exec", TINY, *words, timeout_s=60)
    assert done.returncode == 1
    assert "z0h000, z0h001: 'sh' still runs after 3 s" in done.stderr, "that of z1h000 has ended"
    assert re.search(r"on z0h000 'sleep' waits, on z0h001 'sh' computes \([\d.]+ s of CPU time\)", done.stderr)


def test_mininets_prompt_takes_commands(command: Command) -> None:
    with nothing_left(command):
        typed = "nodes\nz0h000 ping -c 2 -W 5 z1h004\nst000 ip -o -4 addr\nexit\n"
        done = command.run("shell", SMALL, typed=typed)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr  # Mininet answers on stderr.
    assert "z0h011" in said
    assert "ix1" in said
    assert "2 packets transmitted, 2 received, 0% packet loss" in said
    assert "10.128.0.1" in said


def said_by(lines: str, done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what was said after each line, of a shell that reads lines from a pipe; the prompt comes on stdout, what
    commands say on stderr."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    parts = done.stdout.split("mininet> ")[1:]
    return dict(zip(lines.splitlines(), parts, strict=False))


COMMANDS = """\
z1h000 ping -c 1 -W 5 st000
z1h000 ping -c 1 10.128.0.1
pingpair
pingpairfull
iperf z0h000 z0h003
iperfudp 5M z0h000 z0h003
iperfudp fast z0h000 z0h003
iperf z0h000 z0l00
link z0l00 z0s00 down
links
link z0l00 z0s00 up
link z0h000 z0l00 down
z0h000 ping -c 1 -W 1 z0h002
link z0h000 z0l00 up
z0h000 ping -c 1 -W 5 z0h002
switch z1s01 stop
links
switch z1s01 start
switch z9s00 stop
dpctl dump-ports
wait
sh cat; echo from sh
px z0h000.nothing()
z0h000 printf '\\001\\377'
z0h000 cat; read word; echo "read '$word'"
z0h000 cd /proc; X=5
z0h000 pwd; echo $X | cat
z0h000 sleep 0.1 &
z0h000 exit
z0h000 hostname
xterm z0h000
gterm z0h000
x nosuch
source lines.txt
source nosuch.txt
py 'the end'
"""


@pytest.mark.skipif("DISPLAY" in os.environ, reason="terminals would open")
def test_each_command_of_mininets_prompt_works_or_says_what_to_do(command: Command) -> None:
    (command.here / "lines.txt").write_text("z0h000 echo sourced  # a comment\nexit\n")
    typed = COMMANDS.replace("source lines.txt\n", "") + "source lines.txt\nnodes\n"
    done = command.run("shell", TINY, typed=typed, stderr=subprocess.STDOUT)
    said = said_by(typed, done)
    print(done.stdout)
    assert "PING 10.129.0.1" in said["z1h000 ping -c 1 -W 5 st000"]
    assert "1 received" in said["z1h000 ping -c 1 -W 5 st000"]
    assert said["z1h000 ping -c 1 10.128.0.1"] == "ping: connect: No route to host\n"
    assert "0% dropped (2/2 received)" in said["pingpair"]
    assert "z0h001->z0h000: 1/1, rtt min/avg/max/mdev" in said["pingpairfull"]
    for line, expected in (("iperf z0h000 z0h003", 20), ("iperfudp 5M z0h000 z0h003", 5)):
        rates = [float(rate) for rate in re.findall(r"'([\d.]+) Mbits/sec'", said[line])]
        assert len(rates) == 2, said[line]
        assert all(0.2 * expected < rate < 1.3 * expected for rate in rates), f"{said[line]}: a busy machine is slower"
    assert "'fast' is not a rate in bit/s; write it like 10M" in said["iperfudp fast z0h000 z0h003"]
    assert "two hosts that reach each other, not for z0h000 and z0l00" in said["iperf z0h000 z0l00"]
    assert "0 received" in said["z0h000 ping -c 1 -W 1 z0h002"]
    assert "1 received" in said["z0h000 ping -c 1 -W 5 z0h002"]
    assert said["links"].count("(DOWN DOWN)") == 2, "those of the switch that stopped; the other link is up again"
    assert "no switch 'z9s00'" in said["switch z9s00 stop"]
    assert said["dpctl dump-ports"].count("OFPST_PORT reply (OF1.3)") == 10
    assert said["sh cat; echo from sh"] == "from sh\n"
    assert "AttributeError" in said["px z0h000.nothing()"] or "no attribute" in said["px z0h000.nothing()"]
    assert said["z0h000 cat; read word; echo \"read '$word'\""].strip() == "read ''"
    assert said["z0h000 pwd; echo $X | cat"].split() == ["/proc", "5"]
    assert "the shell of z0h000 has ended" in said["z0h000 exit"]
    assert said["z0h000 hostname"].strip() == "z0h000"
    assert "DISPLAY is not set" in said["xterm z0h000"]
    assert "DISPLAY is not set" in said["gterm z0h000"]
    assert "no node 'nosuch'" in said["x nosuch"]
    assert "cannot read nosuch.txt" in said["source nosuch.txt"]
    assert said["source lines.txt"].strip() == "sourced"
    assert "nodes" not in said, "the file's exit has left the prompt"


def test_all_hosts_reach_each_other_by_mininets_own_test(command: Command) -> None:
    done = command.run("shell", TINY, typed="pingall\n")
    assert "0% dropped (90/90 received)" in done.stdout + done.stderr


def test_ctrl_c_at_mininets_prompt_is_for_the_command_there_and_not_for_the_switches(command: Command) -> None:
    with nothing_left(command), in_terminal(lambda **options: command.start("shell", TINY, **options)) as terminal:
        terminal.wait_for("mininet> ")
        terminal.type("z0h000 ping -i 0.2 z0h001\r")
        terminal.wait_for("icmp_seq=2 ")
        terminal.type("\x03")
        assert "packets transmitted" in terminal.wait_for("mininet> ")
        assert " 0% packet loss" in terminal.prompted("z0h000 ping -c 1 -W 5 z1h003")
        terminal.type("exit\r")
        assert terminal.process.wait(60) == 0


def test_the_doctor_says_that_experiments_can_run_here(command: Command) -> None:
    with nothing_left(command):
        done = command.run("doctor", timeout_s=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "experiments can run" in done.stdout
    assert "missing" not in done.stdout
