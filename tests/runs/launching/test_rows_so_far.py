"""What those who watch a run are told while a phase plays: rows in the run's time, each once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from cluster.nodes import Nodes
from cluster.platform.events import Asked, Held, JobSpec, NodeOut, Released, Submitted
from cluster.platform.journal import Journal
from cluster.platform.journal_rows import JournalRows
from cluster.platform.reasons import Silent
from cluster.tasks import Users
from controllers.client import ControllerEvent
from fabric.errors import ControllerError
from fabric.failures.report import LinkChange
from fabric.failures.schedule import DOWN
from runs.launching.events import Event, NewRows, decoded, encoded
from runs.launching.rows_so_far import RowsSoFar
from tests.waiting import until
from topologies.load import load_fabric
from traffic.job import Records

TINY = load_fabric("fire_flyer_2_tiny")
ORIGIN_S = 100.0


@dataclass
class Platform:
    """A job that has something to tell once."""

    name: str = "platform"
    left: list[dict[str, object]] = field(default_factory=lambda: [{"phase": "a", "at_s": 103.5, "event": "saved"}])

    def so_far(self) -> Records:
        records = Records()
        records.add("platform_events", self.left)
        self.left = []
        return records


def test_changes_of_failures_actions_and_rows_of_jobs_are_told_once() -> None:
    heard, actions = list[Event](), [ControllerEvent(103.0, "installed", {"rounds": 1})]
    rows = RowsSoFar("a", [Platform()], lambda: actions, ORIGIN_S, heard.append)
    link = TINY.links[0]
    with rows.telling():
        rows.hear(LinkChange(link, DOWN, 102.0, 102.1, 102.2))
        until(lambda: len(heard) >= 3, "what has happened to be told")
        rows.hear(LinkChange(link, DOWN, 104.0, 104.1, 104.2))
        until(lambda: len(heard) >= 4, "a further change")
    told = [decoded(encoded(one)) for one in heard]
    assert [(one.phase, one.table, len(one.rows), one.is_whole) for one in told if isinstance(one, NewRows)] == [
        ("a", "failures", 1, False),
        ("a", "controller", 1, False),
        ("a", "platform_events", 1, False),
        ("a", "failures", 1, False),
    ]
    failure, action, event, _ = (one.rows[0] for one in told if isinstance(one, NewRows))
    assert (failure["target"], failure["asked_by"], round(failure["done_s"], 6)) == (str(link), "run", 2.2)
    assert math.isinf(failure["due_end_s"]) and math.isnan(failure["ended_s"])
    assert (action["at_s"], event["at_s"], event["job"]) == (3.0, 3.5, "platform")


def test_a_controller_that_is_gone_is_passed_over() -> None:
    def gone() -> list[ControllerEvent]:
        raise ControllerError("it was killed")

    heard: list[Event] = []
    RowsSoFar("a", [Platform()], gone, ORIGIN_S, heard.append).tell()
    assert [one.table for one in heard if isinstance(one, NewRows)] == ["platform_events"]


def test_a_journal_is_told_as_it_grows_from_where_the_phase_began(tmp_path: Path) -> None:
    nodes, spec = Nodes.grid(1, 1, 4), JobSpec("first", "ada", 1, ("true",))
    with Journal(tmp_path / "journal", 10.0) as journal:
        journal.write(Submitted(11.0, 1, spec))
        rows = JournalRows(journal.path, (nodes, Users()), "a", before=1)
        assert rows.read(ORIGIN_S) == {}
        for event in (
            Submitted(12.0, 2, spec),
            Held(13.0, 1, "its user holds it"),
            Released(14.0, 1),
            Asked(15.0, 2, ("z0h001",), "free"),
            NodeOut(16.0, "z0h002", Silent(3.0)),
        ):
            journal.write(event)
        found = rows.read(ORIGIN_S)
        told = [(row["at_s"], row["event"], row["number"], row["nodes"]) for row in found["platform_events"]]
        assert told == [
            (102.0, "submitted", 2, ""),
            (103.0, "held", 1, ""),
            (104.0, "released", 1, ""),
            (105.0, "asked", 2, "z0h001"),
            (106.0, "node_out", 0, "z0h002"),
        ]
        assert [(row["number"], row["user"]) for row in found["platform_jobs"]] == [(2, "ada")]
        assert rows.read(ORIGIN_S) == {}
