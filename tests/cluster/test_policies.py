"""Scheduling policies: each one's order, and where their names are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands.cluster_play import add_play_options
from app.commands.parsers import CommandParser
from cluster.platform.config import PlatformConfig, SubmittedJob, UserConfig
from cluster.policies import POLICIES, in_order
from cluster.tasks import Priority, Task, Users
from fabric.suggestions import one_of

LIMIT, SHARE = SubmittedJob.model_fields["limit"], UserConfig.model_fields["share"]
DOCUMENT = Path(__file__).parents[2] / "docs" / "cluster-scheduling.md"
TASKS = (
    Task(5, "ada", 1, Priority.NORMAL, chain=1, limit_s=400.0),
    Task(2, "bo", 1, Priority.NORMAL, limit_s=300.0),
    Task(3, "ada", 1, Priority.HIGH, limit_s=500.0),
    Task(4, "cy", 1, Priority.VERY_HIGH),
)
"""The first is a later life of the oldest chain."""
USERS = Users(usage={"ada": 100.0, "bo": 90.0, "cy": 80.0}, shares={"ada": 4.0, "bo": 3.0})
ORDERS = {
    "hai": [4, 3, 5, 2],
    "hai_backfill": [4, 3, 5, 2],
    "fifo": [5, 2, 3, 4],
    "easy": [5, 2, 3, 4],
    "fair_share": [3, 5, 2, 4],
}
"""The numbers of these tasks in the order of each policy."""


def test_every_policy_has_its_order_here_and_its_row_in_the_document() -> None:
    assert list(ORDERS) == list(POLICIES)
    rows = [row.split("|")[1] for row in DOCUMENT.read_text().splitlines() if row.startswith("| `")]
    assert all(any(f"`{name}`" in cell for cell in rows) for name in POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_tasks_are_in_the_order_of_the_policy(name: str) -> None:
    for tasks in (TASKS, TASKS[::-1]):
        order = in_order(POLICIES[name], tasks, [task.priority for task in tasks], USERS)
        assert [tasks[place].number for place in order] == ORDERS[name]


def test_help_and_descriptions_name_the_policies() -> None:
    parser = CommandParser()
    add_play_options(parser)
    assert f"{one_of(POLICIES)} (default: all)" in " ".join(parser.format_help().split())
    assert str(PlatformConfig.model_fields["policy"].description).endswith(f": {one_of(POLICIES)}.")
    limited, shared = (str(one.description) for one in (LIMIT, SHARE))
    assert [name for name in ("hai", "fifo", "easy", "fair_share") if name in limited] == ["easy", "fair_share"]
    assert [name for name in ("hai", "easy", "fair_share") if name in shared] == ["fair_share"]
