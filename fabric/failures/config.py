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

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fabric.config import LEAST_RATE_BPS, Strict, TimeS
from fabric.errors import ConfigError
from fabric.failures.names import disk_named, gpu_named, link_named, nic_named, node_named
from fabric.failures.schedule import Failure, FailureSchedule, LinkState, State
from fabric.failures.targets import (
    KILLED,
    RESTARTED,
    STOPPED,
    DiskState,
    DiskTarget,
    GpuState,
    GpuTarget,
    ProgramState,
    ProgramTarget,
)
from fabric.model.network import Fabric, Link, Tier
from fabric.units import format_apart, format_rate, format_time

_LINK_EFFECTS = frozenset({"rate", "loss"})
_NEVER_ENDING = {
    "kill": "what is killed does not come back",
    "rot": "what is rotten stays so until it is written anew",
}
"""Effects that have no end, and why."""


class RepeatConfig(Strict):
    """A failure that happens again and again."""

    every: Annotated[TimeS, Field(gt=0)] = Field(description="Time from one begin to the next.")
    times: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="How often it happens in all, the first time included."
    )


class FailureTargets(Strict):
    """What fails: exactly one of these."""

    link: str | None = Field(
        default=None,
        description=(
            "The link that fails, by one of its ends (`z0l00:3`) or by its nodes (`z0l00-z0s01`, with `#2` for "
            "the second of several)."
        ),
    )
    port: str | None = Field(default=None, description="The port whose link fails, such as `z0l00:3`.")
    switch: str | None = Field(default=None, description="The switch that fails: all its links at once.")
    host: str | None = Field(default=None, description="The compute node that fails: the links of all its NICs.")
    storage: str | None = Field(default=None, description="The storage node that fails: the links of all its NICs.")
    nic: str | None = Field(
        default=None, description="The NIC that fails, by its host and its number, such as `st001:1`."
    )
    silent: str | None = Field(
        default=None,
        description=(
            "The host that falls silent: its NICs are cut and its programs stopped, so that no peer is told (no FIN, "
            "no RST). See `then`."
        ),
    )
    process: str | None = Field(
        default=None, description="The host whose programs fail: those of `job`, or of all jobs. See `effect`."
    )
    disk: str | None = Field(
        default=None,
        description="The disk of a storage service that fails, such as `st001/2`, or all of a node's (`st001`).",
    )
    gpu: str | None = Field(
        default=None,
        description="The GPU that has an error, such as `z0h003/2`, or a node's first (`z0h003`). See `xid`, `effect`.",
    )


class FailureEffects(FailureTargets):
    """What happens to it: links are cut unless ``rate`` or ``loss`` is given; a process or a disk has an ``effect``."""

    rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Fraction of its rate that the link keeps, for a degraded link in place of a cut."
    )
    loss: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Fraction of frames that the link loses in each direction, in place of a cut."
    )
    job: str | None = Field(default=None, description="The job whose programs fail. Without it, those of all jobs.")
    effect: Literal["kill", "restart", "stop", "slow", "error", "rot", "wrong"] | None = Field(
        default=None,
        description=(
            "Of a process: `kill` (SIGKILL), `restart` (so, and started again after `for`), `stop` (SIGSTOP, then "
            "SIGCONT) or `slow` (see `share`). Of a disk: `error` (each access fails), `slow` (`factor`, `latency`) or "
            "`rot` (`chunks`). Of a GPU: `wrong` values."
        ),
    )
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Fraction of the time for which slow programs may compute, in turns of 10 ms; only in real time.",
    )
    factor: Annotated[float, Field(gt=1, le=1e6)] | None = Field(
        default=None, description="How many times its time each read of a slow disk takes."
    )
    latency: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="Time that each read of a slow disk takes in addition."
    )
    chunks: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        default=None, description="How many chunks of the disk get a wrong bit, drawn by the seed. Without it, 1."
    )
    xid: Annotated[int, Field(ge=1, le=999)] | None = Field(
        default=None,
        description="Which error of a GPU, by NVIDIA's number: its node's kernel logs it, and a platform with `health` "
        "sees it.",
    )
    then: Literal["returns", "dead"] = Field(
        default="returns",
        description="What a silent host is after `for`: as it was, or up again with all its programs dead.",
    )


