"""A synthetic result with users' jobs of a platform, and storage that resyncs, in its phase ``mixed_lanes``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fabric.results import ResultWriter
from runs.kinds import tables_of_jobs
from runs.launching.run_result import RunResult
from tests.synthetic_result import Recipe, phase_records, write_result

PHASE = "mixed_lanes"
BEGAN_S = next(float(phase["started_s"]) for phase in phase_records() if phase["name"] == PHASE)
EVENTS = (
    (0.0, "submitted", 1, 1, "", "low"),
    (0.2, "started", 1, 1, "z0h001 z1h000", "two nodes are free"),
    (2.0, "submitted", 2, 2, "", "high"),
    (2.1, "suspend", 1, 1, "", "job 2 comes first, and needs its nodes"),
    (3.0, "left", 1, 1, "", "code 75, step 3", 3),
    (3.1, "started", 2, 2, "z0h001", "one node is free"),
    (5.0, "node_out", 0, 0, "z1h000", "bandwidth: NIC 0: 1 Mbit/s of 5 Mbit/s"),
    (6.0, "finished", 2, 2, "", "code 0, step 5", 5),
    (6.5, "started", 1, 3, "z0h001 z0h002", "two nodes are free"),
    (8.0, "node_back", 0, 0, "z1h000", "it passed"),
)
JOBS = ((1, "low", "ada", "NORMAL", 2, 2, 3, -1), (2, "high", "bo", "HIGH", 1, 1, 5, 0))
CHAINS = (
    (0.0, 1, 1, 2, 2, ""),
    (0.0, 2, 1, 2, 2, ""),
    (4.0, 1, 2, 2, 1, ""),
    (6.0, 1, 3, 2, 1, "st001/0"),
    (7.5, 1, 4, 2, 2, ""),
)
RESYNCS = ((1, "st000", "st001/0", 6.2, 7.2, 3, 30_000, "done"),)


def platform_result(directory: Path) -> RunResult:
    """Write the result, and read it. A write to a file has no single peer."""
    tables = tables_of_jobs()
    frames: dict[str, list[tuple[Any, ...]]] = {
        "platform_events": [
            (BEGAN_S + at_s, PHASE, "platform", event, number, life, node, why, "said", "", 0.0, *(step or [-1]))
            for at_s, event, number, life, node, why, *step in EVENTS
        ],
        "platform_jobs": [(PHASE, "platform", *row) for row in JOBS],
        "storage_chains": [(BEGAN_S + at_s, PHASE, "fs", *rest) for at_s, *rest in CHAINS],
        "storage_resyncs": [
            (PHASE, "fs", chain, sender, target, BEGAN_S + from_s, BEGAN_S + until_s, *rest)
            for chain, sender, target, from_s, until_s, *rest in RESYNCS
        ],
    }
    own = {name: pd.DataFrame(rows, columns=list(tables[name].columns)) for name, rows in frames.items()}
    recipe = Recipe(experiment="shared_cluster", own_tables=tables, own=own)
    result = RunResult(write_result(directory, recipe))
    operations = result.table("operations")
    written = (PHASE, "fs", "storage", "write", "z0h005", "", 32_768, BEGAN_S + 1, BEGAN_S + 1.1, 0)
    names = [
        "phase",
        "job",
        "service_level",
        "operation",
        "host",
        "peer",
        "size_bytes",
        "started_s",
        "ended_s",
        "retries",
    ]
    to_files = pd.DataFrame([written], columns=names)[list(operations.columns)]
    everything = pd.concat([operations.astype(to_files.dtypes), to_files], ignore_index=True)
    ResultWriter(directory, tables).write_table("operations", everything)
    return RunResult(directory)
