"""The qdisc ``vl`` does what a port of a lossless fabric does. Runs in guests; needs no root."""

from __future__ import annotations

import pytest

from tests.vl.guest import end_guests, measured

pytestmark = pytest.mark.guest

GBPS = 10**9
FRAME_BYTES = 4214
GOODPUT = 4148 / 4214
"""Of TCP's payload in frames."""
VICTIM, SENDERS = 0, slice(1, 4)
CHECKED = ("slub_debug=FZPU",)
"""The kernel then finds use of freed memory, and says where."""


@pytest.mark.parametrize(
    ("rate_bps", "size_bytes"),
    [(GBPS, 20_000_000), (10 * GBPS, 50_000_000), (200 * GBPS, 200_000_000)],
    ids=["1 Gbit/s", "10 Gbit/s", "200 Gbit/s"],
)
def test_a_saturated_link_carries_its_rate(rate_bps: int, size_bytes: int) -> None:
    assert measured("links", "rate", rate_bps, size_bytes) == pytest.approx(rate_bps, rel=2e-5)


@pytest.mark.parametrize(
    ("rate_bps", "delay_ns", "payload_bytes"),
    [(GBPS, 0, 100), (GBPS, 5000, 4000), (200 * GBPS, 1000, 4172)],
)
def test_a_lone_frame_takes_its_time_on_the_wire_and_the_delay_to_the_nanosecond(
    rate_bps: int, delay_ns: int, payload_bytes: int
) -> None:
    one_way_ns = (payload_bytes + 42) * 8 * 10**9 // rate_bps + delay_ns
    # Each of the two programs, and the one that measures, reads the clock, at 1 ns a time.
    assert measured("links", "latency", rate_bps, delay_ns, payload_bytes) == [pytest.approx(2 * one_way_ns, abs=4)] * 5


@pytest.mark.parametrize(
    ("weights", "payload_bytes"),
    [([128, 64, 32], [4172, 4172, 4172]), ([40, 35, 15, 5], [4172, 1000, 100, 4172])],
    ids=["equal frames", "frames of many sizes"],
)
def test_lanes_share_a_link_by_their_weights(weights: list[int], payload_bytes: list[int]) -> None:
    found = measured("links", "shares", 10 * GBPS, weights, payload_bytes, False)
    shares = [sent / sum(found["sent"]) for sent in found["sent"]]
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], rel=0.01)
    assert found["rate"] == pytest.approx(10 * GBPS, rel=0.001)
    assert found["dropped"] == 0


def test_random_arrivals_wait_as_long_as_queueing_theory_says() -> None:
    """M/D/1 (Pollaczek and Khinchine): on average rho / (2 (1 - rho)) times what a frame takes, at a load of rho."""
    loads, frames = [0.2, 0.4, 0.6, 0.8], [4000, 4000, 8000, 16_000]
    for load, found in zip(loads, measured("links", "poisson_waits", GBPS, loads, frames, 20), strict=True):
        ideal_ns = load / (2 * (1 - load)) * found["wire_ns"]
        print(f"load {load}: {found['mean_ns']:.0f} +- {found['error_ns']:.0f} ns, in theory {ideal_ns:.0f} ns")
        assert found["most_off_ns"] < 100
        assert abs(found["mean_ns"] - ideal_ns) < 3 * found["error_ns"]
        assert found["error_ns"] < 0.1 * ideal_ns


def test_high_priority_leaves_one_frame_to_the_others_after_its_limit() -> None:
    """With a limit of 4 KB, which a frame of 4,214 bytes uses up, high and low priority alternate."""
    found = measured("links", "shares", 10 * GBPS, [128, 64, 64], [4172] * 3, True)
    shares = [sent / sum(found["sent"]) for sent in found["sent"]]
    assert shares == pytest.approx([0.5, 0.25, 0.25], rel=0.01)


