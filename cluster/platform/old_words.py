"""Sentences of journals and tables from before their numbers were kept beside them: the only place that reads text of
the program itself. Results of today do not come here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cluster.health.unwell import Unwell
from cluster.platform.reasons import FailedChecks, Lemon, NoAnswer, OfNodes, Silent, Why

if TYPE_CHECKING:
    import pandas as pd

_SILENT = re.compile(r"not heard(?: for ([0-9.]+) s|: (.*))?$")
_LATE = re.compile(r", complete ([0-9.]+) s before$")
_CHECKS = re.compile(r"validator( after a repair)?: (.*)$", re.DOTALL)
_XID = re.compile(r"\bXid (\d+)")
_NODES = r"([\w.-]+(?:, [\w.-]+)*): "
_NO_ANSWER = re.compile(_NODES + r"no answer within ([0-9.e+]+) s$")
_OF_NODES = re.compile(_NODES + "(.*)$", re.DOTALL)
_STEP = re.compile(r"step (\d+)")


def why_out(words: str, unheard_s: float = 0.0, by: str = "") -> Why:
    """Return the reason why a node went out, of its sentence. ``by``: what the journal says took it out; empty: it is
    older than that. Those whose sentence tells nothing more stay text."""
    if by == "silence" or (not by and _SILENT.match(words)):
        found = _SILENT.match(words)
        told_s, asked = found.groups() if found else (None, words)
        return Silent(unheard_s or float(told_s or 0.0), asked or "")
    head, colon, rest = words.partition("unwell: ")
    if colon and not head:
        return Unwell(rest, xids_in(words))
    if words.startswith("lemon"):
        return Lemon(words.partition(": ")[2])
    if (checks := _CHECKS.match(words)) is not None:
        return FailedChecks(checks[2], xids_in(words), bool(checks[1]))
    return words


def xids_in(words: str) -> tuple[int, ...]:
    """Return the Xids that a sentence names."""
    return tuple(int(number) for number in _XID.findall(words))


def why_ended(words: str) -> Why:
    """Return the reason why a life was told to end or waits again, of its sentence: the nodes before its colon."""
    if (silent := _NO_ANSWER.match(words)) is not None:
        return NoAnswer(tuple(silent[1].split(", ")), float(silent[2]))
    found = _OF_NODES.match(words)
    return words if found is None else OfNodes(tuple(found[1].split(", ")), found[2])


# Columns of platform_events ------------------------------------------------------------------------------------------


def steps(events: pd.DataFrame) -> list[int]:
    """Return the steps that events of a table without ``step`` name; -1: none."""
    has_step = events["event"].astype(str).isin(["saved", "left", "finished"])
    words = events["why"].astype(str).where(has_step, "")
    found = [_STEP.search(one) for one in words]
    return [-1 if one is None else int(one[1]) for one in found]


def earlier_s(events: pd.DataFrame) -> list[float]:
    """Return how long before an event that happened which it tells, of a table without ``earlier_s``."""
    return [_earlier_s(event, words) for event, words in _told(events)]


def _earlier_s(event: str, words: str) -> float:
    found = {"node_out": _SILENT.match, "saved": _LATE.search}.get(event, lambda words: None)(words)
    return float(found[1] or 0.0) if found else 0.0


def reasons(events: pd.DataFrame) -> list[Why]:
    """Return the reasons of a table that has their words alone."""
    return [_reason(event, words) for event, words in _told(events)]


def _reason(event: str, words: str) -> Why:
    if event == "node_out":
        return why_out(words)
    return why_ended(words) if event in ("restart", "requeued") else words


def _told(events: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(events["event"].astype(str), events["why"].astype(str), strict=True))
