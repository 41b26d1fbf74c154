"""Failures by hand: what users let fail of a fabric that is up, as lines of ``failures`` without ``at``. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from fabric.errors import ConfigError
from fabric.failures.config import contradictions, failure_line
from fabric.failures.line import FailureConfig
from fabric.failures.listing import LINES
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.identity import Role
from fabric.model.network import Fabric, names_like

TARGET = "target"
"""The key of a line that names its target without saying what it is."""
_TARGETS = tuple(key for line in LINES for key in line.targets)
"""The keys of lines that name targets."""
_TIMES = frozenset(("at", "repeat", "jitter"))
_NOW_S = 0.0


@dataclass(frozen=True)
class ByHand:
    """A failure by hand, since a time: the key of its target's kind, the target's name, and what it does to what.
    ``until_s``: when it is to be healed; ``math.inf``: when its user says so."""

    key: str
    name: str
    since_s: float
    failures: tuple[Failure, ...]
    until_s: float = math.inf

    @property
    def state(self) -> str:
        """What it does, in words."""
        return "; ".join(dict.fromkeys(str(one.state) for one in self.failures))

    @property
    def hits(self) -> tuple[Hashable, ...]:
        """What it hits."""
        return tuple(dict.fromkeys(one.target for one in self.failures))


class FailuresByHand:
    """What fails by hand on a fabric. Each order returns what changes at once, as events of a schedule: targets that
    several failures hit are as these come to, as of a config's."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._under_way: list[ByHand] = []
        self._count = 0

    @property
    def under_way(self) -> tuple[ByHand, ...]:
        """What fails now, in the order in which it began."""
        return tuple(self._under_way)

    def fail(self, keys: Mapping[str, Any], now_s: float) -> tuple[ByHand, FailureSchedule]:
        """Let a target fail from now on. Raises ConfigError with every fault of the line, and if the target fails by
        hand already, or another failure contradicts."""
        key, name = self._named(keys)
        if any((one.key, one.name) == (key, name) for one in self._under_way):
            raise ConfigError("fail", [f"{name}: fails by hand already; heal it first: fabric cluster heal {name}"])
        line = _line({**{one: value for one, value in keys.items() if one != TARGET}, key: name})
        until_s = math.inf if line.duration is None else now_s + line.duration
        new = ByHand(key, name, now_s, tuple(self._failures_of(line, now_s)), until_s)
        if faults := list(contradictions((one.name, part) for one in (*self._under_way, new) for part in one.failures)):
            raise ConfigError("fail", faults)
        self._under_way.append(new)
        self._count += 1
        return new, self._changed(self._under_way, now_s)

    def heal(self, target: str, now_s: float) -> tuple[tuple[ByHand, ...], FailureSchedule]:
        """End what fails by hand at a target; empty: everything. Raises ConfigError if nothing does."""
        healed = tuple(one for one in self._under_way if not target or self._is_of(one, target))
        if not healed:
            raise ConfigError("heal", [self._not_failing(target)])
        return healed, self._ended(healed, now_s)

    def end(self, due: ByHand, now_s: float) -> tuple[tuple[ByHand, ...], FailureSchedule]:
        """End a failure whose time is over, unless it has been healed."""
        healed = tuple(one for one in self._under_way if one is due)
        return healed, self._ended(healed, now_s)

    def forget(self, one: ByHand) -> None:
        """Take back a failure that could not be carried out."""
        self._under_way.remove(one)

    def _ended(self, healed: Sequence[ByHand], now_s: float) -> FailureSchedule:
        ended = [
            replace(one, failures=_until(one.failures, now_s)) if one in healed else one for one in self._under_way
        ]
        self._under_way = [one for one in self._under_way if one not in healed]
        return self._changed(ended, now_s)

    def _changed(self, found: Sequence[ByHand], now_s: float) -> FailureSchedule:
        schedule = FailureSchedule.of(part for one in found for part in one.failures)
        return FailureSchedule(tuple(event for event in schedule.events if event.at_s == now_s))

    def _failures_of(self, line: FailureConfig, now_s: float) -> Iterator[Failure]:
        try:
            for target, from_s, until_s, state in line.stretches(self._fabric, now_s, math.inf):
                if from_s > now_s:
                    raise ValueError(f"a failure by hand leaves nothing {state} behind; let that fail by itself")
                yield Failure(target, now_s, until_s, state, (self._count,))
        except ValueError as error:
            raise ConfigError("fail", [str(error)]) from error

    # Names ----------------------------------------------------------------------------------------------------------

    def _named(self, keys: Mapping[str, Any]) -> tuple[str, str]:
        """Return the key that names the target of a line, and the name."""
        if times := sorted(_TIMES & keys.keys()):
            words = "it begins now, once"
            raise ConfigError("fail", [f"{', '.join(times)}: not of a failure by hand: {words}; leave it out"])
        if TARGET not in keys:
            given = [key for key in _TARGETS if key in keys]
            if len(given) != 1:
                raise ConfigError("fail", ["no target; give one, e.g. z0l00-z0s01, z0s00 or z0h003"])
            return given[0], str(keys[given[0]])
        return _kind_of(str(keys[TARGET]), self._fabric)

    def _is_of(self, one: ByHand, target: str) -> bool:
        """Return whether a target is that of a failure: by its name, or since it is the same link by another."""
        try:
            key, name = _kind_of(target, self._fabric)
        except ConfigError:
            return one.name == target
        if (key, name) == (one.key, one.name) or one.name == name:
            return True
        try:
            hits = [part.target for part in self._failures_of(_line({key: name}), _NOW_S)]
        except ConfigError:  # Its kind says more than what fails.
            return False
        return len(hits) == 1 and tuple(hits) == one.hits

    def _not_failing(self, target: str) -> str:
        if not self._under_way:
            return f"{target or 'nothing'}: nothing fails by hand, so there is nothing to heal"
        known = ", ".join(one.name for one in self._under_way)
        try:
            _kind_of(target, self._fabric)
        except ConfigError as error:
            return f"{error.faults[0]}; what fails by hand: {known}"
        return f"{target}: does not fail by hand; what does: {known}"


