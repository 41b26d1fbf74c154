"""Congestion controls that a run cannot have, or that would not be themselves, are refused before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.registry import resolve
from fabric.errors import ConfigError, UsageError
from fabric.world.engines import ENGINES, NAMESPACE, VIRTUAL
from fabric.world.virtual.kernel import HERE as GUEST_SOURCES
from traffic.congestion_control import faults, require


def test_loaded_ones_and_those_of_the_guest_are_available() -> None:
    loaded = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert set(loaded) <= set(NAMESPACE.congestion_controls())
    assert "diag" not in NAMESPACE.congestion_controls()
    assert VIRTUAL.congestion_controls() == ("bbr", "cubic", "dctcp", "reno")
    assert "CONFIG_TCP_CONG_BBR=y" in (GUEST_SOURCES / "kernel.config").read_text()


def test_an_unknown_one_is_refused_naming_what_there_is() -> None:
    (fault,) = faults({"nccl": "cubic", "storage": "banana"})
    assert fault.startswith("congestion_control.storage: 'banana' is no congestion control of this kernel (")
    assert fault.endswith("of the guest's (bbr, cubic, dctcp, reno); use one of theirs")


def test_one_that_steers_by_marks_is_refused_where_no_queue_marks() -> None:
    (fault,) = faults({"nccl": "dctcp"})
    assert "congestion_control.nccl: dctcp steers by ECN, and no queue marks it" in fault
    assert "use one of " in fault
    assert "dctcp" not in fault.partition("use one of ")[2]


@pytest.mark.parametrize("name", ["dctcp", "banana"])
def test_a_config_with_one_is_refused_when_it_is_read(name: str) -> None:
    with pytest.raises(ConfigError, match=f"congestion_control.storage: .?{name}"):
        resolve("isolation", [f"congestion_control.storage={name}"])


def test_reno_and_cubic_are_accepted_everywhere() -> None:
    controls = {"storage": "reno", "nccl": "cubic"}
    assert list(faults(controls)) == []
    for engine in ENGINES.values():
        require(engine, controls)


def test_what_only_the_other_engine_has_is_refused_for_this_one() -> None:
    with pytest.raises(UsageError, match="not in the kernel of --engine virtual, which has bbr, cubic, dctcp, reno"):
        require(VIRTUAL, {"storage": "vegas"})
