"""Does a lossless fabric stay lossless, whatever comes? Random flows in every lane while links flap at random.

Rounds follow each other on one fabric. In each, hosts send flows of random sizes to each other in all data lanes, while
links are cut for random times. Then the load ends, and the fabric is checked, to the byte:

- no frame was dropped other than by cuts: those queued in a cut port or in flight on its wire;
- every credit is back: at rest, no port occupies any input buffer;
- every stalled lane waited, directly or through other stalled lanes, for a link that was busy.

One miss and the verdict is ``invalid``.

Repairs take turns, a block of rounds each, and each starts programs of its own. One that reroutes traffic gets cuts of
links between switches, one after the other, so that there always is another path, and rules drop nothing. Between them
is a rest: a frame that is held up for so long that it meets two cuts may find both of its ways dead, and is dropped
where its search for another ends. Where failures are waited out, any link is cut at any time: what is sent into it is
dropped there.

While routes change, packets of the old ones meet packets of the new ones, and lanes may wait for each other in a circle
that neither would allow. The emulation is not at fault: the repair's block ends there, the fabric is emptied, and
the result names the round and the ports. Where routes never change, a circle ends the run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, field_validator

from controllers.routing import Repair, Routing
from experiments.lossless_soak.summary import BrokenOff, SoakRound, soak_checks, summarize
from fabric.config import Strict, TimeS
from fabric.errors import DeadlockError
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.lanes import DATA_LEVELS, Queueing
from fabric.model.network import Fabric, Link, Tier
from fabric.stalls.audit import StallAudit
from fabric.stalls.credits import held_at_rest
from fabric.units import format_apart, format_time
from runs.config import Duration, QueueingConfig
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.flows.background import BackgroundConfig, BackgroundJob

_LEAVING_FRAMES = 8
"""What nothing holds back has left an input buffer after a frame's time on the slowest link; so many are generous."""


class FlapConfig(Strict):
    """The cuts of a round. Their lengths are drawn evenly on a logarithmic scale, since short cuts and long ones break
    different things."""

    count: Annotated[int, Field(ge=0, le=1000)] = Field(default=3, description="Links that are cut per round.")
    shortest: Duration = Field(default=0.01, description="Shortest cut.")
    longest: Duration = Field(default=2.0, description="Longest cut.")


class LosslessSoakConfig(QueueingConfig):
    """The rounds of each repair, their load and their flaps.

    ``sample_period`` may be longer here than in other experiments: what counts is looked for apart from the samples.
    """

    sample_period: Annotated[TimeS, Field(gt=0, le=10)] = Field(
        default=1.0,
        description=(
            "Time between two samples of every queue. Long here, since what counts is looked for apart from the "
            "samples."
        ),
    )
    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS_LANES, description="Queueing in which all rounds play; a lossless one."
    )
    repairs: Annotated[list[Annotated[Repair, Field(strict=False)]], Field(min_length=1)] = Field(
        default_factory=lambda: [Repair.FAST_FAILOVER, Repair.WAIT],
        description="Repair policies to play, in this order.",
    )
    rounds: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=20, description="Rounds of each repair. After each the load ends, and all credits must be back."
    )
    round_time: Duration = Field(default=15.0, description="Length of a round.")
    stall_limit: Duration = Field(
        default=0.2, description="Lanes that stand still for longer than this must have a reason."
    )
    flows: BackgroundConfig = Field(
        default_factory=BackgroundConfig, description="Random flows, offered in each data lane."
    )
    flaps: FlapConfig = Field(default_factory=FlapConfig, description="The links that are cut in each round.")

    @field_validator("queueing")
    @classmethod
    def _verify_queueing(cls, value: Queueing) -> Queueing:
        if not value.is_lossless:
            raise ValueError(f"{value.value} drops frames by design; use lossless or lossless_lanes")
        return value

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """Each in its turn."""
        return tuple(Routing(repair=repair) for repair in self.repairs)

    @property
    def cuts_links(self) -> bool:
        """Whatever its config says."""
        return True

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All rounds are as long."""
        return PhaseLengths.of(self, "round_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric or each other."""
        yield from super().faults(fabric)
        if self.failures:
            yield "failures: lossless_soak draws its own; set flaps.count, flaps.shortest and flaps.longest"
        if self.routing != Routing():
            yield "routing: lossless_soak has repairs in turn; write them under repairs"
        yield from self._time_faults(fabric)

    def _time_faults(self, fabric: Fabric) -> Iterator[str]:
        shortest, longest = format_time(self.flaps.shortest), format_time(self.flaps.longest)
        if self.flaps.shortest > self.flaps.longest:
            yield f"flaps.shortest: {shortest} is longer than flaps.longest, {longest}; lower it"
        if self.flaps.count * self.flaps.longest >= self.round_time:
            cuts, within = f"{self.flaps.count} cuts of {longest}", format_time(self.round_time)
            yield f"flaps.longest: {cuts} do not end within a round of {within}; lower it"
        least_s = 2 * leaving_limit_s(fabric)
        if self.stall_limit < least_s:
            why = "twice what frames may take to leave a buffer"
            limit, least = format_apart(self.stall_limit, least_s, format_time)
            yield f"stall_limit: {limit} is less than {least}, {why}; raise it"


