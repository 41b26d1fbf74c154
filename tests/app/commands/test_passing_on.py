"""What programs print goes on byte for byte, or line by line with a name, and stderr stays apart."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from app.commands.passing_on import Sink, pass_on

EVERY_BYTE = bytes(range(256))
LONG_LINE = b"x" * 1_000_000
PRINTED = EVERY_BYTE + b"\r 10%\r 20%\n" + LONG_LINE + b"\x00\nno end"


def printed(out: bytes, err: bytes, name: bytes | None) -> tuple[bytes, bytes]:
    """Return what is passed on of a program that prints ``out`` and ``err``."""
    script = "import os, sys; o, e = map(bytes.fromhex, sys.stdin.read().split(' ')); os.write(2, e)\n"
    script += "while o: o = o[os.write(1, o[:999]):]"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    stdout, stderr = io.BytesIO(), io.BytesIO()
    readers = pass_on(process, Sink(stdout), Sink(stderr), name)
    assert process.stdin is not None
    process.stdin.write(f"{out.hex()} {err.hex()}".encode())
    process.stdin.close()
    assert process.wait(30) == 0
    for reader in readers:
        reader.join(30)
    return stdout.getvalue(), stderr.getvalue()


@pytest.mark.parametrize("name", [None, b""], ids=["one program", "one in the background"])
def test_every_byte_goes_on_and_none_is_added(name: bytes | None) -> None:
    assert printed(PRINTED, b"\xff of stderr", name) == (PRINTED, b"\xff of stderr")


def test_lines_of_several_hosts_have_a_name_each_and_an_end() -> None:
    out, err = printed(b"a\r\xff\n\nlast", b"", b"[z0h000] ")
    assert out == b"[z0h000] a\r\xff\n[z0h000] \n[z0h000] last\n"
    assert err == b""


def test_what_one_program_prints_without_an_end_of_line_goes_on_at_once() -> None:
    process = subprocess.Popen(["sh", "-c", "printf half; read _; echo whole"], stdin=-1, stdout=-1)
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "wb") as stream:
        readers = pass_on(process, Sink(stream), Sink(io.BytesIO()), None)
        assert os.read(ours, 100) == b"half"
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(b"\n")
        assert process.wait(30) == 0
        readers[0].join(30)
    assert os.read(ours, 100) == b"whole\n"
    os.close(ours)


def test_a_program_whose_reader_has_gone_is_ended_by_its_pipe() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    stdout = Sink(os.fdopen(theirs, "wb", buffering=0))
    process = subprocess.Popen(["yes"], stdout=-1)
    pass_on(process, stdout, Sink(io.BytesIO()), None)
    assert process.wait(30) == -13
    assert stdout.has_gone


def test_a_line_that_a_program_has_left_open_is_ended_before_words_of_ours() -> None:
    stream = io.BytesIO()
    sink = Sink(stream)
    sink.end_line()
    sink.write(b"whole\n")
    sink.end_line()
    sink.write(b"half")
    sink.end_line()
    assert stream.getvalue() == b"whole\nhalf\n"
