"""Recordings as graphs: what waits for what, how long it computes, and what is left out."""

from __future__ import annotations

import random

import pytest

from fabric.errors import TrafficError
from tests.traffic.work.recording.recorded import ASYNC, Made, assert_matched, lines, recording, told
from traffic.work.operations import Receive, Send


def pair() -> tuple[Made, Made]:
    """Return two processes, the second connected to the first."""
    server, client = told(0), told(1)
    client.connects(server, 4000)
    return server, client


def test_a_question_and_its_answer() -> None:
    """The client computes for 30 us before its second question, the server for 20 us before each answer."""
    server, client = pair()
    client.sends(100, 1000)
    server.receives(90, 1000, until=110)
    server.sends(130, 50, busy=20)
    client.receives(100, 50, until=140)
    client.sends(170, 1000, busy=30)
    server.receives(130, 1000, until=180)
    server.sends(200, 50, busy=20)
    client.receives(170, 50, until=210)
    made = recording(server, client)
    assert lines(made.graph, 0) == [
        "receive 1000 1",
        "compute 20 after 0",
        "send 50 1 after 1",
        "receive 1000 1 after 2",
        "compute 20 after 3",
        "send 50 1 after 4",
    ]
    assert lines(made.graph, 1) == [
        "send 1000 0",
        "receive 50 0 after 0",
        "compute 30 after 1",
        "send 1000 0 after 2",
        "receive 50 0 after 3",
    ]
    assert made.lasted_s == pytest.approx(110e-6)
    assert made.hosts == ("h0", "h1")
    assert (made.faults, sum(made.left_out.values())) == ((), 0)
    assert_matched(made.graph)


def test_the_rest_of_a_send_belongs_to_it_whoever_sends_it() -> None:
    """As in gloo: a thread offers 1,000 B, of which the socket takes 300; the loop's thread sends the rest while it
    receives, and what it sends so waits for nothing of that."""
    server, client = pair()
    client.sends(10, 300, wanted=1000, flags=ASYNC)
    client.receives(12, 500, thread=2)
    client.sends(13, 400, wanted=700, flags=ASYNC, thread=2)
    client.receives(14, 500, thread=2)
    client.wakes(13, 15, thread=2)
    client.sends(15, 300, flags=ASYNC, thread=2)
    server.sends(11, 1000)
    server.receives(20, 1000)
    made = recording(server, client)
    assert lines(made.graph, 1)[0] == "send 1000 0"
    assert [one for one in lines(made.graph, 1) if one.startswith("send")] == ["send 1000 0"]
    assert_matched(made.graph)


def test_what_follows_the_end_of_a_send_waits_for_it() -> None:
    """Of a socket with a timeout: a thread offers 1,000 B, waits for room, sends the rest, and computes."""
    server, client = pair()
    client.sends(10, 300, wanted=1000, flags=ASYNC)
    client.wakes(10, 30)
    client.sends(30, 700, flags=ASYNC)
    client.sends(80, 5, busy=50, flags=ASYNC)
    server.receives(90, 1005)
    made = recording(server, client)
    assert lines(made.graph, 1) == ["send 1000 0", "compute 50 after 0", "send 5 0 after 1"]


def test_both_ends_cut_a_stream_where_the_receiver_answered_half() -> None:
    server, client = pair()
    client.sends(10, 1000, until=40)
    server.receives(5, 600, until=20)
    server.sends(20, 7)
    server.receives(21, 400, until=40)
    client.receives(41, 7)
    made = recording(server, client)
    assert lines(made.graph, 1) == ["send 600 0", "send 400 0 after 0", "receive 7 0 after 1"]
    assert lines(made.graph, 0) == ["receive 600 1", "send 7 1 after 0", "receive 400 1 after 1"]
    assert_matched(made.graph)


def test_computing_between_two_reads_cuts_a_message_only_if_the_rest_was_there_already() -> None:
    """The receiver takes 30 us after each read. The second part came 70 us later, the third one was there."""
    server, client = pair()
    client.sends(10, 3000, until=80)
    server.receives(10, 1000, until=20)
    server.receives(50, 1000, until=90, busy=30)
    server.receives(120, 1000, busy=30)
    assert lines(recording(server, client).graph, 0) == [
        "receive 2000 1",
        "compute 30 after 0",
        "receive 1000 1 after 1",
    ]


def test_writes_that_follow_each_other_are_one_message_and_computing_in_between_makes_two() -> None:
    server, client = pair()
    for at_us in (10, 11, 12):
        client.sends(at_us, 100)
    client.sends(50, 100, busy=38)
    server.receives(60, 400)
    made = recording(server, client)
    assert lines(made.graph, 1) == ["send 300 0", "compute 38 after 0", "send 100 0 after 1"]


def test_a_thread_that_was_signalled_goes_on_after_what_the_other_one_had_received_and_computed() -> None:
    """Thread 2 receives, computes 7 us and signals thread 1, then computes 3 us more before it sends itself."""
    server, client = pair()
    other = told(2)
    other.connects(client, 4001, connection=1)
    client.sends(1, 10)
    server.receives(2, 10)
    server.sends(3, 500)
    client.receives(4, 500, thread=2)
    client.wakes(1, 11, by=2, by_busy_us=7)
    client.sends(11, 60)
    client.sends(14, 30, busy=10, thread=2, connection=1)
    server.receives(20, 60)
    other.receives(20, 30, connection=1)
    made = recording(server, client, other)
    found = lines(made.graph, 1)
    assert found == [
        "send 10 0",
        "receive 500 0 after 0",
        "compute 7 after 1",
        "send 60 0 after 2",
        "compute 3 after 2",
        "send 30 2 after 4",
    ]
    assert_matched(made.graph)