def _until(failures: Sequence[Failure], ended_s: float) -> tuple[Failure, ...]:
    return tuple(replace(one, ended_s=ended_s) for one in failures)


def _line(keys: Mapping[str, Any]) -> FailureConfig:
    """Return the line of some keys, which begins now. Raises ConfigError with every fault."""
    try:
        return failure_line({**keys, "at": _NOW_S})
    except ValidationError as error:
        raise ConfigError("fail", [_fault(dict(one)) for one in error.errors()]) from error


def _fault(error: Mapping[str, Any]) -> str:
    where = [str(part) for part in error["loc"] if not str(part).endswith("Config")]
    key = where[-1] if where else ""
    words = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        words = "is not a key of such a failure"
    return f"{key}: {words}" if key else words


def _kind_of(target: str, fabric: Fabric) -> tuple[str, str]:
    """Return the key of a line for a target whose kind is not said, or said as ``disk=st001/2``, and its name. Raises
    ConfigError for one that the fabric does not have."""
    said, equals, name = target.partition("=")
    if equals:
        if said not in _TARGETS:
            raise ConfigError("fail", [f"{said}: is not a kind of target; use {', '.join(_TARGETS)}"])
        return said, name
    if "/" in target:
        return "disk", target
    if ":" in target:
        return "link", target
    node = fabric.node_named(target)
    if node is not None:
        if node in fabric.switches:
            return "switch", target
        return ("storage" if node.role is Role.STORAGE else "host"), target
    if "-" in target:
        return "link", target
    raise ConfigError("fail", [f"{target}: {fabric.name} has no such node; {names_like(target, fabric)}"])
