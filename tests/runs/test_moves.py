"""Adaptive routing's moves are kept, so that a result tells of the ways that flows took."""

from __future__ import annotations

import json

from fabric.model.identity import NodeId
from runs.run_tables import RunTables
from runs.ways import Moved


def test_moves_are_rows_of_the_controller() -> None:
    tables = RunTables()
    tables.keep_moves("one", [])
    assert tables.table("controller").empty
    tables.keep_moves("one", [Moved(1.5, NodeId.parse("z0l00"), "10.0.0.7", 9)])
    (row,) = tables.table("controller").to_dict("records")
    assert (row["phase"], row["at_s"], row["kind"]) == ("one", 1.5, "moved")
    assert json.loads(row["details"]) == {"moves": [["z0l00", "10.0.0.7", 9]]}
