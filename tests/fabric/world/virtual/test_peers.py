"""How guests of one run agree on time, as the stores and loads of ``peers.c.inc`` and ``peers.h.inc`` have it in every
interleaving."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest

from fabric.world.virtual.edits import HERE

SOURCE, SHARED, CARRIER = ((HERE / name).read_text() for name in ("peers.c.inc", "peers.h.inc", "carrier.c"))
IDLE_UNTIL, ARRIVES, PROMISED, LOOKAHEAD = 1000, 10, 50, 100


def body(function: str, source: str = SOURCE) -> str:
    found = re.search(rf"^static [\w ]+?\*?{function}\(.*?^}}\n", source, re.MULTILINE | re.DOTALL)
    assert found is not None, function
    return found[0]


def stores(function: str) -> tuple[str, ...]:
    """Return which members of its clock a guest sets, in their order: others see them in this order, too."""
    return tuple(re.findall(r"time_travel_store\(&clock->(\w+),", body(function, SHARED)))


def loads() -> tuple[str, ...]:
    """Return what a guest looks at to find out before which time another one sends nothing."""
    looks = r"time_travel_load\(&clocks\[other\]\.(\w+)\)|(time_travel_has_mail)\("
    found = re.findall(looks, body("time_travel_bound", SHARED))
    return tuple(member or call for member, call in found)


@dataclass
class Shared:
    """What the guest that is looked at has said, and whether something that was sent to it is not taken."""

    turn: int = 1
    idle: bool = True
    until: int = IDLE_UNTIL
    promise: int = PROMISED
    time_travel_has_mail: bool = True

    def store(self, what: str) -> None:
        if what == "turn":
            self.turn += 1
        elif what == "take":
            self.time_travel_has_mail = False
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
        before, promise, idle, until, has_mail, after = seen
        counts = idle and until + LOOKAHEAD > promise and not has_mail and before == after
        yield until + LOOKAHEAD if counts else promise


def test_a_guest_looks_at_the_turn_before_and_after_all_else_and_at_promises_before_rings() -> None:
    assert loads() == ("turn", "promise", "idle", "until", "time_travel_has_mail", "turn")


def test_no_guest_goes_beyond_what_another_one_may_still_send() -> None:
    order = (*stores("time_travel_set_busy"), "take")
    assert sorted(order) == ["idle", "take", "turn", "until"]
    found = list(bounds(order))
    assert len(found) == 210
    assert max(found) <= ARRIVES + LOOKAHEAD


@pytest.mark.parametrize("order", [("turn", "until", "idle", "take"), ("turn", "idle", "until", "take")])
def test_one_would_if_the_turn_changed_first(order: Sequence[str]) -> None:
    assert max(bounds(order)) == IDLE_UNTIL + LOOKAHEAD


def test_who_becomes_idle_says_so_last() -> None:
    assert stores("time_travel_set_idle") == ("turn", "until", "idle")
    for what in ("busy", "idle"):
        assert f"time_travel_set_{what}(" in body(f"time_travel_becomes_{what}")
    called = body("time_travel_waited_for")
    assert called.index("time_travel_becomes_busy()") < called.index("time_travel_take()")


def test_the_carrier_says_what_a_guest_of_another_machine_says_in_the_same_order() -> None:
    assert set(re.findall(r"time_travel_store\(&clock->(\w+),", CARRIER + SOURCE)) == {"promise"}, "the rest is shared"
    said = body("take_words", CARRIER)
    words = ("time_travel_set_busy(", "->written", "->taken", "clock->promise", "time_travel_set_idle(")
    order = [said.index(word) for word in words]
    assert order == sorted(order)


def test_the_carrier_reads_a_promise_before_what_was_sent_and_holds_together_what_an_idle_guest_said() -> None:
    read = body("read_words", CARRIER)
    order = [read.index(word) for word in ("->turn", "->promise", "->idle", "->until", "->taken", "->written")]
    assert order == sorted(order)
    assert read.rindex("->turn") > read.index("->written")


def test_who_sleeps_says_so_before_it_looks_for_the_last_time_and_who_wakes_looks_last() -> None:
    sleeps = body("time_travel_sleeps_until")
    assert (
        sleeps.index("__atomic_fetch_or") < sleeps.index("time_travel_own_bound()") < sleeps.index("os_wait_for_bell")
    )
    wakes = body("time_travel_wake")
    assert wakes.index("__atomic_thread_fence") < wakes.index("->asleep")


def test_what_comes_too_late_ends_the_run() -> None:
    added = SOURCE[SOURCE.index("void time_travel_add_arrival(") :]
    assert "WARN" not in added
    assert added.count("panic(") == 2
