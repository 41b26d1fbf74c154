"""What a report says is left out: nothing that the run had, and what its engine and queueings do leave out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from fabric.report.omissions import omissions
from fabric.results import Result

MakeResult = Callable[..., Result]


def told(result: Result, queueings: list[str], flow_control: str | None = None, **queues: object) -> str:
    """Return the page's list of what is left out, of a run with one phase per queueing."""
    first = result.manifest["phases"][0]
    result.manifest["phases"] = [{**first, "name": queueing, "queueing": queueing} for queueing in queueings]
    if flow_control or queues:
        said = {"flow_control": flow_control or "credit", **queues}
        (result.directory / "config.yaml").write_text(yaml.safe_dump({"queues": said}))
    return "\n".join(omissions(result))


@pytest.mark.parametrize("queueing", ["lossless", "lossless_lanes"])
def test_a_lossless_run_does_not_lack_losslessness(make_result: MakeResult, queueing: str) -> None:
    found = told(make_result(), [queueing])
    assert "Losslessness" not in found
    assert "A full queue drops" not in found
    assert "idle link" not in found
    assert "HOQLife" in found
    assert "slow" in found.lower()


@pytest.mark.parametrize("queueing", ["shared", "lanes"])
def test_a_run_whose_queues_drop_has_no_lack_of_what_only_lossless_ones_have(
    make_result: MakeResult, queueing: str
) -> None:
    found = told(make_result(), [queueing])
    assert f"Losslessness, in the queueings {queueing}." in found
    assert f"idle link, in the queueings {queueing}." in found
    assert "HOQLife" not in found
    assert "PFC's frames" not in found


def test_a_run_of_both_names_those_that_drop(make_result: MakeResult) -> None:
    found = told(make_result(), ["shared", "lanes", "lossless"])
    assert "Losslessness, in the queueings shared and lanes." in found
    assert "HOQLife" in found


def test_pfc_lacks_other_things_than_credits(make_result: MakeResult) -> None:
    found = told(make_result(), ["lossless"], "pfc")
    assert "quanta" in found
    assert "HOQLife" not in found
    assert "quanta" not in told(make_result(), ["lossless"], "credit")


@pytest.mark.parametrize(
    ("flow_control", "setting", "words"),
    [
        ("credit", {"lifetime": 0.1}, "HOQLife"),
        ("credit", {"framing": 24}, "preamble"),
        ("credit", {"cut_through": 64}, "Cut-through"),
        ("pfc", {"watchdog": 0.1}, "watchdog"),
    ],
)
def test_what_a_run_has_is_not_left_out(
    make_result: MakeResult, flow_control: str, setting: dict[str, object], words: str
) -> None:
    assert words in told(make_result(), ["lossless"], flow_control)
    assert words not in told(make_result(), ["lossless"], flow_control, **setting)


@pytest.mark.parametrize("kind", ["verbs", "messages"])
def test_a_run_on_another_transport_does_not_use_tcp(make_result: MakeResult, kind: str) -> None:
    assert "kernel TCP" in told(make_result(engine="virtual"), ["lossless"])
    result = make_result(engine="virtual")
    (result.directory / "config.yaml").write_text(yaml.safe_dump({"transport": {"kind": kind}}))
    assert "kernel TCP" not in told(result, ["lossless"])


def test_what_takes_no_time_is_told_of_virtual_time_alone(make_result: MakeResult) -> None:
    real, virtual = (told(make_result(engine=engine), ["shared"]) for engine in ("namespace", "virtual"))
    assert "programs, switches and the controller answer at once" in virtual
    assert "kernel's scheduling" not in virtual
    assert "programs, switches and the controller answer at once" not in real
    assert "kernel's scheduling" in real


def test_scaled_rates_are_told_only_where_they_are_scaled(make_result: MakeResult) -> None:
    result = make_result()
    assert "True rates" in told(result, ["shared"])
    result.fabric["reference_nic_rate_bps"] = result.fabric["nic_rate_bps"]
    assert "True rates" not in told(result, ["shared"])
