"""Why lanes stand still: for links that are busy, for what is on its way out, or for nothing, which is a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fabric.model.lanes import PortLane
from fabric.queueing.vl import Wait
from fabric.stalls.causes import Stall, StallCause, StallLedger, stalls
from fabric.stalls.waits import PortView
from tests.fabric.queueing.vl_dumps import lane, port

INDEX = {name: i for i, name in enumerate(("ab", "ba", "bc", "cb", "cd", "dc", "ca", "ac"), start=1)}
SINCE_NS, NOW_NS = 100, 1000
AB = PortLane("ab", "0")


def _wait(entered: str, size_bytes: int) -> Wait:
    return Wait(input_index=INDEX[entered], input_lane=0, lane=0, bytes=size_bytes)


def view(
    name: str, *, stalled: bool = False, sending: bool = False, waits: Mapping[str, int] | None = None
) -> PortView:
    """A port ``ab`` is of switch a, on the link to b; ``waits``: by which port the bytes came in that wait here."""
    ahead = lane(0, stalled_since_ns=SINCE_NS if stalled else 0, used_bytes=900 if stalled else 0)
    held = [_wait(entered, size) for entered, size in (waits or {}).items()]
    stats = replace(port(INDEX[name], [ahead], held, now_ns=NOW_NS), link_packets=int(sending))
    return PortView(name[0], name[::-1], stats)


def ports(*views: PortView) -> dict[str, PortView]:
    """All ports of the chain a - b - c - d; those not given are idle."""
    found = {name: view(name) for name in INDEX}
    return found | {one.peer[::-1]: one for one in views}


def chain(*, sending: bool) -> dict[str, PortView]:
    """``ab`` waits for ``bc``, which waits for ``cd``, where frames wait, too."""
    return ports(
        view("ab", stalled=True),
        view("bc", stalled=True, waits={"ba": 900}),
        view("cd", sending=sending, waits={"cb": 900}),
    )


def cause_of(views: Mapping[str, PortView]) -> tuple[StallCause, PortLane | None]:
    (found,) = (stall for stall in stalls(views, 1) if stall.lane == AB)
    return found.cause, found.root


def test_a_chain_that_leads_to_a_link_that_sends_is_explained_by_it() -> None:
    assert cause_of(chain(sending=True)) == (StallCause.BUSY, PortLane("cd", "0"))


def test_only_stalls_as_long_as_asked_for_are_told_with_their_times() -> None:
    assert stalls(chain(sending=True), NOW_NS - SINCE_NS + 1) == []
    found = stalls(chain(sending=True), NOW_NS - SINCE_NS)
    assert {(stall.lane.port, stall.since_ns, stall.seen_ns) for stall in found} == {
        ("ab", SINCE_NS, NOW_NS),
        ("bc", SINCE_NS, NOW_NS),
    }
    assert found[0].lasted_ns == NOW_NS - SINCE_NS


def test_lanes_that_wait_for_each_other_wait_for_nothing_that_sends() -> None:
    circle = ports(
        view("ab", stalled=True, waits={"ac": 900}),
        view("bc", stalled=True, waits={"ba": 900}),
        view("ca", stalled=True, waits={"cb": 900}),
        view("cd", sending=True),
    )
    assert cause_of(circle) == (StallCause.NOTHING, None)


def test_a_circle_with_a_way_out_is_explained_by_it() -> None:
    circle = ports(
        view("ab", stalled=True, waits={"ac": 900}),
        view("bc", stalled=True, waits={"ba": 900}),
        view("ca", stalled=True, waits={"cb": 450}),
        view("cd", sending=True, waits={"cb": 450}),
    )
    assert cause_of(circle) == (StallCause.BUSY, PortLane("cd", "0"))


def test_what_waits_in_no_lane_is_on_its_way_out() -> None:
    assert cause_of(ports(view("ab", stalled=True))) == (StallCause.LEAVING, None)
    assert cause_of(ports(view("ab", stalled=True), view("bc", stalled=True, waits={"ba": 900}))) == (
        StallCause.LEAVING,
        None,
    )


def test_a_port_that_can_send_and_does_not_is_given_a_moment() -> None:
    assert cause_of(chain(sending=False)) == (StallCause.LEAVING, None)


def seen(cause: StallCause, seen_ns: int, since_ns: int = 0) -> Stall:
    return Stall(AB, since_ns, seen_ns, cause)


def test_a_stall_is_one_entry_however_often_it_is_seen() -> None:
    ledger = StallLedger(leaving_limit_ns=50)
    for seen_ns in (100, 200, 300):
        ledger.add([seen(StallCause.BUSY, seen_ns)])
    ledger.add([seen(StallCause.BUSY, 400, since_ns=350)])
    assert [(stall.since_ns, stall.lasted_ns) for stall in ledger.entries] == [(0, 300), (350, 50)]


def test_credits_that_never_come_are_found_by_how_long_they_take() -> None:
    """As when credits are lost: the buffer is taken as the sender knows, and nothing of it waits anywhere."""
    ledger, causes = StallLedger(leaving_limit_ns=50), []
    for seen_ns in (100, 150, 151):
        ledger.add([seen(StallCause.LEAVING, seen_ns)])
        causes.append(ledger.entries[0].cause)
    assert causes == [StallCause.LEAVING, StallCause.LEAVING, StallCause.NOTHING]


def test_what_leaves_again_and_again_but_not_for_long_is_explained() -> None:
    ledger = StallLedger(leaving_limit_ns=50)
    for seen_ns, cause in (
        (100, StallCause.LEAVING),
        (200, StallCause.BUSY),
        (300, StallCause.LEAVING),
        (340, StallCause.LEAVING),
    ):
        ledger.add([seen(cause, seen_ns)])
        assert ledger.is_leaving == (cause is StallCause.LEAVING)
    assert ledger.entries[0].cause is StallCause.LEAVING
    ledger.add([])
    assert not ledger.is_leaving


def test_what_was_once_unexplained_stays_so() -> None:
    ledger = StallLedger(leaving_limit_ns=50)
    ledger.add([seen(StallCause.NOTHING, 100)])
    ledger.add([seen(StallCause.BUSY, 200)])
    (entry,) = ledger.entries
    assert (entry.cause, entry.seen_ns) == (StallCause.NOTHING, 200)
