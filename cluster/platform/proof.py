"""Whether any step of users' jobs was lost or made twice, by what their ranks printed. Pure, but for reading logs.

A rank prints a line for each step that it has made: ``12``, ``step 12``, or ``step 12 sum 3f09`` with what all ranks
have come to, and ``restored step 12`` if it goes on from a checkpoint that it has found itself: one may be complete of
which nobody could tell the platform any more. Other lines are passed over.

A life goes on from the step that is saved. What a life before it made beyond that is made again, and must come to the
same; any other step is made once. A step that a life skips between the saved one and its own first is lost, even if an
earlier life made it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cluster.platform.event_rows import step_of
from fabric.model.identity import NodeId
from fabric.records.packed import names_in

STEPS = "platform_steps"
"""The table of what ranks printed."""
Row = Mapping[str, Any]
SumOf = Callable[[int], str]
_LINE = re.compile(r"(?:step )?(\d{1,18})(?: sum (\S+))?")
_RESTORED_LINE = re.compile(r"restored step (\d{1,18})(?: .*)?")
MOST_STEP = 1_000_000
"""A line with a larger number is none of a step: programs print dates and sizes, too."""
MADE, RESTORED = "made", "restored"
_MOST_BYTES = 64 << 20
"""Of a log that is read; a program may print more than steps."""


class StepLine(NamedTuple):
    """A step that a rank of a life says it has made, or restored (``what``). ``total``: what all ranks came to; empty:
    it does not say."""

    number: int
    life: int
    rank: int
    step: int
    total: str = ""
    what: str = MADE


@dataclass(frozen=True)
class JobProof:
    """What the ranks of a job printed, over all of its lives.

    ``steps``: different ones; ``lost``: those up to the last that nobody made, from 1 on or from where another job had
    saved, and those that a life left out behind the saved step: they are not in its state; ``again``: made by a further
    life, since they were not saved; ``twice``: made by a further life though they were saved; ``apart``: steps
    in which ranks of a life came to different sums, or some rank did not come to any; ``changed``: made again with
    another sum; ``wrong``: with a sum that is not that of the training's formula; ``sums``: steps whose sums were
    compared, and ``known``: those of which the formula is known.
    """

    number: int
    name: str
    lives: int
    steps: int
    lost: tuple[int, ...]
    again: tuple[int, ...]
    twice: tuple[int, ...]
    apart: tuple[int, ...]
    changed: tuple[int, ...]
    wrong: tuple[int, ...]
    sums: int
    known: int

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.twice or self.apart or self.changed or self.wrong)


def steps_in(folder: Path, events: Sequence[Row]) -> Iterator[StepLine]:
    """Yield what the ranks of all lives printed, by events of a platform; ``folder``: that of its logs
    (``NODE/LIFE-RANK/log``)."""
    for event in events:
        if event["event"] == "started":
            for rank, node in enumerate(names_in(event["nodes"])):
                log = folder / node / f"{event['life']}-{rank}" / "log"
                for step, total, what in _lines_of(log):
                    yield StepLine(int(event["number"]), int(event["life"]), rank, step, total, what)


def _lines_of(log: Path) -> Iterator[tuple[int, str, str]]:
    try:
        with log.open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return  # It never started.
    lines = text.split("\n")[:-1]  # What has no end was being printed when it was killed.
    for line in lines:
        if (found := _LINE.fullmatch(line)) is not None:
            step, total, what = int(found[1]), found[2] or "", MADE
        elif (found := _RESTORED_LINE.fullmatch(line)) is not None:
            step, total, what = int(found[1]), "", RESTORED
        else:
            continue
        if step <= MOST_STEP:
            yield step, total, what


def proofs(
    events: Sequence[Row], said: Iterable[StepLine], sum_of: Mapping[str, SumOf] | None = None
) -> list[JobProof]:
    """Return what is proven of each job that was submitted, by the events of a platform and what its ranks printed.
    ``sum_of``: what ranks must come to in a step, by the job's name, where it is known."""
    by_job: dict[int, list[StepLine]] = defaultdict(list)
    for one in said:
        by_job[one.number].append(one)
    submitted = [event for event in events if event["event"] == "submitted"]
    formulas = sum_of or {}
    return [
        _proof(int(one["number"]), str(one["why"]), events, by_job[int(one["number"])], formulas.get(str(one["why"])))
        for one in submitted
    ]


def in_words(found: Sequence[JobProof]) -> str:
    """Return what is proven of all jobs together, in a sentence without its end; nothing if no rank printed a step."""
    if not any(one.steps for one in found):
        return ""
    count = {
        what: sum(len(getattr(one, what)) for one in found)
        for what in ("lost", "again", "twice", "apart", "changed", "wrong")
    }
    text = f"ranks printed {sum(one.steps for one in found)} steps: {count['lost'] or 'none'} lost"
    text += f", {count['twice'] or 'none'} made twice though saved, {count['again'] or 'none'} made again behind a "
    text += "checkpoint"
    if sums := sum(one.sums for one in found):
        text += f"; of {sums} sums {count['apart'] + count['changed'] or 'none'} differed between ranks or lives"
    if known := sum(one.known for one in found):
        text += f", and {known - count['wrong']} of {known} are those of the training's formula"
    return text


