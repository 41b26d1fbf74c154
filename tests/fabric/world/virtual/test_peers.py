"""How guests of one run agree on time, as the stores and loads of ``peers.c.inc`` have it in every interleaving."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest

from fabric.world.virtual.edits import HERE

SOURCE = (HERE / "peers.c.inc").read_text()
IDLE_UNTIL, ARRIVES, LOOKAHEAD = 1000, 10, 100


def body(function: str) -> str:
    found = re.search(rf"^static \w+ {function}\(.*?^}}\n", SOURCE, re.MULTILINE | re.DOTALL)
    assert found is not None, function
    return found[0]


def stores(function: str) -> tuple[str, ...]:
    """Return which members of its clock a guest sets, in their order: others see them in this order, too."""
    return tuple(re.findall(r"virt_store_release\(&clock->(\w+),", body(function)))


def loads() -> tuple[str, ...]:
    """Return what a guest looks at to find out whether another one, and all that was sent, is quiet."""
    looks = r"virt_load_acquire\(&clocks\[guest\]\.(\w+)\)|(is_delivered)\("
    found = re.findall(looks, body("time_travel_quiet_until"))
    return tuple(member or call for member, call in found)


@dataclass
class Shared:
    """What the guest that is looked at has said, and whether all is taken that was sent to it."""

    turn: int = 1
    idle: bool = True
    until: int = IDLE_UNTIL
    is_delivered: bool = False

    def store(self, what: str) -> None:
        if what == "turn":
            self.turn += 1
        elif what == "take":
            self.is_delivered = True
        else:
            setattr(self, what, 0)


def bounds(order: Sequence[str]) -> Iterator[int]:
    """Yield, for each interleaving, the bound that a guest finds while another one stores, and takes something.

    What that one sends from then on arrives from ARRIVES + LOOKAHEAD on.
    """
    looks, count = loads(), len(order)
    for places in combinations(range(count + len(looks)), count):
        shared, seen, writes = Shared(), [], iter(order)
        reads = iter(looks)
        for step in range(count + len(looks)):
            if step in places:
                shared.store(next(writes))
            else:
                seen.append(int(getattr(shared, next(reads))))
        before, idle, until, is_delivered, after = seen
        yield until + LOOKAHEAD if idle and is_delivered and before == after else 0


def test_a_guest_looks_at_the_turn_before_and_after_all_else() -> None:
    assert loads() == ("turn", "idle", "until", "is_delivered", "turn")


def test_no_guest_goes_beyond_what_another_one_may_still_send() -> None:
    order = (*stores("time_travel_becomes_busy"), "take")
    assert sorted(order) == ["idle", "take", "turn", "until"]
    found = list(bounds(order))
    assert len(found) == 126
    assert max(found) <= ARRIVES + LOOKAHEAD


@pytest.mark.parametrize("order", [("turn", "until", "idle", "take"), ("turn", "idle", "until", "take")])
def test_one_would_if_the_turn_changed_first(order: Sequence[str]) -> None:
    assert max(bounds(order)) == IDLE_UNTIL + LOOKAHEAD


def test_who_becomes_idle_says_so_last() -> None:
    assert stores("time_travel_becomes_idle") == ("turn", "until", "idle")
    called = body("time_travel_waited_for")
    assert called.index("time_travel_becomes_busy()") < called.index("->take()")


def test_what_comes_too_late_ends_the_run() -> None:
    added = SOURCE[SOURCE.index("void time_travel_add_arrival(") :]
    assert "WARN" not in added
    assert added.count("panic(") == 2
