"""What became of users' jobs, by the rows of a platform's tables."""

from __future__ import annotations

from fabric.report.users_jobs import Held, NodeOut, users_jobs
from fabric.report.view.users import users_on_page

NAMES = ("at_s", "event", "number", "life", "nodes", "why")
ROWS = (
    (0, "submitted", 1, 1, "", "low"),
    (1, "started", 1, 1, "a b", "two nodes are free"),
    (3, "suspend", 1, 1, "", "another comes first"),
    (4, "left", 1, 1, "", "code 75, step 3"),
    (7, "started", 1, 2, "a", "again"),
    (8, "node_out", 0, 0, "b", "not heard for 60 s"),
    (9, "node_out", 0, 0, "c", "slow"),
    (9.5, "node_out", 0, 0, "c", "slow still"),
    (10, "node_back", 0, 0, "b", "it is heard"),
    (12, "finished", 1, 2, "", "code 0, step 9"),
    (13, "submitted", 3, 3, "", "late"),
    (14, "started", 3, 3, "b", ""),
    (15, "submitted", 4, 4, "", "never"),
    (16, "submitted", 5, 5, "", "withdrawn"),
    (17, "cancel", 5, 5, "", "its user stopped it"),
    (17, "left", 5, 5, "", "code 1, step None"),
)
STEPS: dict[float, int] = {4: 3, 12: 9}
EVENTS = [{**dict(zip(NAMES, row, strict=True)), "step": STEPS.get(row[0], -1)} for row in ROWS]
JOBS = [{"number": 1, "name": "low", "user": "ada", "priority": "NORMAL", "asks": 2}]
FOUND = users_jobs(EVENTS, JOBS, 20, ("together", "platform"))


def test_who_held_a_node_follows_from_the_events() -> None:
    assert FOUND.held() == [
        Held("a", "low", 1, 4, "suspend"),
        Held("a", "low", 7, 12, "finished"),
        Held("b", "low", 1, 4, "suspend"),
        Held("b", "", 8, 10, "node_back"),
        Held("b", "late", 14, 20, ""),
        Held("c", "", 9, 20, ""),
    ]
    assert FOUND.out == (
        NodeOut("b", 8, 10, "not heard for 60 s", "it is heard"),
        NodeOut("c", 9, 20, "slow"),
    )


def test_jobs_wait_until_they_have_nodes_and_are_told_with_the_step_saved() -> None:
    low, late, never, withdrawn = FOUND.jobs
    assert (low.user, low.priority, low.asks, low.waits) == ("ada", "NORMAL", 2, ((0, 1), (4, 7)))
    first, second = low.lives
    assert (first.told_s, first.ended_s, first.end, first.end_why, first.step) == (
        3,
        4,
        "suspend",
        "another comes first",
        3,
    )
    assert (second.told_s, second.end, second.step) == (None, "finished", 9)
    assert (late.lives[0].end, late.lives[0].ended_s, late.user, late.asks) == ("", 20, "", 0)
    assert (never.lives, never.waits, withdrawn.waits) == ((), ((15, 20),), ((16, 17),))


def test_the_page_has_them_as_values_and_says_what_it_leaves_out() -> None:
    ((value,), notes) = users_on_page([FOUND])
    assert notes == []
    assert (value["platform"], value["phase"], len(value["jobs"]), len(value["out"])) == ("platform", "together", 4, 2)
    assert value["events"][3] == [4.0, "left", 1, "", "code 75, step 3"]
    many = [
        {"at_s": 0.0, "event": "submitted", "number": n, "life": n, "nodes": "", "why": f"j{n}"} for n in range(2001)
    ]
    ((value,), notes) = users_on_page([users_jobs(many, [], 1.0, ("p", "platform"))])
    assert (len(value["jobs"]), notes) == (2000, ["1 jobs of platform are left out"])