def _proof(number: int, name: str, events: Sequence[Row], told: Sequence[StepLine], sum_of: SumOf | None) -> JobProof:
    own = [event for event in events if event["number"] == number]
    lives = [int(event["life"]) for event in own if event["event"] == "started"]
    said = [one for one in told if one.what == MADE]
    restored = {one.life: one.step for one in told if one.what == RESTORED}
    made = {life: sorted({one.step for one in said if (one.life, one.rank) == (life, 0)}) for life in lives}
    all_steps = sorted({step for steps in made.values() for step in steps})
    again, twice = _repeated(own, lives, made)
    worlds = {int(one["life"]): len(names_in(one["nodes"])) for one in own if one["event"] == "started"}
    apart, changed, sums = _compared(said, worlds)
    first = _first(number, events, all_steps)
    lost = set(range(first, (all_steps or [0])[-1] + 1)) - set(all_steps)
    lost |= _left_out(own, lives, made, restored, first)
    wrong = {one.step for one in said if sum_of is not None and one.total and one.total != sum_of(one.step)}
    return JobProof(
        number,
        name,
        len(lives),
        len(all_steps),
        tuple(sorted(lost)),
        again,
        twice,
        apart,
        changed,
        tuple(sorted(wrong)),
        sums,
        0 if sum_of is None else sums,
    )


def _first(number: int, events: Sequence[Row], all_steps: Sequence[int]) -> int:
    """Return the step that a job was to make first: 1, or the one behind a step that another job has saved, if it went
    on from there."""
    begun = all_steps[0] if all_steps else 1
    others = (
        event for event in events if event["number"] != number and event["event"] in ("saved", "left", "finished")
    )
    goes_on = any(step_of(event) == begun - 1 for event in others)
    return begun if goes_on else 1


def _left_out(
    own: Sequence[Row],
    lives: Sequence[int],
    made: Mapping[int, Sequence[int]],
    restored: Mapping[int, int],
    first: int,
) -> set[int]:
    """Return the steps that lives left out between what was saved, by the platform or as they say that they restored,
    and the first step that they made. ``first``: the step that the job was to make first."""
    saved, most = first - 1, first - 1
    left_out = set[int]()
    for life in lives:
        if made[life]:
            # What nobody has made, nobody can have restored.
            left_out |= set(range(max(saved, min(restored.get(life, saved), most)) + 1, made[life][0]))
        most = max([most, *made[life]])
        saved = max([saved, *_saved_by(own, life)])
    return left_out


def _repeated(
    own: Sequence[Row], lives: Sequence[int], made: Mapping[int, Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the steps made again since they had not been saved, and those made again though they had been."""
    saved, seen = 0, set[int]()
    again, twice = [], []
    for life in lives:
        repeated = [step for step in made[life] if step in seen]
        again += [step for step in repeated if step > saved]
        twice += [step for step in repeated if step <= saved]
        seen.update(made[life])
        saved = max([saved, *_saved_by(own, life)])
    return tuple(again), tuple(twice)


def _saved_by(own: Sequence[Row], life: int) -> Iterator[int]:
    """Yield the step that a life told at its end to have saved."""
    for event in own:
        if event["life"] == life and event["event"] in ("left", "finished") and (step := step_of(event)) is not None:
            yield step


def _compared(said: Sequence[StepLine], worlds: Mapping[int, int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the steps in which ranks of a life differ, those that a further life made otherwise, and how many steps
    were compared. The last step of a life may lack ranks: it was ended while they printed."""
    totals: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for one in said:
        if one.total:
            totals[one.life, one.step][one.rank] = one.total
    last = {life: max(step for other, step in totals if other == life) for life, _ in totals}
    first: dict[int, str] = {}
    apart, changed = set[int](), set[int]()
    for (life, step), by_rank in sorted(totals.items()):
        if len(set(by_rank.values())) > 1 or (len(by_rank) < worlds.get(life, 0) and step < last[life]):
            apart.add(step)
        total = next(iter(by_rank.values()))
        if first.setdefault(step, total) != total:
            changed.add(step)
    return tuple(sorted(apart)), tuple(sorted(changed)), len(first)


def most_across(events: Sequence[Row]) -> int:
    """Return how many pairs of neighbouring ranks were in two zones at once, over all jobs, at most."""
    across: dict[int, int] = {}
    most = 0
    for event in events:
        if event["event"] == "started":
            zones = [NodeId.parse(node).zone for node in names_in(event["nodes"])]
            across[int(event["life"])] = sum(one != other for one, other in pairwise(zones))
            most = max(most, sum(across.values()))
        elif event["event"] in ("left", "finished"):
            across.pop(int(event["life"]), None)
    return most
