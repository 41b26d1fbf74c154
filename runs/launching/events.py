"""What a run reports while it goes on, and how that travels from the run's own namespaces or guest: lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from fabric.errors import (
    ConfigError,
    ControllerError,
    EmulationError,
    FabricError,
    ResultError,
    TrafficError,
    UsageError,
)
from fabric.world.virtual.watch import GuestTime


@dataclass(frozen=True)
class Note:
    """What is done now, in words."""

    text: str


@dataclass(frozen=True)
class PhaseProgress:
    """How much of a phase has been played, as a fraction."""

    title: str
    fraction: float


@dataclass(frozen=True)
class VerdictSoFar:
    """The verdict on the phases that have ended, told to those who watch a run."""

    status: str
    reasons: tuple[str, ...]
    phases: int


@dataclass(frozen=True)
class NewRows:
    """Rows of a table, told to those who watch a run: of a phase that plays, as they come; or, if it has ended, all.
    Times are seconds of the run."""

    phase: str
    table: str
    rows: tuple[Mapping[str, Any], ...]
    is_whole: bool = False


@dataclass(frozen=True)
class RunFailure:
    """Why a run failed; ``kind`` is the error's class; ``source`` and ``faults``: of a wrong config, its own."""

    kind: str
    text: str
    source: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """Everything that was measured is in a directory: the last event of a run's process that did not fail."""

    directory: str


Event = Note | PhaseProgress | VerdictSoFar | NewRows | GuestTime | Recorded | RunFailure
Report = Callable[[Event], None]
"""Is called with each event, in order. May raise: that ends the run."""

_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (Note, PhaseProgress, VerdictSoFar, NewRows, GuestTime, Recorded, RunFailure)
}
_ERRORS = {kind.__name__: kind for kind in (ControllerError, EmulationError, ResultError, TrafficError, UsageError)}


def encoded(event: Event) -> bytes:
    """Return an event as a line."""
    return json.dumps([type(event).__name__, asdict(event)]).encode() + b"\n"


def decoded(line: bytes) -> Event:
    """Return the event that a line holds. Raises EmulationError for a line that is none."""
    try:
        name, values = json.loads(line)
        given: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
        return _KINDS[name](**given)
    except (ValueError, KeyError, TypeError) as error:
        raise EmulationError(f"a run reported {line[:200]!r}, which is not an event; another version's?") from error


def failure_of(error: FabricError) -> RunFailure:
    """Return an error as an event."""
    of_config = (error.source, error.faults) if isinstance(error, ConfigError) else ()
    return RunFailure(type(error).__name__, str(error), *of_config)


def error_of(failure: RunFailure) -> FabricError:
    """Return the error that a run failed with."""
    if failure.faults:
        return ConfigError(failure.source, failure.faults)
    return _ERRORS.get(failure.kind, EmulationError)(failure.text)


class EventLines:
    """Writes events to a stream, and passes on lines of events of others: whole lines only, so that none is torn."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._rest = b""

    def report(self, event: Event) -> None:
        """Write an event."""
        self._stream.write(encoded(event))
        self._stream.flush()

    def write(self, text: bytes) -> int:
        """Pass on the lines that are whole by now."""
        lines, newline, self._rest = (self._rest + text).rpartition(b"\n")
        self._stream.write(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Let the reader have all that was passed on."""
        self._stream.flush()
