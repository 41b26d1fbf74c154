"""What TCP takes for a loss where packets overtake each other."""

from __future__ import annotations

from traffic.transport.reordering import sysctls


def test_more_later_packets_take_the_place_of_time() -> None:
    """The kernel takes no more than the most, so that is written first."""
    assert [*sysctls(1000).items()] == [
        ("net/ipv4/tcp_recovery", "0"),
        ("net/ipv4/tcp_max_reordering", "1000"),
        ("net/ipv4/tcp_reordering", "1000"),
    ]


def test_without_them_linux_goes_by_time_again() -> None:
    assert sysctls(None) == {
        "net/ipv4/tcp_recovery": "1",
        "net/ipv4/tcp_reordering": "3",
        "net/ipv4/tcp_max_reordering": "300",
    }
