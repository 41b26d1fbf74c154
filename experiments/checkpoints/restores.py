"""How fast is a checkpoint restored, by as many nodes as wrote it and by others, and is every byte equal?"""

from __future__ import annotations

from typing import Any

from cluster.checkpoints.job import RESTORE
from cluster.checkpoints.kinds import RESTORED, RESTORED_ALL, RESTORED_SLOWEST
from experiments.checkpoints.alone import JOB, Alone
from experiments.checkpoints.config import CheckpointsRunConfig
from fabric.metrics import metric_path
from runs.case_tables import CaseTable
from runs.study import Found, Question

MEASURES = {"all_s": RESTORED_ALL, "node_Bps": RESTORED, "slowest_Bps": RESTORED_SLOWEST}


def _restored(found: Found[Alone, CheckpointsRunConfig]) -> list[dict[str, Any]]:
    """Return the restores of what the main setup has written, by how many nodes restored it."""
    main, table = found.of(Alone(found.config.main).name), found.session.table("checkpoints")
    mine = table[(table["phase"] == main.case.name) & (table["operation"].astype(str) == RESTORE)]
    return [
        {"writers": main.case.setup.writers, "nodes": int(str(nodes)), "size_bytes": int(rows["size_bytes"].sum())}
        | {name: main[metric_path(JOB, measure.of(nodes))] for name, measure in MEASURES.items()}
        | {"equal": "yes"}
        for nodes, rows in mine.groupby("nodes")
    ]


def _answer(found: Found[Alone, CheckpointsRunConfig]) -> str:
    nodes = ", ".join(str(row["nodes"]) for row in _restored(found))
    return f"Restored by {nodes} nodes, every byte is equal." if nodes else ""


RESTORES = Question[Alone, CheckpointsRunConfig](
    kinds=Alone,
    answer=_answer,
    tables=(
        CaseTable(
            "Restores",
            "written by {writers}, restored by {nodes}, bytes {size_bytes}, all have it after {all_s}, "
            "GiB/s a node {node_Bps|.2f in GiB/s}, slowest {slowest_Bps|.2f in GiB/s}, equal {equal}",
            "each node restores its even part of every tensor, and compares it by SHA-256 with what was written; a run "
            "in which one differs fails",
            rows=_restored,
        ),
    ),
)
