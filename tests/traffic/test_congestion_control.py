"""Congestion controls that a run cannot have, or that would not be themselves, are refused before it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabric.errors import ConfigError, UsageError
from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.marking import Marking
from fabric.world import engine as world_engine
from fabric.world.engines import ENGINES, NAMESPACE, VIRTUAL
from fabric.world.kernel_api import libbpf, modules
from fabric.world.virtual.kernel import HERE as GUEST_SOURCES
from runs.registry import resolve
from traffic import congestion_control
from traffic.congestion_control import (
    STEERED_BY_ECN,
    control_queue_pairs,
    faults,
    of_queue_pairs,
    provide,
    require,
)
from traffic.dcqcn import PROFILES


def test_loaded_ones_and_those_of_the_guest_are_available() -> None:
    loaded = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert set(loaded) <= set(NAMESPACE.congestion_controls())
    assert "diag" not in NAMESPACE.congestion_controls()
    assert VIRTUAL.congestion_controls() == ("bbr", "cubic", "dcqcn", "dctcp", "line", "reno")
    assert "CONFIG_TCP_CONG_BBR=y" in (GUEST_SOURCES / "kernel.config").read_text()


def test_an_unknown_one_is_refused_naming_what_there_is() -> None:
    (fault,) = faults({"nccl": "cubic", "storage": "banana"}, marks=False)
    assert fault.startswith("congestion_control.storage: 'banana' is not a congestion control here (")
    assert fault.endswith("of the guest's (bbr, cubic, dcqcn, dctcp, line, reno); use one of theirs")


@pytest.mark.parametrize("name", STEERED_BY_ECN)
def test_one_that_steers_by_marks_is_refused_where_no_queue_marks(name: str) -> None:
    (fault,) = faults({"nccl": name}, marks=False)
    assert f"congestion_control.nccl: {name} steers by ECN, and no queue marks it" in fault
    assert "set queues.marking, or use one of " in fault
    assert name not in fault.partition("use one of ")[2]
    assert list(faults({"nccl": name}, marks=True)) == []


def test_dcqcn_brings_the_marking_of_its_parameters_unless_another_one_is_stated() -> None:
    _, config, stated, _ = resolve(
        "isolation", ["congestion_control.storage=dcqcn", "queues.lanes.storage.limit=1 MiB"]
    )
    marking = config.dcqcn.parameters(config.fabric()).marking
    assert config.queues.marking == marking
    assert stated["queues"]["marking"] == marking.model_dump()
    own = Marking(kmin=10_000, kmax=20_000, pmax=0.5)
    stated_marking = f"queues.marking={json.dumps(own.model_dump())}"
    config = resolve("isolation", ["congestion_control.storage=dcqcn", stated_marking]).config
    assert config.queues.marking == own
    assert resolve("isolation", [])[1].queues.marking is None


@pytest.mark.parametrize("name", ["dctcp", "banana"])
def test_a_config_with_one_is_refused_when_it_is_read(name: str) -> None:
    with pytest.raises(ConfigError, match=f"congestion_control.storage: .?{name}"):
        resolve("isolation", [f"congestion_control.storage={name}"])


class LoadedDcqcn:
    """Stands for a kernel with the modules: what each was loaded with, and how often one was taken out."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, own_kernel: bool) -> None:
        self.directory = directory
        self.unloaded: Counter[str] = Counter()
        engine = SimpleNamespace(
            has_own_kernel=own_kernel,
            module=lambda name: Path(f"{name}.ko"),
            why_no_bpf_controls=lambda: "this one has modules",
        )
        monkeypatch.setattr(congestion_control, "_SYS_MODULE", directory)
        monkeypatch.setattr(congestion_control, "_COUNTED_BEFORE", Counter())
        monkeypatch.setattr(congestion_control, "current_engine", lambda: engine)
        monkeypatch.setattr(modules, "is_loaded", lambda module: (directory / module).exists())
        monkeypatch.setattr(modules, "load", self.load)
        monkeypatch.setattr(modules, "unload", self.unload)

    def parameter(self, module: str, name: str) -> int:
        return int((self.directory / module / "parameters" / name).read_text())

    def load(self, path: Path, given: dict[str, int]) -> None:
        own = {"flows_without_ecn": 0} if path.stem == "tcp_dcqcn" else {}
        (self.directory / path.stem / "parameters").mkdir(parents=True)
        for name, value in {**given, **own, "flows": 4, "cnps": 3}.items():
            (self.directory / path.stem / "parameters" / name).write_text(f"{value}\n")

    def unload(self, module: str) -> None:
        self.unloaded[module] += 1
        shutil.rmtree(self.directory / module)