def test_too_few_credits_limit_the_rate_to_what_they_are_over_the_time_they_are_away() -> None:
    delay_ns, return_ns = 2000, 3000
    loop_ns = FRAME_BYTES * 8 / 10 + delay_ns + return_ns
    rate_bps = measured("links", "credits_bound", 2 * FRAME_BYTES, delay_ns, return_ns)
    assert rate_bps == pytest.approx(2 * FRAME_BYTES * 8e9 / loop_ns, rel=0.001)


def test_a_flooding_program_is_kept_waiting_and_nothing_is_lost() -> None:
    found = measured("links", "blocked_sender", 3000)
    assert found["received"] == 3000
    assert found["dropped_bytes"] == 0
    assert found["kept_s"] == pytest.approx(3000 * FRAME_BYTES * 8 / GBPS, rel=0.01)


@pytest.mark.parametrize("goes_ahead", [False, True], ids=["with data", "ahead"])
def test_data_comes_too_late_where_its_connections_own_acknowledgements_overtake_it(goes_ahead: bool) -> None:
    """TCP drops data that acknowledges what is older than a window (RFC 5961, 5.2): so lanes do not part the two."""
    found = measured("links", "both_ways", goes_ahead)
    assert (found["too_old"] > 0, found["sent_again"] > 0) == (goes_ahead, goes_ahead), found


def test_super_packets_are_cut_and_what_no_credit_is_enough_for_is_dropped_not_stalled() -> None:
    found = measured("links", "large_frames")
    assert found["rate"] == pytest.approx(10 * GBPS, rel=0.001)
    assert (found["unhurt"], found["too_big"], found["backlog"]) == (0, 10, 0)


@pytest.mark.parametrize("host_bps", [GBPS, 200 * GBPS], ids=["1 Gbit/s", "200 Gbit/s"])
class TestHeadOfLine:
    """Three senders on two leaves to one host, and a victim on one of the leaves to that host's neighbour."""

    def test_in_one_lane_the_victim_gets_no_more_than_those_that_it_stands_behind(self, host_bps: int) -> None:
        """Credits give both leaves the same rate into the congested one, where the host takes the rate of a link from
        three of four flows: x = victim + s1 = s2 + s3 and s1 + s2 + s3 = 1, so all get a third."""
        found = measured("fabrics", "head_of_line", "one lane", host_bps, 4 * host_bps)
        assert found["goodput_bps"] == pytest.approx([host_bps * GOODPUT / 3] * 4, rel=0.01)
        self.assert_lossless(found)

    def test_in_its_own_lane_the_victim_has_its_link(self, host_bps: int) -> None:
        found = measured("fabrics", "head_of_line", "own lane", host_bps, 4 * host_bps)
        assert found["goodput_bps"][VICTIM] == pytest.approx(host_bps * GOODPUT, rel=0.01)
        assert sum(found["goodput_bps"][SENDERS]) == pytest.approx(host_bps * GOODPUT, rel=0.01)
        self.assert_lossless(found)

    def test_without_flow_control_the_victim_has_its_link_and_the_others_lose_frames(self, host_bps: int) -> None:
        found = measured("fabrics", "head_of_line", "lossy", host_bps, 4 * host_bps)
        assert found["goodput_bps"][VICTIM] == pytest.approx(host_bps * GOODPUT, rel=0.02)
        assert found["dropped_bytes"] > 0
        assert found["retransmissions"] > 0
        assert found["stalled"] == []

    @staticmethod
    def assert_lossless(found: dict[str, object]) -> None:
        assert (found["dropped_bytes"], found["retransmissions"]) == (0, 0)
        assert 32 * 1024 < int(str(found["most_buffered_bytes"])) <= 64 * 1024
        assert {"sp-l3", "l1-sp", "l2-sp", "s1-l1"} <= set(map(str, found["stalled"]))  # type: ignore[call-overload]


NEEDED_HEADROOM_BYTES = 2 * 2000 * 10 // 8 + 2 * FRAME_BYTES
"""What comes after a stop was decided on: what 10 Gbit/s are in the delay there and back, and a frame at each end."""


