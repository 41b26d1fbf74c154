"""What a run of storage_failure says, from made-up rows; and what it lets fail."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.storage_failure.experiment import EXPERIMENT
from experiments.storage_failure.run import Effect, StorageFailureConfig, changes_of, primary_failed, schedule_of
from experiments.storage_failure.summary import Failed, PrimaryFailed, numbers_of, summarize
from experiments.storage_failure.tables import TABLES
from fabric.errors import ConfigError
from fabric.failures.kinds.process import KILLED, STOPPED, ProgramTarget
from fabric.metrics import by_path
from fabric.model.network import Link
from runs.registry import resolve
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_figures_drawn, own_result
from topologies.load import load_fabric
from traffic.storage.chain_states import ChainState, LocalState
from traffic.storage.chains import ChainTable, Target
from traffic.storage.client.verification import Verification
from traffic.storage.managers.one_writer import Trusted
from traffic.storage.managers.program import ManagerHistory

FABRIC = load_fabric("fire_flyer_2_small")
VICTIM, OTHER = FABRIC.storages[:2]
TARGETS = (Target(VICTIM, 0), Target(OTHER, 0))
ON, UP, OFF = LocalState.ONLINE, LocalState.UPTODATE, LocalState.OFFLINE


TWO_MANAGERS = Path("experiments/storage_failure/two_managers.yaml")


def config_of(*overrides: str, of: str = "storage_failure") -> StorageFailureConfig:
    return cast(StorageFailureConfig, resolve(of, overrides)[1])


def with_primary(*overrides: str) -> StorageFailureConfig:
    return config_of(*overrides, of=str(TWO_MANAGERS))


def history(*changes: tuple[float, LocalState]) -> pd.DataFrame:
    """The rows of two chains of which the victim's target comes into local states, the second one 1 s later."""
    rows = []
    for number in range(2):
        chain = ChainState.first(number, TARGETS)
        rows.append((0.0, chain))
        for at_s, local in changes:
            chain = chain.updated({TARGETS[0]: local, TARGETS[1]: UP})
            rows.append((at_s + number, chain))
    return changes_of("cut", rows)


def failed(changes: pd.DataFrame, back_s: float | None = 120.0) -> Failed:
    counts = {"resync_chunks": 7, "resync_bytes": 7 << 16}
    return Failed("cut", VICTIM, 20.0, back_s, changes, counts, Verification(9, ("gone",)))


def operations(*rows: tuple[str, float, float]) -> pd.DataFrame:
    found = pd.DataFrame(list(rows), columns=["operation", "started_s", "ended_s"])
    return found.assign(phase="cut")


def test_times_are_from_the_failure_and_from_the_return_to_the_last_chain() -> None:
    one = failed(history((85.0, OFF), (130.0, ON), (150.0, UP)))
    assert one.noticed_s == 85 + 1 - 20
    assert one.whole_s == 150 + 1 - 120


def test_what_did_not_come_about_has_no_number() -> None:
    never = numbers_of(failed(history()), operations())
    assert "noticed_s" not in never
    assert "longest_write_s" not in never
    half = failed(history((85.0, OFF), (130.0, ON)))
    assert "whole_s" not in numbers_of(half, operations())
    assert "whole_s" not in numbers_of(failed(history((85.0, OFF)), back_s=None), operations())


def test_operations_that_failed_are_counted_apart() -> None:
    rows = operations(("read", 1, 2), ("read", 3, 13), ("read_failed", 5, 65), ("write", 0, 30), ("write", 1, 2))
    found = numbers_of(failed(history()), rows)
    assert (found["reads"], found["reads_failed"], found["writes"], found["writes_failed"]) == (2, 1, 2, 0)
    assert (found["longest_read_s"], found["longest_write_s"]) == (10, 30)
    assert (found["resync_chunks"], found["lost"]) == (7, 1)


def test_a_summary_has_a_row_and_metrics_for_each_effect() -> None:
    session = SimpleNamespace(table=lambda name: operations(("write", 0, 30)))
    found = summarize(cast(Any, session), [failed(history((85.0, OFF), (130.0, ON), (150.0, UP)))])
    assert by_path(found["metrics"])["cut.storage.noticed_s"] == 66
    assert undeclared("storage_failure", found["metrics"]) == []
    (table,) = found["tables"]
    assert table.words[0][:4] == ["cut", "st000", "66 s", "31 s"]
    assert table.words[0][-1] == "1 of 9"
    assert found["answer"].startswith("cut: noticed after 66 s; 0 writes and 0 reads failed")


def test_rows_have_the_columns_of_their_table() -> None:
    rows = history((85.0, OFF))
    assert list(rows.columns) == list(TABLES["chain_changes"].columns)
    assert list(rows[rows["chain"] == 1]["state"]) == ["serving", "serving", "serving", "offline"]
    assert not len(changes_of("cut", []))