class FailureConfig(FailureEffects):
    """One line of ``failures``: exactly one target, when, and what: of links a cut unless ``rate`` or ``loss`` is
    given, of a process or a disk its ``effect``."""

    at: Annotated[TimeS, Field(ge=0)] = Field(
        description="When the failure begins, counted from when all jobs of the phase play."
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, alias="for", description="How long the failure lasts. Without it, until the phase ends."
    )
    repeat: RepeatConfig | None = Field(default=None, description="How often it happens again. Without it, once.")
    jitter: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Each begin is later by a random time up to this, drawn evenly by the seed."
    )

    @model_validator(mode="after")
    def _verify(self) -> FailureConfig:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        given = [name for name in TARGETS if getattr(self, name, None) is not None]
        if len(given) != 1:
            yield f"names {' and '.join(given) or 'no target'}; give exactly one of {', '.join(TARGETS)}"
        else:
            yield from _key_faults(self, given[0], TARGETS[given[0]])
        yield from self._time_faults()

    def _time_faults(self) -> Iterator[str]:
        why = _NEVER_ENDING.get(self.effect or "")
        if why is not None and self.duration is not None:
            yield f"effect {self.effect}: {why}; leave out 'for'"
        if self.gpu is not None and self.duration is not None:
            yield "gpu: an error is told once, and has no end; leave out 'for'"
        if self.effect == "restart" and self.duration is None:
            yield "effect restart: the program is started again after 'for', which is missing; give it"
        if self.then == "dead" and self.duration is None:
            yield "then: dead: the host is up again after 'for', which is missing; give it"
        if self.repeat is None or self.repeat.times == 1:
            return
        if self.effect == "kill" or self.then == "dead":
            yield "repeats what kills programs, which do not come back; leave out 'repeat'"
        elif self.duration is None and self.effect != "rot" and self.gpu is None:
            yield "repeats a failure that never ends; give 'for'"
        elif self.duration is not None and self.duration + self.jitter > self.repeat.every:
            yield (
                f"lasts {format_time(self.duration)} and may begin {format_time(self.jitter)} late, yet repeats every "
                f"{format_time(self.repeat.every)}, so that it overlaps itself; raise repeat.every"
            )

    @property
    def target(self) -> tuple[str, str]:
        """What kind of target it has, and its name."""
        return next((name, value) for name in TARGETS if (value := getattr(self, name, None)) is not None)

    @property
    def hits_programs_or_disks(self) -> bool:
        """Whether it is not of links alone."""
        return self.target[0] in ("silent", "process", "disk", "gpu")

    @property
    def state(self) -> LinkState:
        """What it does to a link."""
        if self.rate is None and self.loss is None:
            return LinkState(up=False)
        return LinkState(rate_fraction=self.rate or 1.0, loss_fraction=self.loss or 0.0)

    def times_s(self, rng: random.Random) -> list[tuple[float, float]]:
        """Return when it begins and ends, each time; the last never does without ``for``."""
        every, times = (self.repeat.every, self.repeat.times) if self.repeat else (0.0, 1)
        begins = [self.at + number * every + rng.uniform(0, self.jitter) for number in range(times)]
        duration = math.inf if self.duration is None else self.duration
        # To the nanosecond, or what ends at 0.1 s + 0.2 s would miss what begins at 0.3 s.
        return [(round(begin, 9), round(begin + duration, 9)) for begin in begins]


# What a target comes to ----------------------------------------------------------------------------------------------

Stretch = tuple[Hashable, float, float, State]
"""A target, from when until when it is in a state, and in which."""


@dataclass(frozen=True)
class TargetKey:
    """A key of a line that names a target: which of the keys that say what happens go with it, which values of
    ``effect`` it has, one of which must be given, and what a line comes to on a fabric within a time (a function that
    raises ValueError for a name that the fabric does not have)."""

    stretches: Callable[[FailureConfig, Fabric, float, float], Iterable[Stretch]]
    keys: frozenset[str] = _LINK_EFFECTS
    effects: tuple[str, ...] = ()


def links_of(failure: FailureConfig, fabric: Fabric) -> tuple[Link, ...]:
    """Return the links that a failure hits. Raises ValueError naming what the fabric does not have."""
    kind, name = failure.target
    if kind in ("link", "port"):
        link = link_named(name, fabric, by_port_only=kind == "port")
        if link.tier is Tier.INSIDE and (failure.rate is None or failure.loss is not None):
            raise ValueError(f"{kind}: {name} is inside a node: it can be slow, not cut or lossy; give rate")
        return (link,)
    if kind == "nic":
        return (fabric.link_at[nic_named(name, fabric).port],)
    node = node_named(name, kind, fabric)
    return tuple(fabric.link_at[port] for port in fabric.ports_of[node])


