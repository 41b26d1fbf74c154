"""Names of operations in graphs of this project, read as values: the only place that takes one apart.

A name is a part of a graph's file. It begins with a word for what the operation is for, and has numbers behind that:
``forward 3.0`` (micro-batch, chunk), ``push 7 part 0 of 2`` (step, part, worker), ``dispatch of attn(F) 12`` (a call
that moves tokens, of a phase of a layer). Names in graphs of others, such as traces, have no such form, and no values.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from traffic.work.operations import COMMUNICATION

_MOVED = re.compile(r"(\w+) of (\w+\(\w\)) (\d+)")
_PHASE = re.compile(r" of (\w+\(\w\))")


class Moved(NamedTuple):
    """A call that moves tokens: ``what`` it does (dispatch or combine), in which ``phase`` of which ``layer``."""

    what: str
    phase: str
    layer: int


def word_of(name: str) -> str:
    """Return what an operation is for, such as ``gradients`` or ``pipeline``; empty of one without a name."""
    return name.partition(" ")[0]


def forward_number(name: str) -> int | None:
    """Return the micro-batch of a piece of computing, if that is a forward pass of a rank's first chunk."""
    kind, _, rest = name.partition(" ")
    return int(rest.split(".")[0]) if kind == "forward" and rest.endswith(".0") else None


def pushing_worker(name: str) -> int | None:
    """Return the worker whose push of gradients to the server of the first part a receive takes; None of others."""
    words = name.split()
    return int(words[5]) if words[:1] == ["push"] and words[3] == "0" else None


def rail_group(place: int, of: str = "") -> str:
    """Return the name of the group of ranks at a place of their nodes, of those of the group ``of``."""
    return _group(of, "rail", place)


def node_group(node: int, of: str = "") -> str:
    """Return the name of the group of ranks on a node, of those of the group ``of``."""
    return _group(of, "node", node)


def _group(of: str, kind: str, number: int) -> str:
    return f"{of}.{kind}.{number}" if of else f"{kind}.{number}"


def is_over_rail(group: str) -> bool:
    """Return whether a group is one of :func:`rail_group`."""
    return "rail" in group.split(".")


def is_of_communication(stream: str) -> bool:
    """Return whether computing on a stream stands for a communication (:data:`traffic.work.operations.COMMUNICATION`),
    such as ``communication in node``."""
    return word_of(stream) == COMMUNICATION


def moved(name: str) -> Moved | None:
    """Return the call that moves tokens of which an operation is a part; None of others."""
    found = _MOVED.match(name)
    return None if found is None else Moved(found[1], found[2], int(found[3]))


def phase_in(name: str) -> str | None:
    """Return the phase of a layer that an operation which communicates belongs to; None of others."""
    found = _PHASE.search(name)
    return None if found is None else found[1]