PAPER, HPCC = (PROFILES[name].parameters for name in ("paper", "hpcc"))


def test_dcqcn_is_loaded_anew_where_the_kernel_is_the_runs_own_and_counts_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = LoadedDcqcn(tmp_path, monkeypatch, own_kernel=True)
    assert (congestion_control.counted(), congestion_control.rate_cuts()) == (None, 0)
    provide(["dcqcn", "cubic"], PAPER, 10**10)
    provide(["dcqcn"], PAPER, 10**10)
    assert not kernel.unloaded
    provide(["dcqcn"], HPCC, 10**10)
    assert kernel.unloaded == {"tcp_dcqcn": 1}
    assert kernel.parameter("tcp_dcqcn", "cnp_ns") == 4000
    assert congestion_control.counted() == {"flows": 8, "flows_without_ecn": 0, "cnps": 6}
    assert congestion_control.rate_cuts() == 6


def test_a_kernel_that_others_use_keeps_its_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = LoadedDcqcn(tmp_path, monkeypatch, own_kernel=False)
    provide(["dcqcn"], PAPER, 10**10)
    with pytest.raises(UsageError, match=r"dcqcn: this kernel has loaded it with .* not .*; end what uses it"):
        provide(["dcqcn"], HPCC, 10**10)
    assert not kernel.unloaded


def test_queue_pairs_of_service_levels_with_dcqcn_have_it_and_are_counted_with_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = LoadedDcqcn(tmp_path, monkeypatch, own_kernel=True)
    both = {ServiceLevel.STORAGE: "dcqcn", ServiceLevel.NCCL: "dcqcn", ServiceLevel.HFREDUCE: "line"}
    provide(both.values(), PAPER, 10**10)
    control_queue_pairs(both, PAPER, 10**10)
    assert kernel.parameter("rdma_dcqcn", "classes") == 0b110, "SL 1 and 2, as their TOS bytes begin"
    assert kernel.parameter("rdma_dcqcn", "cnp_ns") == 50_000
    assert congestion_control.counted() == {"flows": 8, "flows_without_ecn": 0, "cnps": 6}
    control_queue_pairs({ServiceLevel.NCCL: "dcqcn"}, PAPER, 10**10)
    assert kernel.parameter("rdma_dcqcn", "classes") == 0b100
    control_queue_pairs({ServiceLevel.NCCL: "line"}, PAPER, 10**10)
    assert kernel.unloaded == {"rdma_dcqcn": 2}
    assert congestion_control.rate_cuts() == 9, "what was counted stays"


def test_programs_queue_pairs_have_dcqcn_in_the_lanes_that_mark() -> None:
    marking = Marking(kmin=10_000, kmax=20_000, pmax=0.5)
    stated = f"queues.lanes.nccl.marking={json.dumps(marking.model_dump())}"
    queues = resolve("isolation", [stated]).config.queues
    assert of_queue_pairs(plan_lanes(queues, Queueing.LANES)) == {ServiceLevel.NCCL: "dcqcn"}
    assert of_queue_pairs(plan_lanes(QueueConfig(), Queueing.LANES)) == {}


def test_reno_and_cubic_are_accepted_everywhere() -> None:
    controls = {"storage": "reno", "nccl": "cubic"}
    assert list(faults(controls, marks=False)) == []
    for engine in ENGINES.values():
        require(engine, controls)


@pytest.mark.parametrize("name", modules.CONGESTION_CONTROLS)
def test_ones_of_our_own_are_refused_where_they_can_be_neither_programs_nor_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(world_engine, "_LOADED_CONTROLS", tmp_path / "loaded")  # The kernel's may be those of a run.
    (tmp_path / "loaded").write_text("reno cubic")
    monkeypatch.setattr(libbpf, "why_not", lambda: "no compiler for them")
    monkeypatch.setattr(modules, "why_not_on_host", lambda: "no modules")
    with pytest.raises(UsageError, match=f"storage: {name} is .* no compiler for them; nor as a module: no modules"):
        require(NAMESPACE, {"storage": name})
    assert name not in NAMESPACE.congestion_controls()
    monkeypatch.setattr(libbpf, "why_not", lambda: None)
    require(NAMESPACE, {"storage": name})
    assert name in NAMESPACE.congestion_controls()


def test_what_only_the_other_engine_has_is_refused_for_this_one() -> None:
    with pytest.raises(
        UsageError, match="not in the kernel of --engine virtual, which has bbr, cubic, dcqcn, dctcp, line, reno"
    ):
        require(VIRTUAL, {"storage": "vegas"})
