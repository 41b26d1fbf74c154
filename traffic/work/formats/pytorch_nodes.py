"""Nodes of PyTorch's execution traces, and the calls that they are, whichever level of PyTorch wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traffic.work.formats import names
from traffic.work.formats.values import sequence, shown, whole

_SPLIT = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Call:
    """A call of a collective, of a message, or of a wait. ``peer``: its rank: of a root, or of the other end, in the
    group. ``into``, ``out_of``: elements and bytes of an element of what a rank puts in and gets; ``sent``: elements to
    each place of the group; ``waits``: whether the host waits for its end at once; ``group``: None if nothing says it.
    """

    id: int
    collective: str
    request: str
    group: str | None
    peer: int
    into: tuple[int, int]
    out_of: tuple[int, int]
    sent: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    dtype: str = "fp32"
    tag: int = 0
    waits: bool = False


def values_of(node: Mapping[str, Any], which: str) -> Sequence[Any]:
    """Return the values of a node's inputs or outputs, flat or nested."""
    found = node.get(which, [])
    return sequence(found.get("values", []) if isinstance(found, dict) else found, which)


def attributes_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes by their names."""
    listed = sequence(node.get("attrs", []), "attrs")
    return {str(one.get("name")): one.get("value") for one in listed if isinstance(one, dict)}


def parent_of(node: Mapping[str, Any]) -> object:
    """Return the id of the node that called a node."""
    return node.get("ctrl_deps", node.get("parent"))


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor: its id, that of its memory, an offset, elements, bytes of one, the device."""
    return isinstance(value, list) and len(value) >= 5 and all(isinstance(one, int) for one in value[:5])


def elements_of(values: Any) -> tuple[int, int]:
    """Return how many elements the tensors in nested lists have, and how many bytes each has."""
    if is_tensor(values):
        return whole(values[3], "elements"), whole(values[4], "bytes of an element", 0, 64)
    found = [elements_of(one) for one in values] if isinstance(values, list) else []
    return sum(one for one, _ in found), max((width for _, width in found), default=0)


def type_of(node: Mapping[str, Any], place: int = 0) -> tuple[str, int] | None:
    """Return the type of the tensors in an input, and the bytes of an element; None if it says none."""
    inputs = node.get("inputs")
    types = inputs.get("types", []) if isinstance(inputs, dict) else node.get("input_types", [])
    for one in types[place : place + 1] if isinstance(types, list) else []:
        if match := re.search(r"Tensor\([^)]*\)", str(one)):
            return names.type_named(match.group())
    return None


def splits_of(value: Any) -> tuple[int, ...]:
    """Return a list of splits, which is a text in some versions. Raises ValueError if it was cut."""
    if isinstance(value, str):
        if "..." in value:
            raise ValueError(f"splits {shown(value)}: were cut when they were captured, so that sizes are not known")
        return tuple(int(one) for one in _SPLIT.findall(value[:10_000_000]))
    return tuple(whole(one, "split") for one in value) if isinstance(value, list) else ()


def in_elements(splits: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Return splits of a tensor in elements: they count rows of its first dimension. Raises ValueError."""
    total = sum(splits)
    if not splits or total == elements:
        return splits
    if total == 0 or elements % total:
        raise ValueError(
            f"splits {shown(str(list(splits)))} add up to {total:,}, and the tensor has {elements:,} elements"
        )
    return tuple(one * (elements // total) for one in splits)
