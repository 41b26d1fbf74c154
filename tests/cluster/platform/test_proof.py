"""Whether steps were lost or made twice, by what ranks printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.platform.proof import JobProof, StepLine, in_words, most_across, proofs, steps_in
from cluster.platform.training_sums import sum_of

NAMES = ("event", "number", "life", "nodes", "why", "step")
EVENTS: list[dict[str, Any]] = [
    dict(zip(NAMES, (*row, -1), strict=False))
    for row in (
        ("submitted", 1, 1, "", "low"),
        ("started", 1, 1, "z0h000 z0h001 z1h000", ""),
        ("suspend", 1, 1, "", "another comes first"),
        ("left", 1, 1, "", "code 75", 3),
        ("started", 1, 2, "z0h000 z0h001", ""),
        ("restart", 1, 2, "", "z0h000 is lost"),
        ("left", 1, 2, "", "code 1", 5),
        ("started", 1, 3, "z1h000", ""),
        ("finished", 1, 3, "", "code 0", 9),
    )
]


def said(life: int, steps: range, world: int, more: str = "") -> list[StepLine]:
    return [StepLine(1, life, rank, step, f"s{step}{more}") for step in steps for rank in range(world)]


WHOLE = [*said(1, range(1, 4), 3), *said(2, range(4, 8), 2), *said(3, range(6, 10), 1)]


def proof(lines: list[StepLine]) -> JobProof:
    (found,) = proofs(EVENTS, lines)
    return found


def test_steps_behind_a_checkpoint_are_made_again_and_none_else() -> None:
    found = proof(WHOLE)
    assert found == JobProof(1, "low", 3, 9, (), (6, 7), (), (), (), (), 9, 0)
    assert found.holds
    assert in_words([found]) == (
        "ranks printed 9 steps: none lost, none made twice though saved, 2 made again behind a checkpoint; of 9 sums "
        "none differed between ranks or lives"
    )


def test_a_job_may_go_on_from_what_another_has_saved() -> None:
    later = [dict(zip(NAMES, (*row, -1), strict=False)) for row in (
        ("submitted", 2, 4, "", "tune"), ("started", 2, 4, "z1h000", ""), ("finished", 2, 4, "", "code 0", 12),
    )]  # fmt: skip

    def lost(first: int) -> tuple[int, ...]:
        lines = [StepLine(2, 4, 0, step) for step in range(first, 13)]
        return proofs([*EVENTS, *later], [*WHOLE, *lines])[1].lost

    assert lost(10) == () and lost(1) == ()
    assert lost(9) == tuple(range(1, 9)), "nobody has saved step 8"


def test_steps_between_the_saved_one_and_the_first_of_a_life_are_lost_whoever_made_them() -> None:
    """They were made, and are not in the state from which the job went on."""
    skipped = [*said(1, range(1, 4), 3), *said(2, range(4, 8), 2), *said(3, range(8, 10), 1)]
    found = proof(skipped)
    assert (found.lost, found.again, found.holds) == ((6, 7), (), False)
    assert "9 steps: 2 lost" in in_words([found])
    assert proof([*skipped, StepLine(1, 3, 0, 7, what="restored")]).lost == (), "it was complete, and untold"
    assert proof([*skipped, StepLine(1, 3, 0, 6, what="restored")]).lost == (7,)
    untold = [one for one in skipped if one.life != 2]
    assert proof([*untold, StepLine(1, 3, 0, 7, what="restored")]).lost == (4, 5, 6, 7), "nobody made what it restored"
    assert proof(skipped).steps == proof([*skipped, StepLine(1, 3, 0, 70, what="restored")]).steps == 9


def test_what_is_wrong_is_named_by_its_steps() -> None:
    changes: dict[str, tuple[list[StepLine], tuple[int, ...]]] = {
        "lost": ([one for one in WHOLE if one.step != 8], (8,)),
        "twice": ([*WHOLE, *said(2, range(3, 4), 2)], (3,)),
        "apart": (
            [one._replace(total="x") if (one.life, one.rank, one.step) == (1, 1, 2) else one for one in WHOLE],
            (2,),
        ),
        "changed": ([one._replace(total="x") if (one.life, one.step) == (3, 7) else one for one in WHOLE], (7,)),
    }
    for name, (lines, steps) in changes.items():
        found = proof(lines)
        assert getattr(found, name) == steps and not found.holds, name
        assert all(not getattr(found, other) for other in changes if other != name), name


def test_a_rank_that_is_missing_is_wrong_unless_its_life_was_ended_in_that_step() -> None:
    last = [one for one in WHOLE if one != StepLine(1, 2, 1, 7, "s7")]
    assert proof(last).holds
    assert proof([one for one in WHOLE if one != StepLine(1, 2, 1, 6, "s6")]).apart == (6,)


def test_sums_are_those_of_the_trainings_formula() -> None:
    """As its ranks print them: nothing is known of other programs."""
    command = ["python3", "-m", "cluster.platform.training_steps", "--steps", "9", "--values", "100"]
    formula = sum_of(command)
    assert formula is not None and sum_of(["python3", "-m", "mine"]) is None
    right = [one._replace(total=formula(one.step)) for one in WHOLE]
    (found,) = proofs(EVENTS, right, {"low": formula})
    assert (found.holds, found.known, found.sums) == (True, 9, 9)
    assert in_words([found]).endswith(", and 9 of 9 are those of the training's formula")
    swapped = [one._replace(total=formula(4)) if one.step == 3 else one for one in right]
    (found,) = proofs(EVENTS, swapped, {"low": formula})
    assert (found.holds, found.wrong) == (False, (3,))


def test_logs_are_read_line_by_line_of_each_life_and_rank(tmp_path: Path) -> None:
    for node, life, rank, text in (
        ("z0h000", 1, 0, "restored step 2\n1\nstep 2\nstep 3 sum ab12\n4 apples\nstep 4 sum"),
        ("z0h001", 2, 1, f"step 4 sum ff\nsaved step 4\n1764353714\nstep 1000001\n{'9' * 5000}\n"),
    ):
        folder = tmp_path / node / f"{life}-{rank}"
        folder.mkdir(parents=True)
        (folder / "log").write_text(text)
    assert list(steps_in(tmp_path, EVENTS)) == [
        StepLine(1, 1, 0, 2, what="restored"),
        StepLine(1, 1, 0, 1),
        StepLine(1, 1, 0, 2),
        StepLine(1, 1, 0, 3, "ab12"),
        StepLine(1, 2, 1, 4, "ff"),
    ]


def test_pairs_across_zones_count_over_all_jobs_at_once() -> None:
    assert most_across(EVENTS) == 1
    both = [{**EVENTS[1], "life": 8}, {**EVENTS[1], "life": 9}]
    assert most_across(both) == 2
