"""The tables that the experiment adds to a result."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

_COSTS = {
    **common("phase"),
    "kind": Column("category", NO_UNIT, "`killed`, `silent`, `leaf`, or `leaf of N` with N nodes of the job"),
    "node": Column("category", NO_UNIT, "the node that failed, or the first of several"),
    "at_s": Column("float64", "s", "time at which it failed"),
    "life": Column("int64", NO_UNIT, "number of the life that it ended"),
    "resumed": Column("int64", NO_UNIT, "the step behind which the job went on; -1: unknown"),
    "lost_s": Column("float64", "s", "from the end of the last step that was kept to the failure"),
    "detection_s": Column("float64", "s", "from then until the job was asked to stop"),
    "stop_s": Column("float64", "s", "from then until no rank was left"),
    "wait_s": Column("float64", "s", "from then until it was given nodes"),
    "start_s": Column("float64", "s", "from then until all ranks had met"),
    "total_s": Column("float64", "s", "sum of these five"),
}

TABLES = {
    "failure_costs": Table("One row per failure that ended a life of the job.", _COSTS),
    "leaf_costs": Table(
        "One row per leaf switch that took several nodes of a job along, soon after its start: steps lost say nothing.",
        _COSTS,
    ),
    "shared_costs": Table(
        "One row per number of what all nodes share: a spine switch, a storage node, wrong data, a validation.",
        {
            **common("phase"),
            "what": Column("category", NO_UNIT, "what was measured"),
            "value": Column("float64", NO_UNIT, "the number, in `unit`"),
            "unit": Column("category", NO_UNIT, "its unit; empty: a count, or how many times as long"),
        },
    ),
    "cut_costs": Table(
        "One row per link that was cut and healed.",
        {
            **common("phase"),
            "node": Column("category", NO_UNIT, "the node whose link it was"),
            "at_s": Column("float64", "s", "time of the cut"),
            "stalled_s": Column("float64", "s", "how long steps stood still"),
        },
    ),
    "suspension_costs": Table(
        "One row per suspension of the job for one of higher priority.",
        {
            **common("phase"),
            "at_s": Column("float64", "s", "time at which the other job was submitted"),
            "tick_s": Column("float64", "s", "from then until the suspend command"),
            "answer_s": Column("float64", "s", "from then to the end of the last step"),
            "save_s": Column("float64", "s", "from then until no rank was left: saving"),
            "start_s": Column("float64", "s", "from then until the other job's ranks had met"),
            "resume_s": Column("float64", "s", "from the other job's end until the suspended job's ranks had met"),
            "lost_steps": Column("int64", "count", "steps of the suspended job that were made in vain"),
        },
    ),
    "storms": Table(
        "One row per restore, or checkpoint, of all nodes at once.",
        {
            **common("phase"),
            "began_s": Column("float64", "s", "time at which the first node began"),
            "ended_s": Column("float64", "s", "time at which the last node had all"),
            "nodes": Column("int64", "count", "nodes"),
            "size_bytes": Column("int64", "bytes", "bytes of all, each once"),
            "storage_fraction": Column(
                "float64", "fraction", "all copies' bytes per time, of what the NICs of all storage nodes carry"
            ),
            "resync_fraction": Column(
                "float64", "fraction", "part of its time in which a storage node was brought up to date"
            ),
        },
    ),
    "year_shares": Table(
        "One row per machine, drawn year and cause: composed of measured costs.",
        {
            "machine": Column("category", NO_UNIT, "the machine, by its table of faults"),
            "year_seed": Column("int64", NO_UNIT, "seed of the faults"),
            "cause": Column("category", NO_UNIT, "what nodes' time went to"),
            "share_fraction": Column("float64", "fraction", "part of the time of all nodes, spare ones included"),
        },
    ),
    "year_sweeps": Table(
        "One row per point of a sweep: composed of measured costs.",
        {
            "machine": Column("category", NO_UNIT, "the machine, by its table of faults"),
            "sweep": Column("category", NO_UNIT, "`interval`, `spare` or `validator`"),
            "way": Column("category", NO_UNIT, "`asynchronous` or `synchronous` checkpoints"),
            "value": Column(
                "float64", NO_UNIT, "seconds between checkpoints, spare nodes, or days between validations"
            ),
            "goodput_fraction": Column(
                "float64", "fraction", "median over seeds of the goodput that the sweep is about"
            ),
            "low_fraction": Column("float64", "fraction", "its 95 % interval from here; NaN: of one seed"),
            "high_fraction": Column("float64", "fraction", "to here"),
            "theory_fraction": Column("float64", "fraction", "the closed form beside it; NaN: none"),
        },
    ),
}
