"""How much of its closed form does each collective reach at the largest size, and what keeps it from more?"""

from __future__ import annotations

from experiments.collectives.cases import Play
from experiments.collectives.config import CollectivesConfig
from experiments.collectives.sizes import IDEAL, sizes_of
from fabric.measures import Better, Measure
from fabric.records.cells import Cell, quantity
from runs.case_tables import CaseTable, Column
from runs.placement import CROWDING
from runs.study import Found, Outcome, Played, Question
from traffic.collectives.step_numbers import times_by_size
from traffic.metrics import payload_fraction

NEAR = 0.95
"""A share of the closed form above which it is called reached."""
REACHED = "of_closed_form_fraction"
AnyFound = Found[Play, CollectivesConfig]


def _measure(played: Played[Play, CollectivesConfig]) -> dict[str, float]:
    """Return the closed form, and how much of it the largest size reached."""
    values, counted = {CROWDING.name: played.counted[CROWDING.name]}, played.counted
    if (ideal_Bps := counted.get("ideal_algbw_Bps")) is not None:  # noqa: N806 - bytes, not bits
        values[IDEAL] = ideal_Bps * played.case.busbw_factor
        if times := times_by_size(played.rows("steps")):
            values[REACHED] = max(times) / times[max(times)] / ideal_Bps
    return values


def _answer(found: AnyFound) -> str:
    shares = {one.case.title: one[REACHED] for one in found.outcomes if REACHED in one.values}
    if not shares:
        return "Nothing crossed the network."
    short = {title: share for title, share in shares.items() if share < NEAR}
    whole = f"{len(shares) - len(short)} of {len(shares)} reach {NEAR:.0%} of their closed form at the largest size"
    if not short:
        return f"{whole}."
    worst = min(short, key=lambda title: short[title])
    return f"{whole}; the farthest from it is {worst}: {short[worst]:.0%}."


def _binding(one: Outcome[Play]) -> Cell:
    """The limit that keeps a play below its closed form: links that flows share; or the time to fill pipelines, which
    weighs less at larger sizes, and ranks that serve one peer after the other."""
    if one[REACHED] >= NEAR:
        return "NIC"
    if one[CROWDING.name] > 1 / NEAR:
        return ("a link that flows share: ", quantity(1 / one[CROWDING.name], ".0%"))
    return "time to fill, or peers in turn"


CLOSED_FORMS = Question[Play, CollectivesConfig](
    measure=_measure,
    measures=(
        Measure(IDEAL, "busbw of the closed form"),
        Measure(REACHED, "busbw at the largest size over that of the closed form", Better.MORE),
        CROWDING,
    ),
    answer=_answer,
    tables=(
        CaseTable(
            "busbw of the largest size beside the closed form, GB/s",
            (
                Column("collective", lambda one: one.case.collective),
                Column("algorithm", "{algorithm}{servers}"),
                "ranks {ranks}, size {size_bytes}, busbw {here_Bps|.4g in GB/s}, "
                "closed form {closed_form_Bps|.4g in GB/s}, share {of_closed_form_fraction}, "
                "busiest link {busiest_link_of_nic|.2f}",
                Column("binds", _binding),
            ),
            lambda found: (
                "closed form: the busiest host's NIC is full, and "
                f"{payload_fraction(found.fabric.mtu_bytes):.1%} of its bytes are payload; busiest link: its load by "
                "static routes over that of the busiest NIC, over the whole step; time to fill: a larger size divides "
                "it by more bytes; peers in turn: links that flows share for a while"
            ),
            parts=lambda found, one: sizes_of(found, one)[-1:],
            having=REACHED,
        ),
    ),
)
