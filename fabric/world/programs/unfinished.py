"""What users' programs that have not ended do on hosts: whether they wait, look at memory or compute."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fabric.world.isolation import netns
from fabric.world.isolation.processes import all_stats

MOST_HOSTS = 8
"""Of which a text says what their programs do."""
_MOST_PROGRAMS = 3
_WAITS = "waits"
_WATCHES = "time_travel_watches_memory"
"""Where a guest's kernel has programs sleep that go round looking at memory (``spinning.c.inc``)."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Unfinished:
    """A process on a host, and what it does in words."""

    host: str
    name: str
    doing: str

    def __str__(self) -> str:
        return f"{self.name!r} {self.doing}"


def unfinished(sessions_apart: Container[int] = ()) -> list[Unfinished]:
    """Return the processes of users' programs on hosts, but for those of some sessions, by the names of hosts.

    A kernel numbers the processes of several hosts in the order in which their starts happen to run, so their numbers
    order only those of one host. Process 1 of a host, and those outside that wait for one inside, are none.
    """
    host_of = {path.stat().st_ino: path.name for path in netns.NETNS_DIR.iterdir()}
    programs = []
    for process, words in sorted(all_stats()):
        if int(words[3]) in sessions_apart:
            continue
        with suppress(OSError):
            place = Path(f"/proc/{process}")
            host_here = host_of.get((place / "ns/net").stat().st_ino)
            if host_here is not None and _is_users(place):
                name = (place / "comm").read_text().strip()
                programs.append(Unfinished(host_here, name, _doing(place, words)))
    return sorted(programs, key=lambda program: program.host)


def _is_users(place: Path) -> bool:
    """Return whether a process is in a PID namespace of its host's own, and not the first there."""
    lines = (place / "status").read_text().splitlines()
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] != "1"


def _doing(place: Path, words: list[str]) -> str:
    """Return what the busiest thread of a process does; ``words`` are those of its ``/proc/PID/stat``."""
    threads = list((place / "task").iterdir())
    if _WATCHES in {_read(thread / "wchan") for thread in threads}:
        return "looks at memory that does not change"
    if "R" in {_read(thread / "stat").rpartition(")")[2].strip()[:1] for thread in threads}:
        return f"computes ({(int(words[11]) + int(words[12])) / _TICKS_PER_S:.1f} s of CPU time)"
    return _WAITS


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # The thread has ended, or its kernel does not say.
        return ""


def in_words(programs: Iterable[Unfinished]) -> str:
    """Return what programs do, host by host; of a host where one does not wait, those that do not. Empty: none."""
    by_host: dict[str, list[Unfinished]] = {}
    for program in programs:
        by_host.setdefault(program.host, []).append(program)
    named = [f"on {host} {_together(of_host)}" for host, of_host in list(by_host.items())[:MOST_HOSTS]]
    more = len(by_host) - MOST_HOSTS
    return ", ".join([*named, f"and so on, on {more} more hosts"] if more > 0 else named)


def _together(of_host: list[Unfinished]) -> str:
    busy = [program for program in of_host if program.doing != _WAITS] or of_host
    texts = list(dict.fromkeys(map(str, busy)))
    more = len(texts) - _MOST_PROGRAMS
    return " and ".join([*texts[:_MOST_PROGRAMS], *([f"{more} more"] if more > 0 else [])])


def names(hosts: Sequence[str]) -> str:
    """Return hosts by name, the first ones of many."""
    more = len(hosts) - MOST_HOSTS
    return ", ".join(hosts[:MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")