def test_a_wait_that_nobody_explains_is_a_pause() -> None:
    server, client = pair()
    client.sends(1, 10)
    client.wakes(1, 41)
    client.sends(41, 20)
    server.receives(50, 30)
    assert lines(recording(server, client).graph, 1) == ["send 10 0", "compute 40 after 0", "send 20 0 after 1"]


def test_a_wait_is_for_what_another_thread_received_meanwhile_if_nobody_says_more() -> None:
    server, client = pair()
    client.sends(1, 10)
    client.receives(26, 5, thread=2)
    client.wakes(1, 41)
    client.sends(41, 20)
    server.sends(3, 5)
    server.receives(50, 30)
    made = recording(server, client)
    assert lines(made.graph, 1) == ["send 10 0", "receive 5 0 after 0", "compute 15 after 1", "send 20 0 after 2"]


def test_ranks_that_begin_later_begin_as_late_in_the_graph() -> None:
    server, client = pair()
    late = told(2)
    late.connects(server, 4001, connection=1)
    client.sends(100, 10)
    server.receives(101, 10)
    late.sends(900, 10, connection=1, busy=900)
    server.receives(901, 10, connection=1)
    assert lines(recording(server, client, late).graph, 2) == ["compute 800", "send 10 0 after 0"]


def test_what_does_not_cross_the_fabric_or_has_one_end_only_is_left_out_and_counted() -> None:
    server, client = pair()
    client.sends(1, 10)
    server.receives(2, 10)
    away = Made(3)
    client.connects(away, 4001, connection=1, address="192.168.0.7")
    client.connects(away, 4002, connection=2)
    client.connects(told(1), 4003, connection=3)
    client.sends(3, 11, connection=1)
    client.sends(4, 12, connection=2)
    client.sends(5, 13, connection=3)
    client.local_bytes, client.datagram_bytes = 14, 15
    made = recording(server, client)
    assert {why: size for why, size in made.left_out.items() if size} == {
        "connections with 192.168.0.7, which is not an address of the fabric": 11,
        "connections with port 5000 of h3, where the program was not recorded": 12,
        "connections of a host with itself": 13 + 14,
        "datagrams (UDP)": 15,
    }
    assert [one.size_bytes for _, _, one in made.graph.all_operations() if isinstance(one, Send | Receive)] == [10, 10]


def test_faults_are_named() -> None:
    server, client = pair()
    client.sends(1, 10)
    server.receives(2, 25)
    server.lost = 3
    faults = recording(server, client).faults
    assert faults == (
        "job (process 100 on h0): 3 records found no room, so its end is missing",
        "15 B were received that no recorded call has sent; a program sent them in another way",
    )


def test_nothing_over_the_fabric_is_an_error_that_says_what_there_was() -> None:
    alone = told(0)
    alone.local_bytes = 2000
    with pytest.raises(TrafficError, match=r"nothing was recorded: .* \(connections of a host with itself: 2,000 B\)"):
        recording(alone)
    with pytest.raises(TrafficError, match="nothing was recorded"):
        recording()


def test_an_address_that_two_connections_had_one_after_the_other() -> None:
    server, client = pair()
    client.sends(1, 10)
    server.receives(2, 10)
    for made, local, remote in ((client, 4000, 5000), (server, 5000, 4000)):
        row = list(made.rows[0])
        row[0] = row[1] = 50_000
        row[4] += 5  # Another socket.
        row[6] = 1
        made.rows.append(tuple(row))
        assert (row[2] & 0xFFFF, row[3] & 0xFFFF) == (local, remote)
    client.sends(60, 20, connection=1)
    server.receives(61, 20, connection=1)
    graph = recording(server, client).graph
    assert [(one.size_bytes, one.tag // 2) for one in graph.operations[1] if isinstance(one, Send)] == [
        (10, 0),
        (20, 1),
    ]
    assert_matched(graph)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_programs_do_messages_match_and_nothing_waits_for_what_comes_later(seed: int) -> None:
    """Three processes with two threads each, whose sends are cut at random, as their receives are."""
    chance = random.Random(seed)
    made = [told(place) for place in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    for number, (first, second) in enumerate(pairs):
        made[first].connects(made[second], 4000 + number, connection=number)
    in_flight = dict.fromkeys([(a, b) for a, b in pairs] + [(b, a) for a, b in pairs], 0)
    total = 0
    for at_us in range(1, 400):
        (sender, receiver), waiting = chance.choice(list(in_flight.items()))
        connection = pairs.index((min(sender, receiver), max(sender, receiver)))
        how = {"connection": connection, "thread": chance.randint(1, 2), "busy": chance.choice([0, 0, 0.3, 4, 30])}
        if waiting and chance.random() < 0.6:
            size = chance.randint(1, waiting)
            in_flight[sender, receiver] -= size
            made[receiver].receives(at_us, size, **how)
        else:
            size = chance.randint(0, 100)
            total += size
            in_flight[sender, receiver] += size
            wanted = size + chance.choice([0, 0, 50])
            made[sender].sends(at_us, size, wanted=wanted, flags=chance.choice([0, ASYNC]), **how)
        if chance.random() < 0.2:
            process = chance.choice(made)
            process.wakes(at_us - 1, at_us, by=chance.randint(0, 2), by_busy_us=2, thread=chance.randint(1, 2))
    graph = recording(*made).graph
    assert_matched(graph)
    assert sum(one.size_bytes for _, _, one in graph.all_operations() if isinstance(one, Send)) == total
