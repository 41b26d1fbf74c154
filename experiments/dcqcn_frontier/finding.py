"""Whether the paper's claim holds, and what would change that, in words."""

from __future__ import annotations

import math

from experiments.dcqcn_frontier.reference import (
    ALGBW,
    READ,
    WORST,
    AnyFound,
    Kind,
    alone_Bps,
    kinds_of,
    lanes_do,
    limiting,
    together,
    without_control,
)
from fabric.model.lanes import Queueing
from fabric.units import format_time
from runs.case_tables import say


def answer(found: AnyFound) -> str:
    """Return the finding: a part for each queueing."""
    points, claims = together(found), kinds_of(found, with_dcqcn=True)
    told = [_said(claim, lanes_do(found)) for claim in claims]
    if claims:
        do = "give" if lanes_do(found) else "do not give"
        told.append(f"Lanes without congestion control {do} each program its share of the links.")
    elif (base := without_control(found, Queueing.LOSSLESS_LANES)) is None:
        told.append("Nothing to compare with: play the queueing lossless_lanes, and line among the others.")
    else:
        lacking = base.case.title if all(alone_Bps(found)) else "the programs alone"
        told.append(
            f"Nothing to compare with: of {lacking}, no step of HFReduce or no read lies in the part of the phase that "
            "counts, or reads failed; raise phase_time."
        )
    if without := [one.case.title for one in points if not (one[ALGBW] and one[READ])]:
        told.append(
            f"No step of HFReduce or no read lies in the part of the phase that counts at {len(without)} of "
            f"{len(points)} points, the first {without[0]}: they suit nothing; raise phase_time "
            f"({format_time(found.config.phase_time)})."
        )
    return " ".join(told)


def _said(claim: Kind, lanes_do: bool) -> str:
    """Return the sentences on whether the claim holds in a queueing."""
    nearest, holds = claim.nearest("{name}", works=True), lanes_do and not claim.working
    p99_share = nearest["p99_share"]
    p99 = f"{1 / p99_share:.2f} times their p99" if p99_share > 0 else "a p99 that is not known, as reads are missing"
    kept = say(nearest, "{algbw_share|.0%} of the allreduce and {read_share|.0%} of the reads")
    return (
        f"In {claim.case.queueing.words} the paper's claim {'holds' if holds else 'does not hold'}: "
        f"{len(claim.suiting)} of {len(claim.outcomes)} sets of DCQCN's parameters suit both programs, and "
        f"{len(claim.working)} of these keep ports from standing still for half of the time or more. The nearest that "
        f"does, {nearest.case.title}, gives {kept} of lanes without congestion control, at {p99}. "
        f"{_what_would_change_it(claim, lanes_do)}"
    )


def _what_would_change_it(claim: Kind, lanes_do: bool) -> str:
    nearest = claim.nearest("{name}", works=True)
    if not lanes_do:
        return "It needs lanes that give each program its share."
    if math.isnan(nearest[WORST]):
        return f"What tolerance would change that is not known, as its {limiting(nearest)} is not."
    would = "hold with a tolerance below" if claim.working else "fail with one of"
    short = max(0.0, 1 - nearest[WORST])
    return f"It would {would} {short:.1%} of {limiting(nearest)}, not {1 - claim.least:.0%}."
