"""What is said of programs that have not ended."""

from __future__ import annotations

from fabric.world.programs.unfinished import MOST_HOSTS, Unfinished, in_words, names

LOOKS = "looks at memory that does not change"


def test_of_a_host_where_something_is_busy_that_is_said() -> None:
    programs = [
        Unfinished("h0", "sh", "waits"),
        Unfinished("h0", "spin", LOOKS),
        Unfinished("h0", "spin", LOOKS),
        Unfinished("h1", "sh", "waits"),
        Unfinished("h1", "sleep", "waits"),
    ]
    assert in_words(programs) == f"on h0 'spin' {LOOKS}, on h1 'sh' waits and 'sleep' waits"
    assert in_words([]) == ""


def test_many_programs_and_hosts_are_counted() -> None:
    hosts = [f"h{number}" for number in range(MOST_HOSTS + 2)]
    said = in_words(Unfinished(host, f"p{number}", "waits") for host in hosts for number in range(5))
    assert said.startswith("on h0 'p0' waits and 'p1' waits and 'p2' waits and 2 more, on h1 ")
    assert said.endswith("and so on, on 2 more hosts")
    assert names(hosts) == f"{', '.join(hosts[:MOST_HOSTS])} and 2 more"
    assert names(hosts[:2]) == "h0, h1"
