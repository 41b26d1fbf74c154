"""Failures as config: what fails, when, for how long, how often and how badly.

::

    failures:
      - {link: z0l00-z0s01, at: 2 s, for: 200 ms}                       a cut; without "for" until the end
      - {switch: z0s00, at: 5 s, for: 1 s, repeat: {every: 3 s, times: 4}, jitter: 100 ms}
      - {host: z0h003, at: 1 s, rate: 0.5}                              all its NICs at half their rate
      - {link: "z0l00:3", at: 1 s, loss: 0.01}                          one frame in a hundred lost, each direction
      - {nic: "st001:1", at: 1 s, for: 1 s}                             one NIC of a host, by its number
      - {silent: z0h003, at: 1 s, for: 5 s, then: dead}                 its NICs are cut and its programs stopped
      - {process: st001, job: storage, at: 2 s, effect: kill}           a job's programs on a host; or stop, or slow
      - {disk: st001/2, at: 2 s, for: 3 s, effect: slow, factor: 10}    a disk of a service; or error, or rot
      - {gpu: z0h003/2, at: 2 s, xid: 79}                               an error of a GPU, as its driver tells it
      - {gpu: z0h003/2, at: 2 s, effect: wrong}                         it computes wrong values; nothing tells

A link is named by one of its ends (``z0l00:3``) or by its nodes, with the number of the one meant if several join them
(``z0l00-z0s01#2``). A switch or host that fails keeps its memory: only its links are cut.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError

from fabric.errors import ConfigError
from fabric.failures.kinds.process import KILLED, ProgramTarget
from fabric.failures.line import FailureConfig, targets_fault
from fabric.failures.listing import LINES
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.network import Fabric, Link, Tier
from fabric.units import format_time


class AnyLine:
    """What a line of ``failures`` may be: of one of several kinds, by the key that names its target."""

    def __init__(self, lines: Sequence[type[FailureConfig]]) -> None:
        self._of_target = {key: line for line in lines for key in line.targets}
        self._of_key = {_written(line, name): line for line in lines for name in line.model_fields}
        choice: Any = reduce(or_, (Annotated[line, Tag(line.__name__)] for line in lines))
        self.type: Any = Annotated[choice, Discriminator(self._class), WrapValidator(self._read)]
        """As a key of a config has it."""

    def _class(self, value: Any) -> str:
        """Return the name of a line's class, which is that of it in pydantic's locations, too."""
        return (type(value) if isinstance(value, FailureConfig) else self._of_target[self._targets(value)[0]]).__name__

    def _targets(self, value: Mapping[str, Any]) -> list[str]:
        return [key for key in self._of_target if value.get(key) is not None]

    def _read(self, value: Any, handler: ValidatorFunctionWrapHandler) -> FailureConfig:
        """Return the line that is written so, by pydantic's ``handler``. Raises ValueError and ValidationError."""
        if not isinstance(value, FailureConfig):
            value = self._of_one_kind(value, handler)
        line: FailureConfig = handler(value)
        return line

    def _of_one_kind(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Mapping[str, Any]:
        """Return a line without those keys of other kinds that say nothing. Raises ValidationError for the others,
        together with all other faults, ValueError if it does not name one target."""
        if not isinstance(value, Mapping):
            raise ValueError(f"is {value!r}; write a mapping such as {{link: z0l00:3, at: 2 s}}")
        targets = self._targets(value)
        if unknown := [] if targets else [key for key in value if key not in self._of_key]:
            faults = [InitErrorDetails(type="extra_forbidden", loc=(key,), input=value[key]) for key in unknown]
            raise ValidationError.from_exception_data("failure", faults)
        if len(targets) != 1:
            raise ValueError(targets_fault(targets, self._of_target))
        mine = self._of_target[targets[0]]
        own = {_written(mine, name) for name in mine.model_fields}
        line = {key: one for key, one in value.items() if key in own or key not in self._of_key}
        others = [key for key in value.keys() - line.keys() if self._says_something(key, value[key])]
        if others:
            words = f"not of a {targets[0]}; it has {', '.join(mine.own_keys()) or 'no such key'}"
            faults = [_detail((key,), "value_error", words, value[key]) for key in sorted(others)]
            raise ValidationError.from_exception_data("failure", [*faults, *_faults_of(line, handler)])
        return line

    def _says_something(self, key: str, value: Any) -> bool:
        return value is not None and bool(value != self._of_key[key].model_fields[key].get_default())


def _written(line: type[FailureConfig], name: str) -> str:
    """Return a field's key in files."""
    return line.model_fields[name].alias or name


def _faults_of(line: Mapping[str, Any], handler: ValidatorFunctionWrapHandler) -> Iterator[InitErrorDetails]:
    """Yield what is wrong with a line, as pydantic takes it for a part of other faults."""
    try:
        handler(line)
    except ValidationError as error:
        for one in error.errors():
            yield _detail(one["loc"], one["type"], one["msg"], one["input"])


def _detail(location: tuple[int | str, ...], kind: Any, words: str, value: Any) -> InitErrorDetails:
    is_known = kind in ("missing", "extra_forbidden")
    error = kind if is_known else PydanticCustomError(kind, "{words}", {"words": words})
    return InitErrorDetails(type=error, loc=location, input=value)


ANY_LINE = AnyLine(LINES)
if TYPE_CHECKING:
    FailureLine = FailureConfig
else:
    FailureLine = ANY_LINE.type


def failure_line(data: Mapping[str, Any]) -> FailureConfig:
    """Return a line that is written so. Raises pydantic's ValidationError, which is a ValueError."""
    return _READER.validate_python(data)


_READER: TypeAdapter[FailureConfig] = TypeAdapter(FailureLine)


# What lines come to --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Placed:
    """A failure, and the place in the config that it comes from."""

    key: str
    failure: Failure


def schedule_failures(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> FailureSchedule:
    """Return what a ``failures`` list comes to on a fabric. Raises ConfigError with every fault at once.

    The same arguments give the same schedule; each line draws its jitter by itself. Its number is its failures' cause.
    """
    return FailureSchedule.of(one.failure for one in _all_placed(configs, fabric, seed))


def _all_placed(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> list[_Placed]:
    """Return all failures of a list. Raises ConfigError."""
    faults: list[str] = []
    placed: list[_Placed] = []
    for number, config in enumerate(configs):
        try:
            placed += _placed(number, config, fabric, _draws(number, seed))
        except ValueError as error:
            faults.append(f"failures.{number}.{error}")
    faults += _contradictions(placed)
    if faults:
        raise ConfigError("failures", faults)
    return placed


def failures_of(number: int, config: FailureConfig, fabric: Fabric, seed: int) -> list[Failure]:
    """Return what a line comes to. Raises ValueError naming what the fabric does not have."""
    return [one.failure for one in _placed(number, config, fabric, _draws(number, seed))]


def _draws(number: int, seed: int) -> random.Random:
    return random.Random(f"{seed}/failures/{number}")


def failure_faults(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> Iterator[str]:
    """Yield every fault of a ``failures`` list, for configs that report theirs together with others."""
    try:
        _all_placed(configs, fabric, seed)
    except ConfigError as error:
        yield from error.faults


def _placed(number: int, config: FailureConfig, fabric: Fabric, rng: random.Random) -> list[_Placed]:
    return [
        _Placed(f"failures.{number}", Failure(target, from_s, until_s, state, (number,)))
        for began_s, ended_s in config.times_s(rng)
        for target, from_s, until_s, state in config.stretches(fabric, began_s, ended_s)
    ]


def contradictions(named: Iterable[tuple[str, Failure]]) -> Iterator[str]:
    """Yield what failures, each with the name of what it is part of, want differently of one target at once."""
    yield from _contradictions([_Placed(*one) for one in named])


def _contradictions(placed: Sequence[_Placed]) -> Iterator[str]:
    """Yield the pairs of lines that want one target differently at the same time.

    Cuts of different targets may overlap (a switch and one of its links), and so may losses; two rates cannot both be.
    """
    by_target: dict[Hashable, list[tuple[float, int, _Placed]]] = defaultdict(list)
    for number, placed_one in enumerate(placed):
        if placed_one.failure.state.only_one is not None:
            by_target[placed_one.failure.target].append((placed_one.failure.began_s, number, placed_one))
    told: set[tuple[str, str]] = set()
    for target, found in by_target.items():
        under_way: list[tuple[int, _Placed]] = []
        for began_s, number, now in sorted(found, key=lambda one: one[:2]):
            under_way = [one for one in under_way if one[1].failure.ended_s > began_s]
            for before in under_way:
                (_, one), (_, other) = sorted([before, (number, now)], key=lambda pair: pair[0])
                if (words := _differing(one, other)) and (one.key, other.key) not in told:
                    told.add((one.key, other.key))
                    at = format_time(began_s)
                    yield f"{one.key} and {other.key}: {target} would have {words} at once, from {at} on"
            under_way.append((number, now))
    yield from _after_the_end(placed)


def _differing(one: _Placed, other: _Placed) -> str:
    """Return what two failures of a target want differently, in words; nothing if they agree."""
    wanted = [of.failure.state.only_one for of in (one, other)]
    assert wanted[0] is not None and wanted[1] is not None, "only such failures are compared"
    (value, words), (another, _) = wanted[0], wanted[1]
    return "" if value == another else f"{value:g} and {another:g} {words}"


def _after_the_end(placed: Sequence[_Placed]) -> Iterator[str]:
    """Yield the lines that want something of programs that another has killed by then: the last thing that each wants
    of them is looked at, by host."""
    last: dict[tuple[str, ProgramTarget], _Placed] = {}
    killers: dict[str, list[tuple[_Placed, ProgramTarget]]] = defaultdict(list)
    for one in sorted(placed, key=lambda one: one.failure.began_s):
        if isinstance(target := one.failure.target, ProgramTarget):
            last[one.key, target] = one
            if one.failure.state == KILLED:
                killers[target.host].append((one, target))
    told: set[frozenset[str]] = set()
    for (_, target), other in last.items():
        for killer, dead in killers[target.host]:
            is_late = other.failure.began_s >= killer.failure.began_s and other.key != killer.key
            pair = frozenset((killer.key, other.key))
            if is_late and dead.covers(target.job, target.host) and pair not in told:
                told.add(pair)
                yield f"{other.key}: {killer.key} has killed {target} by then; remove one of the two"


def miswire(fabric: Fabric, one: Link, other: Link) -> Fabric:
    """Return the fabric that is really wired once somebody has exchanged the far ends of two links.

    Plans made for ``fabric`` no longer fit: port ``one.a`` leads to where ``other.a`` should. Rates and tiers stay with
    the near ends. Raises ValueError if what came of it would be no fabric.
    """
    if one == other or one.tier is not other.tier:
        raise ValueError(f"{one} and {other}: choose two links of one tier")
    if one.a.node == other.b.node or other.a.node == one.b.node:
        raise ValueError(f"{one} and {other}: exchanging their far ends would join a node to itself; choose others")
    if one.tier is Tier.ACCESS and one.b.node.zone != other.b.node.zone:
        raise ValueError(f"{one} and {other}: hosts have addresses of their zone; choose links of one zone")
    crossed = {
        one: Link(one.a, other.b, one.rate_bps, one.tier, one.delay_ns),
        other: Link(other.a, one.b, other.rate_bps, other.tier, other.delay_ns),
    }
    return replace(fabric, links=tuple(crossed.get(link, link) for link in fabric.links))
