"""What became of the jobs that users gave a platform: lives, waits, nodes held and out, by the rows of its tables.

``platform_events`` has a row per event, ``platform_jobs`` one per job. Only jobs of kind ``platform`` write them; a
result from before the second was written has no users and priorities. Times are those of the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fabric.records.packed import names_in, number_in
from fabric.results import Phase

if TYPE_CHECKING:
    import pandas as pd

EVENTS, JOBS = TABLES = ("platform_events", "platform_jobs")
Row = Mapping[str, Any]
_ENDS = ("left", "finished")
_TOLD = ("suspend", "restart", "cancel", "timeout", "fail")
_OUT, _BACK = "node_out", "node_back"


@dataclass(frozen=True)
class Life:
    """A time for which a job had nodes. ``end``: how it ended: ``finished``, what it was told (``suspend``,
    ``restart``, ``cancel``, ``timeout``, ``fail``), or empty, if it goes on; ``step``: the one that its last
    checkpoint has."""

    number: int
    nodes: tuple[str, ...]
    started_s: float
    ended_s: float
    why: str
    end: str = ""
    end_why: str = ""
    told_s: float | None = None
    step: int | None = None


@dataclass(frozen=True)
class UsersJob:
    """A job, from when it was submitted. ``waits``: from when to when it had no nodes and wanted some."""

    platform: str
    number: int
    name: str
    user: str
    priority: str
    asks: int
    submitted_s: float
    lives: tuple[Life, ...]
    waits: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class NodeOut:
    """A node was not to be used; ``back``: why it may be used again, empty if it may not yet."""

    node: str
    from_s: float
    until_s: float
    why: str
    back: str = ""


@dataclass(frozen=True)
class Held:
    """A node had a life of a job, or was out (no ``job``). ``end``: how that ended; empty: it goes on."""

    node: str
    job: str
    from_s: float
    until_s: float
    end: str


@dataclass(frozen=True)
class UsersJobs:
    """All of a platform in a phase. ``events``: its rows, in their order; other events than those known here are in it,
    too."""

    platform: str
    phase: str
    jobs: tuple[UsersJob, ...]
    out: tuple[NodeOut, ...]
    events: tuple[Row, ...]

    def held(self) -> list[Held]:
        """Return who had each node when, by node and time."""
        found = [
            Held(node, job.name, life.started_s, life.ended_s, life.end)
            for job in self.jobs
            for life in job.lives
            for node in life.nodes
        ]
        found += [Held(one.node, "", one.from_s, one.until_s, _BACK if one.back else "") for one in self.out]
        return sorted(found, key=lambda one: (one.node, one.from_s))

    def name_of(self, number: int) -> str:
        """Return what the job of a number is called."""
        return next((job.name for job in self.jobs if job.number == number), f"job {number}")


class Tables(Protocol):
    """What is read of a result, or of a run that plays (:mod:`fabric.report.view.live_tables`)."""

    @property
    def phases(self) -> list[Phase]:
        """Its phases."""

    @property
    def tables(self) -> Collection[str]:
        """The names of its tables."""

    def table(self, name: str) -> pd.DataFrame:
        """Return a table."""


def users_jobs_of(result: Tables, since_load: bool = False) -> list[UsersJobs]:
    """Return those of each platform of a run, phase by phase; none without one. ``since_load``: times count from when
    the load of their phase began, instead of when the run did."""
    if EVENTS not in result.tables:
        return []
    events, jobs = result.table(EVENTS), result.table(JOBS) if JOBS in result.tables else None
    found = []
    phases = {phase.name: phase for phase in result.phases}
    for (name, platform), rows in events.groupby(["phase", "job"], observed=True, sort=False):
        phase = phases[str(name)]
        own = [] if jobs is None else _rows(jobs[(jobs["phase"] == name) & (jobs["job"] == platform)])
        origin_s = phase.load_s[0] if since_load else 0.0
        moved = _rows(rows.assign(at_s=rows["at_s"] - origin_s))
        found.append(users_jobs(moved, own, phase.ended_s - origin_s, (phase.name, str(platform))))
    return found


def _rows(frame: Any) -> list[Row]:
    texts = [name for name in frame.columns if str(frame[name].dtype) == "category"]
    rows: list[Row] = frame.astype(dict.fromkeys(texts, str)).to_dict("records")
    return rows


def users_jobs(events: Sequence[Row], jobs: Sequence[Row], until_s: float, of: tuple[str, str] = ("", "")) -> UsersJobs:
    """Return what events of a phase say, with what is known of each job; what goes on ends at ``until_s``. ``of``: the
    phase and the platform."""
    known = {int(row["number"]): row for row in jobs}
    by_job: dict[int, list[Row]] = defaultdict(list)
    for row in events:
        by_job[int(row["number"])].append(row)
    submitted = [row for row in events if row["event"] == "submitted"]
    of_jobs = (
        _job(of[1], row, known.get(int(row["number"]), {}), by_job[int(row["number"])], until_s) for row in submitted
    )
    return UsersJobs(of[1], of[0], tuple(of_jobs), tuple(_out(events, until_s)), tuple(events))


def _job(platform: str, row: Row, known: Row, own: Sequence[Row], until_s: float) -> UsersJob:
    number, at_s = int(row["number"]), float(row["at_s"])
    lives = tuple(_lives(own, until_s))
    return UsersJob(
        platform,
        number,
        str(row["why"]),
        str(known.get("user", "")),
        str(known.get("priority", "")),
        int(known.get("asks", 0)),
        at_s,
        lives,
        tuple(_waits(own, at_s, lives, until_s)),
    )


def _lives(own: Sequence[Row], until_s: float) -> Iterator[Life]:
    for row in own:
        if row["event"] == "started":
            of_life = [one for one in own if one["life"] == row["life"] and one["at_s"] >= row["at_s"]]
            told = next((one for one in of_life if one["event"] in _TOLD), None)
            end = next((one for one in of_life if one["event"] in _ENDS), None)
            nodes = names_in(row["nodes"])
            life, started_s, why = int(row["life"]), float(row["at_s"]), str(row["why"])
            if end is None:
                yield Life(life, nodes, started_s, until_s, why)
                continue
            how = str(told["event"] if told is not None and end["event"] == "left" else end["event"])
            yield Life(
                life,
                nodes,
                started_s,
                float(end["at_s"]),
                why,
                how,
                str(told["why"] if told is not None else end["why"]),
                None if told is None else float(told["at_s"]),
                number_in(end["step"]),
            )


def _waits(own: Sequence[Row], at_s: float, lives: Sequence[Life], until_s: float) -> Iterator[tuple[float, float]]:
    """Yield when a job waited: from its submission or a life's end until the next life began, or it ended without."""
    from_s: float | None = at_s
    for life in lives:
        if from_s is not None:
            yield from_s, life.started_s
        from_s = life.ended_s if life.end in ("suspend", "restart") else None
    if from_s is not None and from_s < until_s:
        ends = [float(one["at_s"]) for one in own if one["event"] in _ENDS and one["at_s"] > from_s]
        yield from_s, min([*ends, until_s])


def _out(events: Sequence[Row], until_s: float) -> Iterator[NodeOut]:
    """Yield when nodes were out; one that is out already, such as after a repair that did not help, stays so."""
    begun: dict[str, Row] = {}
    for row in events:
        node = str(row["nodes"])
        if row["event"] == _OUT:
            begun.setdefault(node, row)
        elif row["event"] == _BACK and node in begun:
            first = begun.pop(node)
            yield NodeOut(node, float(first["at_s"]), float(row["at_s"]), str(first["why"]), str(row["why"]) or "back")
    for node, row in begun.items():
        yield NodeOut(node, float(row["at_s"]), until_s, str(row["why"]))
