"""What a run of storage_throughput says: shares of the NICs from rows of the counted time, how busy each kind of link
was, and that a config that cannot be played is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.storage_throughput.cases import OthersAlone, Reads
from experiments.storage_throughput.config import StorageThroughputConfig
from experiments.storage_throughput.experiment import EXPERIMENT
from experiments.storage_throughput.links import kind_of, link_uses
from experiments.storage_throughput.study import STUDY
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import Queueing
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.storage.closed_forms import storage_nics_Bps

SMALL = ("topology=fire_flyer_2_small_200g", "storage.stripe=8", "phase_time=3", "warm_up=1")
FABRIC = load_fabric("fire_flyer_2_small_200g")
PHASE = Phase("p", "A phase", "lossless_lanes", 10.0, 13.0)


def config_of(*overrides: str) -> StorageThroughputConfig:
    return cast(StorageThroughputConfig, resolve("storage_throughput", overrides)[1])


def variants(config: StorageThroughputConfig) -> list[Reads]:
    return [one for one in STUDY.cases_of(config) if isinstance(one, Reads)]


def ports_of(*rows: tuple[float, str, str, int]) -> pd.DataFrame:
    """Rows of at_s, port, lane, sent_bytes."""
    full = [(at, port, lane, sent, 0, 0, 0, 0) for at, port, lane, sent in rows]
    return table_of("ports", full).astype(TABLES["ports"].dtypes)


def port_of(kind: str, number: int = 0) -> str:
    ports = [port for link in FABRIC.links for port in link.ports if kind_of(FABRIC, port) == kind]
    return str(ports[number])


def played_with(ports: pd.DataFrame) -> Any:
    """Return a case that was played with these samples of ports."""
    return SimpleNamespace(
        fabric=FABRIC, session=SimpleNamespace(table={"ports": ports}.__getitem__), counted_s=(11.0, PHASE.ended_s)
    )


def test_the_paper_s_nics_have_nine_terabytes_a_second() -> None:
    assert storage_nics_Bps(load_fabric("fire_flyer_2")) == pytest.approx(9e12)
    assert storage_nics_Bps(FABRIC) == 4 * 2 * 25e9


def test_the_use_of_links_is_over_the_counted_time_and_all_lanes_of_a_port() -> None:
    one, other = port_of("leaf to spine"), port_of("leaf to spine", 1)
    nic = port_of("storage node to leaf")
    rows = [(10.5, one, "storage", 0), (11.5, one, "storage", 10**9), (12.5, one, "storage", 11 * 10**9)]
    rows += [(11.5, one, "other", 0), (12.5, one, "other", 10**9)]
    rows += [(11.5, other, "storage", 0), (12.5, other, "storage", 0), (13.5, other, "storage", 10**12)]
    rows += [(11.5, nic, "storage", 0), (12.5, nic, "storage", 25 * 10**9)]
    rows += [(at, "z0h000/g0:0", "storage", 0) for at in (11.5, 12.5)]  # Within a node: no link of the fabric.
    found = link_uses(played_with(ports_of(*rows)))
    assert [use.settings["links"] for use in found] == ["storage node to leaf", "leaf to spine"]
    assert found[0].numbers == {"number": 1, "mean": 1.0, "p99": 1.0, "most": 1.0}
    assert found[1].numbers == pytest.approx({"number": 2, "mean": 0.22, "p99": 0.44, "most": 0.44})


def test_fewer_than_two_samples_say_nothing_of_links() -> None:
    assert link_uses(played_with(ports_of((11.5, port_of("leaf to spine"), "storage", 9)))) == []


def session_of(config: StorageThroughputConfig, ports: pd.DataFrame) -> Any:
    """A session that played: in the second variant one read ended in the counted time, in the first none."""
    playing = variants(config)
    row = [playing[1].name, "storage", "read", "z0h000", "st001", 10**9, 11.5, 12.0, 0]
    tables = {"operations": table_of("operations", [row]).astype(TABLES["operations"].dtypes), "ports": ports}
    outcomes = [
        SimpleNamespace(
            phase=Phase(one.name, one.title, one.queueing.value, 10.0, 13.0),
            conservation=SimpleNamespace(dropped_by_queues=0, retransmissions=7),
        )
        for one in playing
    ]
    return SimpleNamespace(live=SimpleNamespace(fabric=FABRIC), phases=outcomes, table=tables.__getitem__)


def test_a_run_has_its_share_of_the_nics_and_a_figure(tmp_path: Path) -> None:
    config, nic = config_of(*SMALL), port_of("storage node to leaf")
    ports = ports_of((11.5, nic, "storage", 0), (12.5, nic, "storage", 24 * 10**9))
    summary = STUDY.summarize(cast(Session, session_of(config, ports)), config, variants(config))
    found = by_path(summary["metrics"])
    assert undeclared("storage_throughput", summary["metrics"]) == []
    assert {one.name for one in summary["metrics"] if one.job == "storage"} >= {"read.bandwidth_Bps", "read.readers"}
    assert found["lossless_lanes_rts_off.read.bandwidth_Bps"] == 0.0
    assert "lossless_lanes_rts_off.read.p50_s" not in found
    assert found["lossless_lanes_rts_8.read.share_of_nics"] == pytest.approx(0.5e9 / 200e9)
    assert found["lossless_lanes_rts_8.use.storage_node_to_leaf.mean"] == pytest.approx(0.96)
    assert "storage node to leaf, 96%" in summary["answer"]
    for table in summary["tables"]:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"links"}


def test_a_run_without_samples_of_ports_says_nothing_of_links(tmp_path: Path) -> None:
    config = config_of(*SMALL)
    summary = STUDY.summarize(cast(Session, session_of(config, ports_of())), config, variants(config))
    assert len(summary["tables"]) == 1
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"links"}, "of what was read"
    assert "busy" not in summary["answer"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("request_to_send=[8, 8]", "named more than once"),
        ("warm_up=3", "warm_up: 3 s leaves nothing of phase_time"),
        ("phase_time=1.0009", "0.0009 s count, which have not two samples of ports, 0.0005 s apart"),
        ("storage.checkpoint.share=0.5", "nobody writes here"),
        ("topology.storage=0", "0 storage nodes"),
        ("storage.clients_per_process=201", "less than or equal to 200"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(*SMALL, override)


BESIDE = "beside=[{name: training, kind: hfreduce, nodes: 4, size: 1 MiB, chunk: 64 KiB}]"


def test_other_jobs_play_beside_each_variant_and_once_without_reads() -> None:
    config = config_of(*SMALL, BESIDE, "queueings=[lossless, lossless_lanes]")
    playing = variants(config)
    assert [one.name for one in playing[:4]] == [
        "lossless_rts_off", "lossless_rts_off_beside", "lossless_rts_8", "lossless_rts_8_beside",
    ]  # fmt: skip
    assert not any(one.is_beside for one in variants(config_of(*SMALL)))


def test_what_other_jobs_keep_is_over_what_they_had_without_reads(tmp_path: Path) -> None:
    config = config_of(*SMALL, BESIDE, "request_to_send=[8]")
    playing, alone = variants(config), OthersAlone(Queueing.LOSSLESS_LANES).name
    nic = port_of("storage node to leaf")
    session = session_of(config, ports_of((11.5, nic, "storage", 0), (12.5, nic, "storage", 24 * 10**9)))
    operations = session.table("operations")
    others = operations.assign(job="training", operation="read", size_bytes=10**12)
    speeds = {alone: 10e9, playing[1].name: 4e9}
    jobs = pd.DataFrame([(phase, "training", 10.0, 13.0, 13.0) for phase in speeds])
    jobs.columns = pd.Index(["phase", "job", "started_s", "halted_s", "ended_s"])
    tables = {
        "operations": pd.concat([operations, others]),
        "ports": session.table("ports"),
        "jobs": jobs,
        "steps": table_of(
            "steps",
            [
                (phase, "training", "hfreduce", "allreduce", 0, 4, round(speed), 11.0, 12.0)
                for phase, speed in speeds.items()
            ],
        ),
    }
    session.table = tables.__getitem__
    session.phases.append(SimpleNamespace(phase=Phase(alone, alone, "lossless_lanes", 10.0, 13.0)))
    summary = STUDY.summarize(cast(Session, session), config, STUDY.cases_of(config))
    found = by_path(summary["metrics"])
    assert found[f"{alone}.training.algbw_Bps"] == 10e9
    assert found[f"{playing[1].name}.training.algbw_Bps"] == 4e9
    assert found[f"{playing[1].name}.training.kept_fraction"] == pytest.approx(0.4)
    assert found[f"{playing[1].name}.read.share_of_nics"] == pytest.approx(0.5e9 / 200e9), "only of the job that reads"
    assert [table.title for table in summary["tables"]][1] == "Other jobs beside the reads"
    for table in summary["tables"]:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"links"}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("{name: storage, kind: hfreduce, nodes: 4}", "beside: storage is the name of the job that reads"),
        ("{name: a, kind: hfreduce, nodes: 99}", "beside: ask for 99 nodes, and 24 compute nodes have no job by name"),
        ("{name: a, kind: hfreduce, nodes: 1}", "beside.a.nodes: 1; hfreduce needs 2 or more"),
    ],
)
def test_jobs_that_cannot_play_beside_are_refused(job: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(*SMALL, f"beside=[{job}]")
    assert words in str(refused.value)
