"""The streams of ranks that play graphs of work: which operation each ran when, and how long it had waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from fabric.results import Result

TABLE = "work_operations"
"""The table of operations, which only jobs of work write."""
MOST_ON_PAGE = 20_000
"""Operations that a page has; more would make it slow to load."""


class Played(NamedTuple):
    """An operation as it was played. ``ready_s``: when it waited for its stream at most."""

    label: str
    kind: str
    partner: str
    size_bytes: int
    ready_s: float
    started_s: float
    ended_s: float


@dataclass(frozen=True)
class StreamTrack:
    """What one stream of a rank played, by start. ``stream`` is empty for operations of none, which may overlap."""

    job: str
    rank: int
    host: str
    stream: str
    played: tuple[Played, ...]

    @property
    def name(self) -> str:
        """Return what the track is called."""
        return f"rank {self.rank} {self.stream or 'without a stream'}"


def streams_of(result: Result) -> list[StreamTrack]:
    """Return the tracks of all recorded operations, by job and rank; none if the run recorded none."""
    if TABLE not in result.tables:
        return []
    rows = result.table(TABLE).dropna(subset=["ended_s"]).sort_values("started_s", kind="stable")
    rows = rows.assign(**{name: rows[name].astype(object).fillna("") for name in ("stream", "name", "partner")})
    tracks = []
    for _, found in rows.groupby(["job", "rank", "stream"], observed=True):
        first = found.iloc[0]
        names = str(first["job"]), int(first["rank"]), str(first["host"]), str(first["stream"])
        tracks.append(StreamTrack(*names, tuple(_played(found))))
    return sorted(tracks, key=lambda track: (track.job, track.rank, not track.stream))


def _played(rows: pd.DataFrame) -> Iterator[Played]:
    for row in rows.to_dict("records"):
        kind, partner = str(row["kind"]), str(row["partner"])
        times = (float(row[name]) for name in ("ready_s", "started_s", "ended_s"))
        yield Played(str(row["name"]) or kind, kind, partner, int(row["size_bytes"]), *times)


def streams_on_page(tracks: list[StreamTrack]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return tracks as JSON values, of the first ranks as far as a page has room, and a note on what is left out."""
    shown: list[dict[str, Any]] = []
    room = MOST_ON_PAGE
    for track in tracks:
        if len(track.played) > room:
            break
        room -= len(track.played)
        kinds = [[one.label, one.kind, one.ready_s, one.started_s, one.ended_s] for one in track.played]
        shown.append({"job": track.job, "name": track.name, "host": track.host, "played": kinds})
    left = len(tracks) - len(shown)
    notes = [f"{left} of {len(tracks)} streams of ranks are left out; fabric timeline has all"] if left else []
    return shown, notes
