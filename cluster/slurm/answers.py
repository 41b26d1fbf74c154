"""What scontrol prints of jobs and nodes, as values. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabric.errors import TrafficError

NOT_RESPONDING = "NOT_RESPONDING"
_NOTHING = ("", "(null)", "None", "N/A", "Unknown")
_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class SlurmJobSeen:
    """A job as ``scontrol show job`` shows it. ``number``: our own, which is its name there; ``is_told``: whether its
    nodes are to be taken from it; ``nodes``: in the order of ranks."""

    identity: int
    number: int
    state: str
    restarts: int
    nodes: tuple[str, ...]
    code: int
    reason: str = ""
    is_told: bool = False


@dataclass(frozen=True)
class SlurmNodeSeen:
    """A node as ``scontrol show node`` shows it: its states, and why it is out, if so."""

    name: str
    states: frozenset[str]
    reason: str = ""

    @property
    def is_out(self) -> bool:
        """Whether no job gets it, or keeps it."""
        return bool(self.states & {"DOWN", "DRAIN", "FAIL", "FUTURE", "INVAL", "INVALID_REG"})

    @property
    def is_idle(self) -> bool:
        """Whether it answers, and has no job."""
        return self.states == {"IDLE"}


def jobs_in(text: str) -> list[SlurmJobSeen]:
    """Return the jobs of ``scontrol --oneliner show job``. Raises TrafficError for what is no such line."""
    return [_job(line) for line in text.splitlines() if line.startswith("JobId=")]


def nodes_in(text: str) -> list[SlurmNodeSeen]:
    """Return the nodes of ``scontrol --oneliner show node``."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _job(line: str) -> SlurmJobSeen:
    try:
        status, _, signal = _value(line, "ExitCode").partition(":")
        return SlurmJobSeen(
            identity=int(_value(line, "JobId")),
            number=int(_value(line, "JobName")),
            state=_value(line, "JobState"),
            restarts=int(_value(line, "Restarts")),
            nodes=hosts_in(_value(line, "NodeList")),
            code=int(status) or (128 + int(signal) if int(signal) else 0),
            reason=_value(line, "Reason"),
            is_told=_value(line, "PreemptTime") != "",
        )
    except ValueError as error:
        raise TrafficError(f"scontrol shows a job that cannot be read ({error}): {line}") from None


def _node(line: str) -> SlurmNodeSeen:
    # A star, before 22.05, says that it does not answer, which is not yet that it is down.
    words = _value(line, "State").replace("*", f"+{NOT_RESPONDING}").split("+")
    states = frozenset(re.sub(r"[^A-Z_]", "", word) for word in words)
    reason = re.search(r"\sReason=(.*?)(?: \[\S+@\S+\])?\s*(?:\s\w+=|$)", line)
    return SlurmNodeSeen(_value(line, "NodeName"), states, reason[1].strip() if reason else "")


def _value(line: str, key: str) -> str:
    found = re.search(rf"(?:^|\s){key}=(\S*)", line)
    return "" if found is None or found[1] in _NOTHING else found[1]


def hosts_in(text: str) -> tuple[str, ...]:
    """Return the hosts of Slurm's short form, such as ``z0h[001-003,007],z1h000``, in its order."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        head, bracket, inner = part.partition("[")
        if not bracket:
            found.append(part)
            continue
        for one in inner.rstrip("]").split(","):
            ends = _RANGE.fullmatch(one)
            first, last = (ends[1], ends[2]) if ends else (one, one)
            found += [f"{head}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return tuple(found)