def test_pfc_with_headroom_for_what_is_under_way_loses_nothing() -> None:
    found = measured("fabrics", "pfc", NEEDED_HEADROOM_BYTES)
    assert (found["headroom_drops"], found["other_drops"]) == (0, 0)
    assert found["rate"] == pytest.approx(10 * GBPS, rel=0.01)
    assert 64 * 1024 < found["most_buffered_bytes"] <= 64 * 1024 + NEEDED_HEADROOM_BYTES
    assert found["stops"] > 0


def test_pfc_with_too_little_headroom_drops_and_says_so() -> None:
    found = measured("fabrics", "pfc", FRAME_BYTES)
    assert found["headroom_drops"] > 0
    assert found["other_drops"] == 0


@pytest.mark.parametrize(
    "fault", ["dropped by a rule", "consumed by the switch's own stack", "cloned", "shown to the controller"]
)
def test_frames_that_end_in_the_switch_give_their_credits_back(fault: str) -> None:
    found = measured("leaks", "injected", fault, kernel_parameters=CHECKED)
    assert_nothing_leaked(found)
    assert found["before"] == 3000
    assert found["dropped_packets"] == {}


@pytest.mark.parametrize("fault", ["link flaps", "queues replaced", "interface deleted"])
def test_links_and_queues_that_go_away_under_load_lose_no_credit(fault: str) -> None:
    """``before``: how often, of a hundred looks, frames were on both links of the switch when the fault came."""
    found = measured("leaks", "injected", fault, kernel_parameters=CHECKED)
    assert_nothing_leaked(found)
    assert found["before"] > 30
    if fault == "link flaps":
        assert {f"{name} LINK_DOWN" for name in ("a-s", "s-a", "b-s", "s-b")} == set(found["dropped_packets"])


def assert_nothing_leaked(found: dict[str, object]) -> None:
    zeros = dict.fromkeys(("a-s", "s-a", "b-s", "s-b"), 0)
    assert (found["used_bytes"], found["buffered_bytes"], found["backlog_bytes"]) == (zeros, zeros, 0)
    assert 0 < int(str(found["most_buffered_bytes"])) <= 32 * 1024
    assert found["rate"] == pytest.approx(10 * GBPS, rel=1e-4)
    assert found["unloaded"], "the module is still in use: a record was lost"


def test_a_deadlock_is_reported_with_the_ports_of_its_cycle() -> None:
    found = measured("rings", "flooded", 3)
    assert [sorted(cycle) for cycle in found["cycles"]] == [["r1-r2 0", "r2-r3 0", "r3-r1 0"]]
    assert (found["sent_since"], found["dropped_bytes"]) == (0, 0)
    assert {"h1-r1", "h2-r2", "h3-r3"} < set(found["stalled"])


def test_a_ring_that_is_merely_busy_is_no_deadlock() -> None:
    found = measured("rings", "flooded", 1)
    assert found["cycles"] == []
    assert found["sent_since"] > 0


def test_a_port_whose_other_end_merges_frames_is_refused() -> None:
    assert "the other end merges frames; switch that off: ethtool -K INTERFACE gro off" in measured(
        "edges", "merging_refused"
    )


def test_frames_that_the_other_end_merges_give_their_credits_back() -> None:
    """Merging takes a frame's destructor off without calling it; that no credit is lost is veth's doing, which does."""
    found = measured("edges", "merging_later")
    assert found["used"] == 0
    assert found["came"] < 0.3 * found["sent"], "nothing was merged"
    assert found["merged"] == pytest.approx(found["before"], rel=0.01)


def test_a_cut_that_is_over_before_anybody_looks_loses_what_waited() -> None:
    found = measured("edges", "short_cut")
    assert found["waiting"] > 5
    assert (found["left"], found["cut"], found["others"]) == (0, found["waiting"], 0)


