"""What carries out failures: the protocol of injectors, and the one that brings targets into their states in threads.

One clock plays a schedule: every injector counts from the same ``time.monotonic()``. Links have a process of their own
(:mod:`fabric.failures.injector`), since cuts must come on time and reach into namespaces; what happens to programs and
disks is done in threads of the run, since only the run has their jobs' handles.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fabric.errors import TrafficError
from fabric.failures.report import Change, FaultReport
from fabric.failures.schedule import FailureEvent, FailureSchedule, State

_END_TIMEOUT_S = 120.0
"""How long what is being done to a target may take once a schedule is to end: a storage job that halts answers late."""
_LOOK_S = 0.05
"""How often it is tried again to bring what was not there into its state: a sampling period."""


class NotThereError(TrafficError):
    """What is to fail is not there now, as a program that was killed. It may be back."""


class Injector(Protocol):
    """Carries out what happens to targets of one kind. Each schedule takes :meth:`prepare`, :meth:`play`,
    :meth:`restore` and :meth:`release`, in this order. All but :meth:`look_again` raise FabricErrors."""

    def prepare(self, schedule: FailureSchedule) -> None:
        """Get everything ready, while nothing is sent."""

    def play(self, started: float) -> None:
        """Let the schedule begin at ``started`` (``time.monotonic()``); returns at once."""

    def carry_out(self, schedule: FailureSchedule) -> None:
        """Bring targets into states at once, by hand, while a schedule without events of its own plays; those who hear
        of changes hear of these. Raises NotThereError for a target that is not there, before anything is done."""

    def look_again(self) -> None:
        """Know that a target may be back that was not there."""

    def restore(self) -> FaultReport:
        """End the schedule wherever it is, make whole what can be, and return what happened."""

    def release(self) -> None:
        """Take away what :meth:`prepare` made, once nothing is sent and all is counted."""

    def abandon(self) -> None:
        """Do what is left of both, wherever a schedule is."""


@dataclass(frozen=True)
class Part:
    """What of a target one job has, by its own name; it comes into its states by itself. ``is_there``: whether it was
    when the schedule was taken, or is named by it."""

    target: Hashable
    job: str = ""
    is_there: bool = field(default=True, compare=False)


Became = Callable[[Part, State], None]


def _nobody(part: Part, state: State) -> None:
    """Be told of a change, and do nothing."""


class Effects(ABC):
    """How targets of one kind come into a state. ``became`` is told of each part that comes into another by itself;
    ``withdraw`` lets a part that was not there stay in a state once it is, not come into what was asked for meanwhile.

    The line is drawn at one part and two states: when something is due, what overlaps, what is told and what is made
    whole in the end is the same for all targets (:class:`ThreadInjector`).

    Example: fans that stand still, where ``Fan`` names a target and ``FanState`` is a
    :class:`fabric.failures.schedule.State`::

        class Fans(Effects):
            def __init__(self, turning):
                super().__init__()
                self.turning = turning

            def bring(self, part, before, state):
                self.turning[part.target] = state.turns
                return ""

            def mended(self, state):
                return FanState()
    """

    def __init__(self) -> None:
        self.became: Became = _nobody
        self.withdraw: Became = _nobody

    def parts(self, target: Any) -> Iterable[Part]:
        """Return the parts of a target; of one that no job has, itself."""
        return (Part(target),)

    @abstractmethod
    def bring(self, part: Part, before: Any, state: Any) -> str:
        """Bring a part from one state into another; return what else there is to say of it. Threads do so to several
        parts at once. Raises NotThereError, FabricError."""

    @abstractmethod
    def mended(self, state: Any) -> State | None:
        """Return the state of a part after its schedule has ended; None if it stays as it is."""


@dataclass(frozen=True)
class _Due:
    """A state that a part is due to come into, and until when; None: the one that mends it."""

    state: State | None
    due_s: float
    due_end_s: float = math.inf
    causes: frozenset[int] = frozenset()
    asked_s: float = math.nan
    why: str = ""


class _Lane:
    """A part, the state that it is in, what is to be done to it in order, and what was, but did not find it."""

    def __init__(self, part: Part, whole: State) -> None:
        self.part, self.now = part, whole
        self.waiting: deque[_Due] = deque()
        self.owed: _Due | None = None
        self.causes: frozenset[int] = frozenset()
        """Those of the last change."""
        self.pending: frozenset[int] = frozenset()
        """Those of what has found it in its state since."""
        self.is_busy = False


class ThreadInjector:
    """An :class:`Injector` that brings targets into their states in threads of this process, one for each part that
    anything is being done to: one that does not answer delays no other. What is not there is taken over once it is.
    ``hit`` hears of each change at once."""

    def __init__(self, effects: Effects, hit: Callable[[Change], None] = lambda change: None) -> None:
        self._effects = effects
        self._hit = hit
        self._schedule = FailureSchedule()
        self._lanes: dict[Part, _Lane] = {}
        self._changes: list[Change] = []
        self._missed: list[Change] = []
        self._turn = threading.Condition()
        """Held where lanes are looked at or changed."""
        self._wanted: dict[Part, dict[Hashable, State]] = defaultdict(dict)
        """By hand: the state of each target that a part is of."""
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def prepare(self, schedule: FailureSchedule) -> None:
        """Take a schedule."""
        parts = {target: tuple(self._effects.parts(target)) for target in schedule.targets}
        self._schedule = schedule.of_parts(parts.__getitem__)
        there = {part for found in parts.values() for part in found if part.is_there}
        self._lanes = {
            (part := _part(event)): _Lane(replace(part, is_there=part in there), event.state.composed([]))
            for event in self._schedule.events
        }
        self._changes, self._missed, self._error, self._is_over = [], [], None, False
        self._wanted.clear()
        self._effects.became = self._became

    def play(self, started: float) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True, name="failures")
        self._thread.start()

    def carry_out(self, schedule: FailureSchedule) -> None:
        """Bring targets into states at once. Raises NotThereError."""
        parts = {target: tuple(self._effects.parts(target)) for target in schedule.targets}
        for target, found in parts.items():
            if not any(part.is_there for part in found):
                raise NotThereError(f"{target}: nothing that runs here has it")
        now_s = time.monotonic()
        with self._turn:
            for event in schedule.events:
                for part in parts[event.target]:
                    wanted = self._wanted[part]
                    wanted[event.target] = event.state
                    lane = self._lanes.setdefault(part, _Lane(part, event.state.composed([])))
                    state = event.state.composed(list(wanted.values()))
                    self._hand(lane, _Due(state, now_s, causes=frozenset(event.causes)))

    def look_again(self) -> None:
        """Try again what did not find its target, which may be back."""
        with self._turn:
            for lane in self._lanes.values():
                if lane.owed is not None and not lane.is_busy:
                    self._hand(lane, lane.owed)

    def _run(self, started: float) -> None:
        ends = self._schedule.changes_s
        for event in self._schedule.events:
            due_s = started + event.at_s
            if self._is_over_by(due_s):
                return
            due_end_s = started + ends[event.target, event.at_s]
            with self._turn:
                due = _Due(event.state, due_s, due_end_s, frozenset(event.causes))
                self._hand(self._lanes[_part(event)], due)
        self._is_over_by(math.inf)

    def _is_over_by(self, until_s: float) -> bool:
        """Wait for a time, and look now and then for what was not there; return early, and True, if it is over."""
        look_s = math.inf
        with self._turn:
            while not self._is_over:
                now = time.monotonic()
                if until_s <= now:
                    return False
                if now >= look_s:
                    self.look_again()
                    look_s = now + _LOOK_S
                is_owing = any(lane.owed is not None for lane in self._lanes.values())
                look_s = min(look_s, now + _LOOK_S) if is_owing else math.inf
                wait_s = min(until_s, look_s) - now
                self._turn.wait(None if math.isinf(wait_s) else wait_s)
        return True

    def _hand(self, lane: _Lane, due: _Due) -> None:
        """Let a lane's thread do something after what it does already; the turn is held."""
        lane.waiting.append(due)
        if not lane.is_busy:
            lane.is_busy = True
            name = f"failures of {lane.part.target}"
            threading.Thread(target=self._work, args=(lane,), daemon=True, name=name).start()

    def _work(self, lane: _Lane) -> None:
        while True:
            with self._turn:
                if not lane.waiting:
                    lane.is_busy = False
                    self._turn.notify_all()
                    return
                due = lane.waiting.popleft()
            try:
                self._carry_out(lane, due)
            except Exception as error:  # Whatever it is, restore() raises it where the run sees it.
                with self._turn:
                    self._error, self._is_over = self._error or error, True
                    self._turn.notify_all()

    def _carry_out(self, lane: _Lane, due: _Due) -> None:
        state = self._effects.mended(lane.now) if due.state is None else due.state
        with self._turn:
            is_withdrawn = lane.owed is not None and lane.owed.state != state
            if is_withdrawn:
                self._miss(lane)
            if state == lane.now and state != state.composed([]):
                lane.pending |= due.causes
        if state is None or state == lane.now:
            if is_withdrawn:
                self._effects.withdraw(lane.part, lane.now)
            return
        first = lane.owed or replace(due, state=state, asked_s=time.monotonic())
        try:
            detail = self._effects.bring(lane.part, lane.now, state)
        except NotThereError as error:
            with self._turn:
                if due.state is not None:  # Else there is nothing to mend.
                    lane.owed = replace(first, causes=first.causes | due.causes, why=str(error))
                    self._turn.notify_all()
            return
        self._note(lane, state, first, detail)

    def _note(self, lane: _Lane, state: State, due: _Due, detail: str) -> None:
        """Keep a change, and tell of it. What mends a part, or what it does by itself, has the causes of the last."""
        part, now = lane.part, time.monotonic()
        with self._turn:
            lane.causes = lane.pending | (due.causes or lane.causes)
            lane.pending = frozenset()
            causes, times = tuple(sorted(lane.causes)), (due.due_s, due.asked_s, now)
            change = Change(part.target, state, *times, causes, detail, _jobs(part), due.due_end_s)
            self._changes.append(change)
            lane.now, lane.owed = state, None
        self._hit(change)

    def _miss(self, lane: _Lane) -> None:
        """Keep what is owed as never done; the turn is held."""
        owed, part, lane.owed = lane.owed, lane.part, None
        if owed is None or owed.state is None or not part.is_there:
            return  # What one of several jobs does not have is missed by nobody.
        times = (owed.due_s, owed.asked_s, math.nan)
        causes = tuple(sorted(owed.causes))
        self._missed.append(Change(part.target, owed.state, *times, causes, "", _jobs(part), owed.due_end_s, owed.why))

    def _add_pending(self, lane: _Lane) -> None:
        """Let the last change be of what has found its target so, too; the turn is held."""
        if not lane.pending:
            return
        of = lane.part.target, _jobs(lane.part)
        last = max((at for at, one in enumerate(self._changes) if (one.target, one.jobs) == of), default=None)
        if last is not None:
            causes = tuple(sorted(lane.causes | lane.pending))
            self._changes[last] = replace(self._changes[last], causes=causes)

    def _became(self, part: Part, state: State) -> None:
        """Know that a part has come into another state by itself."""
        with self._turn:
            lane = self._lanes.get(part)
        if lane is not None and lane.now != state:
            now = time.monotonic()
            self._note(lane, state, _Due(state, now, asked_s=now), "by itself")

    def restore(self) -> FaultReport:
        """End it. Raises FabricError if something could not be done, TrafficError if it is not done in time."""
        with self._turn:
            self._is_over = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_S)
            self._thread = None
        ended_s = time.monotonic()
        with self._turn:
            for lane in self._lanes.values():
                self._hand(lane, _Due(None, ended_s))
            self._turn.wait_for(lambda: not self._busy(), _END_TIMEOUT_S)
            if waiting := self._busy():
                words = ", ".join(waiting[:4]) + (f" and {len(waiting) - 4} more" if len(waiting) > 4 else "")
                raise TrafficError(f"failures: waited {_END_TIMEOUT_S:g} s for {words} to be as asked for: no answer")
            for lane in self._lanes.values():
                self._miss(lane)
                self._add_pending(lane)
        if self._error is not None:
            raise self._error
        changes, missed = (tuple(one.until(ended_s) for one in found) for found in (self._changes, self._missed))
        return FaultReport(changes, missed=missed)

    def _busy(self) -> list[str]:
        return [str(lane.part.target) for lane in self._lanes.values() if lane.is_busy]

    def release(self) -> None:
        """There is nothing to take away."""

    def abandon(self) -> None:
        """End it."""
        if self._thread is not None:
            self.restore()


def _part(event: FailureEvent) -> Part:
    assert isinstance(event.target, Part), "the schedule is of parts"
    return event.target


def _jobs(part: Part) -> tuple[str, ...]:
    return (part.job,) if part.job else ()
