"""What ``fabric exec`` says of data that crossed no NIC, and to a program that asks for GPUs."""

from __future__ import annotations

import io
import socket
from pathlib import Path

from app.commands.exec_notes import ListeningSink, SharedFiles, copies_note, gpus_note, shared_note
from fabric.model.network import Fabric
from topologies.load import load_fabric

FABRIC: Fabric = load_fabric("fire_flyer_2_tiny")
A, B = FABRIC.computes[:2]


def test_files_and_sockets_that_hosts_share_are_named_where_they_changed(tmp_path: Path) -> None:
    shared, start = tmp_path / "shared", tmp_path / "start"
    (shared / "deep").mkdir(parents=True)
    start.mkdir()
    (shared / "old").write_text("as it was")
    (shared / "grows").write_text("a")
    files = SharedFiles([shared], start)
    assert files.changed() == []
    (shared / "grows").write_text("ab")
    (shared / "deep" / "new").touch()
    (start / "output").write_text("what programs write where they start")
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.bind(str(start / "meeting"))
        assert files.changed() == [str(shared / "deep" / "new"), str(shared / "grows"), str(start / "meeting")]


def test_what_changed_is_said_where_programs_of_several_hosts_could_have_talked_by_it() -> None:
    assert shared_note({A: 0, B: 0}, ["/tmp/x/a"]) == (
        "note: /tmp/x/a, which hosts share, was written meanwhile: what programs of different hosts exchange by that "
        "crosses no NIC, and takes no time"
    )
    assert "a, b, c, d, e and 2 more, which hosts share, were written" in shared_note({A: 9, B: 9}, [*"abcdefg"])
    assert shared_note({A: 0}, ["a"]) == shared_note({A: 0, B: 0}, []) == ""


def test_copies_over_ssh_are_named_by_program() -> None:
    note = copies_note([("rsync", "z0h001"), ("scp", "z0h000"), ("scp", "z0h001")])
    assert note.startswith("note: copied over ssh by rsync (z0h001), scp (z0h000, z0h001), which crosses no NIC")
    assert copies_note([]) == ""


def test_a_program_that_asks_for_nccl_is_told_what_to_ask_for_however_its_words_arrive() -> None:
    sink, other = ListeningSink(io.BytesIO()), ListeningSink(io.BytesIO())
    sink.write(b"RuntimeError: Distributed package doesn't")
    assert gpus_note([sink, other]) == ""
    sink.write(b" have NCCL built in\n")
    assert "init_process_group('gloo')" in gpus_note([sink, other])
    other.write(b"ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!\n")
    assert "--service-level nccl" in gpus_note([other])