def test_a_port_tells_of_as_many_waits_as_forty_ports_of_fourteen_lanes_have() -> None:
    """A lane's first frame is being sent or waits; each lane but that of the one being sent has one of each host."""
    assert 559 <= measured("edges", "many_waits", 40, 14) <= 560


def test_jitter_delays_frames_evenly_up_to_its_limit_and_keeps_their_order_and_the_rate() -> None:
    wire_ns, jitter_ns, frames = 1000 * 8 // 10, 3000, 200
    end_guests()
    found = measured("edges", "jittered", jitter_ns, frames)
    end_guests()
    again = measured("edges", "jittered", jitter_ns, frames)  # A guest draws from its seed by what it drew before.
    waits = [took - wire_ns for took in found["took_ns"]]
    assert 0 <= min(waits) < 0.1 * jitter_ns
    assert 0.9 * jitter_ns < max(waits) <= jitter_ns + 5
    assert sum(waits) / frames == pytest.approx(jitter_ns / 2, rel=0.15)
    assert found["order"] == list(range(frames))
    assert found["rate"] == pytest.approx(10 * GBPS, rel=1e-3)
    assert again == found, "one seed, one spread"


@pytest.mark.parametrize("offset_ns", [500, 3000, 7500])
def test_who_looks_at_a_port_sees_each_start_at_its_time(offset_ns: int) -> None:
    """Frames arrive 7 us after the start of another; so much later a port has its next reason to run by itself."""
    frames = 40
    assert measured("starts", "backlogs", frames, 87_000, offset_ns) == list(range(frames - 1, -1, -1))


@pytest.mark.parametrize("delay_ns", [0, 7000, 87_000])
def test_a_frame_finds_the_room_that_the_start_before_it_has_left(delay_ns: int) -> None:
    assert measured("starts", "dropped_where_one_fits", 40, delay_ns, 3000) == 0


@pytest.mark.parametrize("delay_ns", [0, 7000, 1_000_000])
def test_a_slow_port_gives_credits_back_as_it_sends_however_long_its_link(delay_ns: int) -> None:
    """A frame takes 16 us there. Its credit brings the one after the next, which takes 28 us to come, when it has been
    sent: two follow each other, and the next two begin as late."""
    gaps_ns = measured("starts", "gaps_behind_a_slow_port", 20, delay_ns)
    assert gaps_ns == [pytest.approx(16_000 if number % 2 == 0 else 28_000, abs=4) for number in range(19)]


APART_S = 50e-6


def test_what_a_paused_port_has_waits_until_the_end_of_the_pause_and_comes_in_order() -> None:
    found = measured("pauses", "paused", 1e-3, 2e-3, 0.0, 100)
    assert [number for number, _, _ in found["came"]] == list(range(100))
    late = [number for number, sent_s, came_s in found["came"] if came_s - sent_s > APART_S]
    assert late == list(range(20 + (late[0] == 21), 59 + (late[-1] == 59)))
    assert all(3e-3 <= found["came"][number][2] < 3.1e-3 for number in late)
    assert (found["stalls"], found["dropped"]) == (1, 0)
    assert found["stalled_s"] == pytest.approx(2e-3, abs=APART_S)


def test_a_watchdog_drops_what_waits_and_what_comes_until_there_is_room_for_as_long_again() -> None:
    """From 1.5 ms, which is 0.5 ms of standing still, until 0.5 ms after the pause."""
    found = measured("pauses", "paused", 1e-3, 2e-3, 0.5e-3, 120)
    came = [number for number, _, _ in found["came"]]
    lost = sorted(set(range(120)) - set(came))
    assert found["dropped"] == len(lost)
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert lost[0] in (20, 21)
    assert lost[-1] * APART_S == pytest.approx(3.5e-3, abs=2 * APART_S)
    assert all(came_s - sent_s < APART_S for _, sent_s, came_s in found["came"])
    assert found["stalled_s"] == pytest.approx(0.5e-3, abs=APART_S)


