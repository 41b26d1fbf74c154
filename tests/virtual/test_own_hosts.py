"""What programs find on a host of their own, in virtual time."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests import sent_checks
from tests.own_host_checks import COMMAND, HOSTS, check_both, check_notes
from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest


def test_a_host_has_all_to_itself_but_what_is_shared_on_purpose(command: VirtualCommand) -> None:
    done = command.run("exec", TINY, *HOSTS, "--", *COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    check_both(done.stdout)
    check_notes(done.stdout, done.stderr)


def test_a_host_that_sends_nothing_where_others_do_is_named(command: VirtualCommand) -> None:
    server = ["--background", "z0h001=iperf3 -s"]
    program = ["sh", "-c", "[ $FABRIC_HOST = z1h000 ] || iperf3 -c z0h001 -l 4K -n 8K"]
    done = command.run("exec", TINY, "z0h000", "z1h000", *server, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: z1h000 sent nothing over the fabric" in done.stderr


def test_each_program_is_said_to_have_sent_what_it_sent(command: VirtualCommand) -> None:
    done = command.run("exec", *sent_checks.WORDS)
    assert done.returncode == 0, done.stdout + done.stderr
    sent_checks.check(done.stderr, sent_again=0.0)


TALK = """
import os, socket, sys, time
place, first = sys.argv[1] + "/meeting", os.environ["FABRIC_RANK"] == "0"
with socket.socket(socket.AF_UNIX) as end:
    if first:
        end.bind(place)
        end.listen()
        print(end.accept()[0].recv(9))
    else:
        while end.connect_ex(place):
            time.sleep(0.01)
        end.send(b"by a file")
"""


def test_what_hosts_exchange_by_files_that_they_share_is_named(command: VirtualCommand) -> None:
    shared = command.temporary / "shared"
    shared.mkdir()
    words = ["--share", str(shared), "--", "python3", "-c", TALK, str(shared)]
    done = command.run("exec", TINY, "z0h000", "z1h000", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[z0h000] b'by a file'" in done.stdout
    assert f"note: {shared}/meeting, which hosts share, was written meanwhile" in done.stderr


def test_packets_of_all_programs_are_in_the_lane_of_a_service_level(command: VirtualCommand) -> None:
    server = ["--queueing", "lanes", "--service-level", "nccl", "--background", "z0h001=iperf3 -s"]
    done = command.run("exec", TINY, "z0h000", *server, "--", "iperf3", "-c", "z0h001", "-l", "4K", "-n", "8K")
    assert done.returncode == 0, done.stdout + done.stderr
    sent = {row[1]: row[2] for line in done.stderr.splitlines() if len(row := line.split("│")) > 3}
    lanes = {name.strip(): size.strip() for name, size in sent.items()}
    assert lanes["nccl"] != "0 B"
    assert lanes["other"] == "0 B"


def test_a_program_is_ended_after_so_much_wall_time(command: VirtualCommand) -> None:
    done = command.run("exec", TINY, "z0h000", "--timeout", "20", "--", "sh", "-c", "while :; do :; done")
    assert done.returncode == 1
    assert "not done after 20 s of wall time" in done.stderr
    if (
        "note: 'sh' (process " in done.stderr
    ):  # It computed for 8 s of that; on a busy machine the fabric is not up yet.
        assert "'sh' on z0h000 ran in " in done.stderr
        assert "programs still run on z0h000" in done.stderr


DRAWS = """
#include <cstdio>
#include <random>
int main() { std::random_device device; printf("%u %u\\n", device(), device()); }
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler: apt-get install g++")
def test_what_cpp_programs_draw_at_random_follows_the_seed(command: VirtualCommand) -> None:
    """Not the processor, which they ask for it: PyTorch's ranks wait for each other for times that are drawn so."""
    program = command.here / "draws"
    subprocess.run(["c++", "-xc++", "-", "-o", str(program)], input=DRAWS, text=True, check=True, timeout=60)
    first, second = (command.run("exec", TINY, "z0h000", "--", str(program)) for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout == second.stdout
    assert len(set(first.stdout.split())) == 2, "both draws are numbers of their own"