def leaving_limit_s(fabric: Fabric) -> float:
    """Return how long what nothing holds back may take to leave an input buffer and to be known to have left it."""
    return _LEAVING_FRAMES * fabric.frame_time_s + fabric.round_trip_s


def flaps_of_round(fabric: Fabric, config: LosslessSoakConfig, repair: Repair, number: int) -> FailureSchedule:
    """Return what is cut in a round: the same for the same arguments, another in each round.

    Where traffic is led another way, cuts are of links between switches and share the round's time out; else they are
    of any link at any time.
    """
    drawn = random.Random(f"{config.seed}/flaps/{repair.value}/{number}")
    count = config.flaps.count
    if repair is Repair.WAIT:
        return FailureSchedule.of(_flap(fabric.links, config, drawn, (0.0, config.round_time)) for _ in range(count))
    links = [link for link in fabric.links if link.tier is not Tier.ACCESS]
    if not count:
        return FailureSchedule()
    edges = [config.round_time * place / count for place in range(count + 1)]
    return FailureSchedule.of(_flap(links, config, drawn, part, rests=True) for part in pairwise(edges))


def _flap(
    links: Sequence[Link],
    config: LosslessSoakConfig,
    drawn: random.Random,
    within_s: tuple[float, float],
    rests: bool = False,
) -> Failure:
    """Draw a cut within a time; ``rests``: in its first half, if it is no longer than that."""
    duration_s = math.exp(drawn.uniform(math.log(config.flaps.shortest), math.log(config.flaps.longest)))
    ends_by_s = max(within_s[0] + duration_s, sum(within_s) / 2) if rests else within_s[1]
    began_s = drawn.uniform(within_s[0], ends_by_s - duration_s)
    return Failure(drawn.choice(links), round(began_s, 9), round(began_s + duration_s, 9))


def run_lossless_soak(session: Session, config: LosslessSoakConfig) -> dict[str, Any]:
    """Play all rounds, and return the summary."""
    session.use_queueing(config.queueing)
    fabric = session.live.fabric
    audit = StallAudit(session.pool, session.live.emulation, config.stall_limit, leaving_limit_s(fabric))
    rounds: list[SoakRound] = []
    broken_off = [one for repair in config.repairs if (one := _soak(session, config, audit, repair, rounds))]
    session.checks += soak_checks(rounds)
    return summarize(session, rounds, broken_off, config.stall_limit)


def _soak(
    session: Session, config: LosslessSoakConfig, audit: StallAudit, repair: Repair, rounds: list[SoakRound]
) -> BrokenOff | None:
    """Play the rounds of a repair, add them to ``rounds``, and return which one a deadlock broke off, if one did.

    Raises DeadlockError where routes never change.
    """
    session.use_routing(Routing(repair=repair), repair.value)
    number = 0
    try:
        with _playing(session, config) as jobs:
            for number in range(1, config.rounds + 1):
                rounds.append(_play(session, config, jobs, audit, repair, number))
    except DeadlockError as error:
        if repair is Repair.WAIT:
            raise
        session.tell(f"{repair.value}, round {number}: {error}")
        audit.end()
        session.empty_fabric()
        return BrokenOff(repair, number, flaps_of_round(session.live.fabric, config, repair, number), str(error))
    return None


def _play(
    session: Session,
    config: LosslessSoakConfig,
    jobs: Sequence[BackgroundJob],
    audit: StallAudit,
    repair: Repair,
    number: int,
) -> SoakRound:
    """Play a round, and hold the fabric at rest after it to its promises."""
    schedule = flaps_of_round(session.live.fabric, config, repair, number)
    title = f"{repair.value}: round {number} of {config.rounds}"
    audit.begin()
    outcome = session.run_phase(f"{repair.value}_{number}", title, jobs, config.round_time, schedule)
    still_held = held_at_rest(session.live.emulation)
    return SoakRound(repair, outcome, tuple(still_held), audit.end())


@contextmanager
def _playing(session: Session, config: LosslessSoakConfig) -> Iterator[list[BackgroundJob]]:
    """Start flows among all compute nodes in every data lane for the time of a block."""
    stage, computes = session.stage, session.live.fabric.computes
    jobs = [BackgroundJob(stage, config.flows, computes, level=level) for level in DATA_LEVELS]
    for job in jobs:
        job.draws_anew = True
    with started(session, jobs):
        yield jobs
