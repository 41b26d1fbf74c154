"""Published counts of faults as tables, by name.

What the papers do not say is given: how long a cut lasts (10 s), how long a repair takes (a day), and what an effect
is where only a component is named.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

from cluster.faults.classes import Effect, FaultTable, fault_table, read_fault_table
from fabric.errors import ConfigError
from fabric.suggestions import one_of

_FOLDER = Path(__file__).parent
NODES, LINKS, STORAGES, SWITCHES = 1250, 3200, 180, 122
"""Of Fire-Flyer 2 (arXiv 2408.14158v2, III and VI-B); 3,200 links is what its wiring comes to."""
_MONTHS_DAYS = 183
_CAUSES = {
    "main_memory": (Effect.SILENT, "ECC error of main memory"),
    "network": (Effect.LINK_CUT, "link flash cut"),
    "xid_63": (Effect.GPU_ERROR, "Xid 63: row remapped"),
    "xid_64": (Effect.GPU_ERROR, "Xid 64: row remapping failed"),
    "xid_79": (Effect.GPU_ERROR, "Xid 79: GPU has fallen off the bus"),
    "xid_94": (Effect.GPU_ERROR, "Xid 94: contained ECC error"),
    "xid_95": (Effect.GPU_ERROR, "Xid 95: uncontained ECC error"),
}
CUT_S = 10.0
_GOODPUT = "at most 5 min lost per failure"


def _rows(name: str) -> list[dict[str, str]]:
    lines = [line for line in (_FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def hardware_failures() -> dict[str, int]:
    """Return Fire-Flyer 2's hardware failures of October 2023 to March 2024 by their class (Table VII)."""
    rows = _rows("monthly_hardware_failures.csv")
    return {name: sum(int(row[name]) for row in rows) for name in _CAUSES}


def gpu_errors() -> dict[tuple[str, int], int]:
    """Return Fire-Flyer 2's GPU errors of a year by category and Xid (Table VI)."""
    return {(row["category"], int(row["xid"])): int(row["count"]) for row in _rows("gpu_xid_errors.csv")}


def _fire_flyer_2() -> FaultTable:
    classes = []
    for name, events in hardware_failures().items():
        effect, cause = _CAUSES[name]
        lasts = {"for": CUT_S, "repair": 0} if effect is Effect.LINK_CUT else {}
        classes.append({"name": name, "events": events, "effect": effect, "cause": cause, **lasts})
    return _of("arXiv 2408.14158v2, Table VII", _MONTHS_DAYS, classes)


def _fire_flyer_2_gpu_errors() -> FaultTable:
    def words(category: str, xid: int) -> dict[str, object]:
        return {"name": f"xid_{xid}", "cause": f"Xid {xid}: {category.replace('_', ' ')}"}

    classes = [
        {**words(*key), "events": events, "effect": Effect.GPU_ERROR, "repair": 0}
        for key, events in gpu_errors().items()
    ]
    return _of("arXiv 2408.14158v2, Table VI", 365, classes)


def _of(source: str, days: int, classes: list[dict[str, object]]) -> FaultTable:
    machine = {"nodes": NODES, "links": LINKS, "storage_nodes": STORAGES, "switches": SWITCHES, "published": _GOODPUT}
    return fault_table({"source": source, "days": days, **machine, "classes": classes}, source)


def _file(name: str) -> Callable[[], FaultTable]:
    return lambda: read_fault_table(_FOLDER / f"{name}.yaml")


_TABLES: dict[str, Callable[[], FaultTable]] = {
    "fire_flyer_2": _fire_flyer_2,
    "fire_flyer_2_gpu_errors": _fire_flyer_2_gpu_errors,
    "llama3": _file("llama3"),
    "rsc1": _file("rsc1"),
    "rsc2": _file("rsc2"),
}
NAMES = tuple(_TABLES)


@cache
def published(name: str) -> FaultTable:
    """Return a published table. Raises ConfigError for a name that is not one of :data:`NAMES`."""
    if name not in _TABLES:
        raise ConfigError("faults", [f"{name!r}: no such table; use {one_of(map(repr, NAMES))}, or a file"])
    return _TABLES[name]()


def table_of(name_or_path: str) -> FaultTable:
    """Return a published table by its name, or that of a YAML file by its path. Raises ConfigError."""
    path = Path(name_or_path)
    return read_fault_table(path) if path.suffix in (".yaml", ".yml") else published(name_or_path)
