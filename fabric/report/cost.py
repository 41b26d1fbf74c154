"""What runs cost the machine that played them: a table of one, and how costs of several grow with what was run.

Results from before this was recorded have none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fabric.errors import UsageError
from fabric.report.margins import TextTable
from fabric.results import Result
from fabric.units import format_decimal

if TYPE_CHECKING:
    import pandas as pd

_NOTE = (
    "Phases: wall time while they played, together. Memory: in virtual time what the guest has touched, in real time "
    "by how much what this machine had available fell, with what others took meanwhile. Packets switched: those that "
    "switches took in during phases."
)
COLUMNS = (
    ("run", "O"),
    ("experiment", "O"),
    ("engine", "O"),
    ("verdict", "O"),
    ("hosts", "<i8"),
    ("switches", "<i8"),
    ("links", "<i8"),
    ("rules", "<i8"),
    ("ranks", "<i8"),
    ("switched_packets", "<i8"),
    ("setup_s", "<f8"),
    ("phases_s", "<f8"),
    ("wall_s", "<f8"),
    ("memory_bytes", "<f8"),
    ("cpu_s", "<f8"),
)
"""Of :func:`costs`. ``rules``: those of the first plan; ``ranks``: of the largest collective; ``cpu_s``: core seconds
that phases used, of all processes, in virtual time of the guest; 0 where they were not counted. Others as in
``cost.json``."""


_MORE = (
    "Setup: until the first phase. packets/s: per second of phases. CPU/M: core seconds of phases per million packets, "
    "of all processes, in virtual time of the guest."
)
_HOSTS = {"compute", "storage"}
_SWITCHES = {"leaf", "spine", "core", "inter_zone"}
_WITHOUT = "has no cost.json, since it was run before costs were measured; run it again"


def switched_packets(result: Result) -> int:
    """Return how many packets switches took in during all phases: each counts once for each switch on its way."""
    return sum(counted.get("switched_packets", 0) for counted in result.manifest.get("conservation", {}).values())


def cost_table(result: Result) -> TextTable | None:
    """Return a run's cost as a table of one row; None if it was not measured."""
    if not (cost := result.cost):
        return None
    packets = switched_packets(result)
    rate = f"{packets / cost['phases_s']:,.0f}" if cost["phases_s"] else "-"
    cpu = _cpu_cells(cost, packets)
    row = (
        f"{cost['wall_s']:.0f} s",
        f"{cost['setup_s']:.0f} s",
        f"{cost['phases_s']:.0f} s",
        f"{cost['memory_bytes'] / 1e9:.2f} GB",
        f"{packets:,}",
        rate,
        *(value for _, value in cpu),
    )
    columns = ("wall time", "until the first phase", "phases", "memory", "packets switched", "per second of phases")
    return TextTable("Cost", (*columns, *(name for name, _ in cpu)), [row], _NOTE)


def _cpu_cells(cost: Mapping[str, float], packets: int) -> list[tuple[str, str]]:
    """Return the heads and cells of CPU time; none where it was not counted by what used it."""
    if "kernel_cpu_s" not in cost:
        return []
    used_s = cost["phases_cpu_s"]
    parts = {"host": "host_cpu_s", "guest kernel": "kernel_cpu_s", "its programs": "programs_cpu_s"}
    return [
        *((f"CPU: {words}", f"{cost[name]:.1f} s") for words, name in parts.items()),
        ("packets per CPU second of phases", f"{packets / used_s:,.0f}" if used_s else "-"),
    ]


def costs(results: Sequence[Result]) -> pd.DataFrame:
    """Return a row for each result, with COLUMNS. Raises UsageError naming those whose cost was not measured."""
    if unknown := [str(result.directory) for result in results if not result.cost]:
        raise UsageError(f"{', '.join(unknown)}: {_WITHOUT}")
    import pandas as pd

    rows = [_row(result) for result in results]
    return pd.DataFrame(rows, columns=[name for name, _ in COLUMNS]).astype(dict(COLUMNS))


def _row(result: Result) -> dict[str, Any]:
    roles = [node["role"] for node in result.fabric["nodes"]]
    ranks = result.table("steps")["ranks"]
    return {
        "run": result.name,
        "experiment": result.manifest["experiment"],
        "engine": result.manifest["engine"],
        "verdict": result.verdict["status"],
        "hosts": sum(role in _HOSTS for role in roles),
        "switches": sum(role in _SWITCHES for role in roles),
        "links": len(result.fabric["links"]),
        "rules": result.manifest["setup"].get("rules", 0),
        "ranks": 0 if ranks.empty else int(ranks.max()),
        "switched_packets": switched_packets(result),
        "cpu_s": result.cost.get("phases_cpu_s", sum(map(_used_s, result.manifest.get("cpu", {}).values()))),
        **result.cost,
    }


def _used_s(of_phase: Mapping[str, float]) -> float:
    names = ("programs_s", "programs_kernel_s", "switches_s", "switches_kernel_s", "others_s")
    return sum(of_phase[name] for name in names)


def _cpu_per_million(one: Mapping[Hashable, Any]) -> str:
    known = one["cpu_s"] and one["switched_packets"]
    return f"{one['cpu_s'] / one['switched_packets'] * 1e6:.1f} s" if known else "-"


def costs_table(found: pd.DataFrame) -> TextTable:
    """Return the costs of several runs as a table to be read; all digits are in the frame."""
    columns = ("run", "engine", "hosts", "rules", "ranks", "packets", "setup", "phases", "memory", "packets/s", "CPU/M")
    rows = [
        (
            *(one["run"], one["engine"]),
            *(format_decimal(one[name]) for name in ("hosts", "rules", "ranks", "switched_packets")),
            *(f"{one[name]:,.0f} s" for name in ("setup_s", "phases_s")),
            f"{one['memory_bytes'] / 1e9:.2f} GB",
            format_decimal(one["switched_packets"] / one["phases_s"]) if one["phases_s"] else "-",
            _cpu_per_million(one),
        )
        for one in found.to_dict("records")
    ]
    return TextTable("Cost", columns, rows, f"{_NOTE} {_MORE}")
