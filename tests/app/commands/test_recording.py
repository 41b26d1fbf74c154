"""What ``fabric exec --record`` says of what it has written."""

from __future__ import annotations

from app.commands.recording import words_of
from traffic.work.graph import RankWork, graph_of
from traffic.work.operations import Receive, Send
from traffic.work.recording.maker import Recording


def recorded(size_bytes: int, left_out: dict[str, int], faults: tuple[str, ...] = ()) -> Recording:
    sender, receiver = RankWork(), RankWork()
    sender.add(Send(peer=1, size_bytes=size_bytes))
    receiver.add(Receive(peer=0, size_bytes=size_bytes))
    return Recording(graph_of("job", [sender, receiver]), ("a", "b"), 0.0123, left_out, faults)


def test_what_there_is_and_what_was_left_out() -> None:
    made = recorded(4 * 2**20, {"datagrams (UDP)": 2048, "connections of a host with itself": 0}, ("one",))
    assert words_of(made, sent_bytes=int(4.2 * 2**20)) == [
        "2 ranks, 1 messages, 4 MiB, 12.300 ms from the first byte to the last",
        "left out: datagrams (UDP): 2 KiB",
        "doubtful: one",
    ]


def test_what_hosts_have_sent_besides_is_said() -> None:
    made = recorded(4 * 2**20, {"datagrams (UDP)": 2**20, "connections of a host with itself": 2**30})
    assert len(words_of(made, sent_bytes=6 * 2**20)) == 3, "headers, and less than a MB"
    *_, doubt = words_of(made, sent_bytes=10 * 2**20)
    assert doubt.startswith("doubtful: hosts have sent 10 MiB, headers counted: programs that are linked statically, ")