def _links(line: FailureConfig, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
    for link in links_of(line, fabric):
        if line.rate is not None and line.rate * link.rate_bps < LEAST_RATE_BPS:
            left, least = format_apart(line.rate * link.rate_bps, LEAST_RATE_BPS, format_rate)
            raise ValueError(
                f"rate: {line.rate:g} of {link} ({format_rate(link.rate_bps)}) leaves {left}; a link keeps {least} or "
                f"more, rate {LEAST_RATE_BPS / link.rate_bps:.3g}: raise it, or cut the link"
            )
        yield link, began_s, ended_s, line.state


def _silent(line: FailureConfig, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
    """Yield the cuts of a host's NICs, and that its programs are stopped until they return, or are killed then: what
    the kernel sends for dead programs is lost while there is no link, and whoever asks later is told."""
    yield from _links(line, fabric, began_s, ended_s)
    programs = ProgramTarget(node_named(line.target[1], "silent", fabric).name)
    yield programs, began_s, ended_s, STOPPED
    if line.then == "dead":
        yield programs, ended_s, math.inf, KILLED


def _process(line: FailureConfig, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
    states = {"kill": KILLED, "restart": RESTARTED, "stop": STOPPED}
    state = states.get(line.effect or "", ProgramState(share=line.share or 1.0))
    yield ProgramTarget(node_named(line.target[1], "process", fabric).name, line.job or ""), began_s, ended_s, state


def _disk(line: FailureConfig, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
    node, number = disk_named(line.target[1], fabric)
    state = DiskState(line.effect == "error", line.factor or 1.0, line.latency or 0.0)
    if line.effect == "rot":
        state = DiskState(rotten=line.chunks or 1)
    yield DiskTarget(node.name, number), began_s, ended_s, state


def _gpu(line: FailureConfig, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
    node, number = gpu_named(line.target[1], fabric)
    state = GpuState(wrong=1) if line.xid is None else GpuState((line.xid,))
    yield GpuTarget(node.name, number), began_s, ended_s, state


TARGETS: dict[str, TargetKey] = {
    **dict.fromkeys(("link", "port", "switch", "host", "storage", "nic"), TargetKey(_links)),
    "silent": TargetKey(_silent, frozenset({"then"})),
    "process": TargetKey(_process, frozenset({"job", "effect", "share"}), ("kill", "restart", "stop", "slow")),
    "disk": TargetKey(_disk, frozenset({"effect", "factor", "latency", "chunks"}), ("error", "slow", "rot")),
    "gpu": TargetKey(_gpu, frozenset({"xid", "effect"})),
}
"""By the key that names the target, in the order of their lines in messages. A new kind of target is a key here and in
:class:`FailureConfig`, and an injector in :mod:`runs.failures`."""
_EFFECT_KEYS = ("rate", "loss", "job", "effect", "share", "factor", "latency", "chunks", "xid", "then")


def _key_faults(line: FailureConfig, name: str, target: TargetKey) -> Iterator[str]:
    """Yield which keys do not go with the line's target or effect, and which are missing."""
    given = [key for key in _EFFECT_KEYS if getattr(line, key) != type(line).model_fields[key].default]
    if wrong := [key for key in given if key not in target.keys]:
        yield f"{', '.join(wrong)}: not of a {name}; it has {', '.join(sorted(target.keys))}"
    if name == "gpu":
        yield from _gpu_faults(line)
    if target.effects and line.effect not in target.effects:
        said = "is missing" if line.effect is None else f"is {line.effect!r}"
        yield f"effect {said}; a {name} has {', '.join(target.effects)}"
        return
    needed = {"slow": ("share",) if name == "process" else ("factor", "latency"), "rot": ("chunks",)}
    mine = needed.get(line.effect or "", ())
    if line.effect == "slow" and not any(key in given for key in mine):
        yield f"effect slow: how slow is missing; give {' or '.join(mine)}"
    if strange := [key for key in given if key in ("share", "factor", "latency", "chunks") and key not in mine]:
        yield f"{', '.join(strange)}: not of effect {line.effect}; leave it out"


def _gpu_faults(line: FailureConfig) -> Iterator[str]:
    if line.effect not in (None, "wrong"):
        yield f"effect is {line.effect!r}; a gpu has wrong, or an xid"
    elif line.xid is None and line.effect is None:
        yield "xid is missing: which error a gpu has; give it, such as 79 (fallen off the bus), or effect: wrong"
    elif line.xid is not None and line.effect is not None:
        yield "xid and effect: an error that is told, or wrong values of which nothing tells; give one of them"


@dataclass(frozen=True)
class _Placed:
    """A failure, and the place in the config that it comes from."""

    key: str
    failure: Failure


def schedule_failures(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> FailureSchedule:
    """Return what a ``failures`` list comes to on a fabric. Raises ConfigError with every fault at once.

    The same arguments give the same schedule; each line draws its jitter by itself. Its number is its failures' cause.
    """
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
    return FailureSchedule.of(one.failure for one in placed)


def failures_of(number: int, config: FailureConfig, fabric: Fabric, seed: int) -> list[Failure]:
    """Return what a line comes to. Raises ValueError naming what the fabric does not have."""
    return [one.failure for one in _placed(number, config, fabric, _draws(number, seed))]


def _draws(number: int, seed: int) -> random.Random:
    return random.Random(f"{seed}/failures/{number}")


def failure_faults(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> Iterator[str]:
    """Yield every fault of a ``failures`` list, for configs that report theirs together with others."""
    try:
        schedule_failures(configs, fabric, seed)
    except ConfigError as error:
        yield from error.faults


def _placed(number: int, config: FailureConfig, fabric: Fabric, rng: random.Random) -> list[_Placed]:
    stretches = TARGETS[config.target[0]].stretches
    return [
        _Placed(f"failures.{number}", Failure(target, from_s, until_s, state, (number,)))
        for began_s, ended_s in config.times_s(rng)
        for target, from_s, until_s, state in stretches(config, fabric, began_s, ended_s)
    ]


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
