"""``fabric topo loops`` as a user calls it."""

from __future__ import annotations

import json

import pytest

from app.cli import main


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["topo", "loops", *arguments])
    return code, capsys.readouterr().out


def test_a_fabric_without_loops_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "fire_flyer_2_tiny", "--repair", "reroute", "--down", "z0l00:6")
    assert code == 0
    assert "no credit loop: on these routes of fire_flyer_2_tiny lossless ports cannot deadlock" in text


def test_a_loop_is_told_with_its_ports_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(capsys, "two_hundred_hosts")
    assert text.startswith("credit loop: z0l05:11 -> ")
    assert "100 of 180 ports" in text
    _, text = said(capsys, "two_hundred_hosts", "--json")
    found = json.loads(text)
    assert (found["ports"], found["in_loops"]) == (180, 100)
    assert len(found["loop"]) == 8


def test_a_port_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "loops", "fire_flyer_2_tiny", "--down", "z9"]) == 2
    assert "--down z9: fire_flyer_2_tiny has no such port" in capsys.readouterr().err
