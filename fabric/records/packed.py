"""Several values in one cell of a result table: how they are written, and how they are read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NONE = -1
"""What stands in a column of whole numbers for none."""


def names_cell(names: Sequence[str]) -> str:
    """Return nodes, by rank if they are a job's, as a cell of ``platform_events``."""
    return " ".join(names)


def names_in(cell: object) -> tuple[str, ...]:
    """Return the nodes of a cell of :func:`names_cell`."""
    return tuple(str(cell).split())


def list_cell(values: Iterable[object]) -> str:
    """Return lines of a config or jobs as a cell of ``failures``."""
    return ", ".join(map(str, values))


def list_in(cell: object) -> tuple[str, ...]:
    """Return what a cell of :func:`list_cell` lists."""
    return tuple(str(cell).split(", ")) if str(cell) else ()


def causes_in(cell: object) -> tuple[int, ...]:
    """Return the numbers of a cell of the column ``causes``."""
    return tuple(map(int, list_in(cell)))


def details_cell(values: Mapping[str, Any]) -> str:
    """Return the details of an action of the controller as a cell."""
    return json.dumps(dict(values))


def details_in(cell: object) -> dict[str, Any]:
    """Return the details of a cell of :func:`details_cell`."""
    values: dict[str, Any] = json.loads(str(cell))
    return values


def number_in(cell: Any) -> int | None:
    """Return the number of a cell; None where it has none (:data:`NONE`)."""
    return int(cell) if cell >= 0 else None