def test_a_pause_shorter_than_the_watchdog_loses_nothing() -> None:
    found = measured("pauses", "paused", 1e-3, 0.4e-3, 0.5e-3, 60)
    assert ([number for number, _, _ in found["came"]], found["dropped"]) == (list(range(60)), 0)


LIFETIME_S = 0.4e-3


def test_a_first_frame_that_lacks_room_for_a_lifetime_is_dropped_and_then_the_next_one() -> None:
    """In a pause of 2 ms four of them, 0.4 ms after each other, from the first that waits on; a fifth has 2 ms less."""
    found = measured("pauses", "paused", 1e-3, 2.1e-3, 0.0, 100, LIFETIME_S)
    came = [number for number, _, _ in found["came"]]
    lost = sorted(set(range(100)) - set(came))
    assert (len(lost), found["dropped"], found["stalls"]) == (5, 5, 1)
    assert lost == list(range(lost[0], lost[0] + 5)) and lost[0] in (20, 21)
    assert came == sorted(came)


def test_a_pause_shorter_than_a_lifetime_loses_nothing() -> None:
    found = measured("pauses", "paused", 1e-3, LIFETIME_S - 50e-6, 0.0, 60, LIFETIME_S)
    assert ([number for number, _, _ in found["came"]], found["dropped"]) == (list(range(60)), 0)


GBPS = 10**9
FRAME, FRAMING, CUT = 4000, 24, 64
READS_NS = 40
"""What reading clocks and sockets takes at both ends."""


def time_ns(size_bytes: int, rate_bps: int) -> float:
    return size_bytes * 8e9 / rate_bps


@pytest.mark.parametrize("links", [1, 2, 4])
def test_a_frame_is_received_whole_before_each_switch_sends_it_on(links: int) -> None:
    (came_ns,) = measured("wires", "arrivals_ns", [10 * GBPS] * links, FRAME, 0, 0, 1)
    assert came_ns == pytest.approx(links * (time_ns(FRAME, 10 * GBPS) + 1000), abs=READS_NS)


@pytest.mark.parametrize("links", [2, 4])
def test_a_frame_that_is_cut_through_is_on_all_links_at_once(links: int) -> None:
    """Each switch waits for as much as it needs, and the last link carries all of it."""
    (came_ns,) = measured("wires", "arrivals_ns", [10 * GBPS] * links, FRAME, 0, CUT, 1)
    expected_ns = (links - 1) * time_ns(CUT, 10 * GBPS) + time_ns(FRAME, 10 * GBPS) + links * 1000
    assert came_ns == pytest.approx(expected_ns, abs=READS_NS)


def test_a_fast_link_sends_no_bit_that_has_not_come_over_a_slow_one() -> None:
    """Its last bit follows that of the slow link at once; the other way round only the slow one counts."""
    (came_ns,) = measured("wires", "arrivals_ns", [GBPS, 10 * GBPS], FRAME, 0, CUT, 1)
    assert came_ns == pytest.approx(time_ns(FRAME, GBPS) + 2000, abs=READS_NS)
    (came_ns,) = measured("wires", "arrivals_ns", [10 * GBPS, GBPS], FRAME, 0, CUT, 1)
    assert came_ns == pytest.approx(time_ns(CUT, 10 * GBPS) + time_ns(FRAME, GBPS) + 2000, abs=READS_NS)


@pytest.mark.parametrize("cut_through", [0, CUT])
@pytest.mark.parametrize("size", [100, FRAME])
def test_frames_follow_each_other_at_the_rate_less_their_framing(size: int, cut_through: int) -> None:
    frames = 20
    found_ns = measured("wires", "arrivals_ns", [GBPS, GBPS], size, FRAMING, cut_through, frames)
    each_ns = (found_ns[-1] - found_ns[0]) / (frames - 1)
    assert each_ns == pytest.approx(time_ns(size + FRAMING, GBPS), abs=READS_NS / frames + 1)