@pytest.mark.parametrize("effect", list(Effect))
def test_each_effect_lets_fail_what_it_says(effect: Effect) -> None:
    schedule = schedule_of(config_of(), effect, VICTIM, FABRIC)
    links = {event.target for event in schedule.events if isinstance(event.target, Link)}
    programs = {event.state for event in schedule.events if isinstance(event.target, ProgramTarget)}
    assert (len(links) == len(FABRIC.ports_of[VICTIM])) == (effect in (Effect.CUT, Effect.SILENT))
    assert (STOPPED in programs) == (effect in (Effect.STOP, Effect.SILENT))
    assert (KILLED in programs) == (effect is Effect.KILL)
    assert min(event.at_s for event in schedule.events) == 28


def test_a_primary_that_fails_is_one_more_line_and_who_takes_over_is_said() -> None:
    config = with_primary()
    schedule = schedule_of(config, Effect.CUT, VICTIM, FABRIC)
    programs = [(one.at_s, one.state) for one in schedule.events if isinstance(one.target, ProgramTarget)]
    assert programs == [(40.0, KILLED)]
    stopped = schedule_of(with_primary("primary=stop"), Effect.CUT, VICTIM, FABRIC)
    states = [(one.at_s, one.state) for one in stopped.events if isinstance(one.target, ProgramTarget)]
    assert states[0] == (40.0, STOPPED)
    assert states[1][0] == 300
    trusted = {"z0h010": (Trusted(0, 72),), "z0h011": (Trusted(95, 300), Trusted(301, 400))}
    told = ManagerHistory((), ChainTable(1, ()), {}, trusted=trusted)
    found = primary_failed(told, config, 1000.0)
    assert found == PrimaryFailed("dies", 1040.0, 1095.0)
    assert primary_failed(told, config_of(), 1000.0) is None
    nobody = primary_failed(ManagerHistory((), ChainTable(1, ()), {}), config, 1000.0)
    assert nobody is not None and math.isnan(nobody.taken_over_s)
    session = SimpleNamespace(table=lambda name: operations())
    changes = history((85.0, OFF))
    for primary, words in [
        (found, "cut: noticed after 66 s, by a manager that took over 55 s after the primary failed; 0 writes"),
        (nobody, "cut: noticed after 66 s, no manager took over; 0 writes"),
    ]:
        one = replace(failed(changes), primary=primary)
        assert summarize(cast(Any, session), [one])["answer"].startswith(words)


def test_two_primaries_at_once_are_said() -> None:
    one = replace(failed(history()), counts={"shared_trust": 2, "resyncs": 0})
    found = summarize(cast(Any, SimpleNamespace(table=lambda name: operations())), [one])
    assert "Two managers trusted a lease at once, 2 times: their clocks are too far apart." in found["answer"]


def test_the_figure_has_a_row_for_each_target_of_each_chain(tmp_path: Path) -> None:
    one = replace(failed(history((85.0, OFF), (130.0, ON), (150.0, UP))), played=(0.0, 200.0))
    one = replace(one, primary=PrimaryFailed("dies", 40.0, math.nan))
    summary = summarize(cast(Any, SimpleNamespace(table=lambda name: operations())), [one])
    own = {"chain_changes": one.changes}
    result = own_result(tmp_path / "run", EXPERIMENT, own=own, summary={"failed_nodes": summary["failed_nodes"]})
    (panel,) = result.figure("chain_states").subfigs[1].axes
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        "chain 0, st000/0", "chain 1, st000/0", "chain 0, st001/0", "chain 1, st001/0",
    ]  # fmt: skip
    assert [text.get_text() for text in panel.texts] == ["it fails", "the primary dies", "it is back"]
    assert own_figures_drawn(own_result(tmp_path / "other", EXPERIMENT, own=own), EXPERIMENT) == set()


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["victim=st009"], "victim: st009 is not a storage node of fire_flyer_2_small; choose one of st000, st001"),
        (["victim=st003"], "victim: st003 has the cluster manager; choose another"),
        (["storage.cluster_manager.host=st000"], "victim: st000 has the cluster manager"),
        (["clients=25"], "clients: 25 exceed the 24 compute nodes"),
        (["storage.cluster_manager=null"], "without it nobody hears heartbeats"),
        (["failures=[{storage: st001, at: 1}]"], "lets a storage node fail by itself"),
        (["storage.cluster_manager.failed_after=15"], "less than two heartbeats"),
    ],
)
def test_what_cannot_be_played_is_refused(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        config_of(*overrides)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["storage.cluster_manager.managers=null"], "primary: there is one cluster manager"),
        (["storage.cluster_manager.managers.hosts=[z0h002, z0h011]"], "z0h002 has a service or a client, too"),
        (["storage.cluster_manager.managers.hosts=[z0h010]"], "hosts names 1 for a count of 2"),
        (["primary=cut"], "primary"),
        (["storage.cluster_manager.managers.hosts=[z0h010, z7h000]"], "managers.hosts: z7h000 is not a host"),
    ],
)
def test_a_primary_that_cannot_fail_so_is_refused(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        with_primary(*overrides)
