"""The table that results of ``dcqcn_frontier`` have beside those of all runs."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

TABLES = {
    "points": Table(
        "One row per point: what all traffic of a phase was steered by, and what each program got.",
        {
            **common("phase"),
            "control": Column("category", NO_UNIT, "congestion control of all connections"),
            "queueing": Column("category", NO_UNIT, "queueing of the phase"),
            "profile": Column("category", NO_UNIT, "named set of DCQCN's parameters; empty: not DCQCN"),
            "thresholds": Column("float64", NO_UNIT, "factor of the set's `kmin` and `kmax`"),
            "increase": Column("float64", NO_UNIT, "factor of the set's speed of rate increase"),
            "kmin_bytes": Column("float64", "bytes", "threshold above which frames are marked; none: no marks"),
            "kmax_bytes": Column("float64", "bytes", "threshold above which all frames are marked"),
            "pmax": Column("float64", "fraction", "probability of a mark just below `kmax`"),
            "increase_period_s": Column("float64", "s", "period of a stage of rate increase"),
            "increase_bytes": Column("float64", "bytes", "bytes of a stage of rate increase; 0: not counted"),
            "additive_step_bps": Column("float64", "bit/s", "step of additive increase"),
            "hyper_step_bps": Column("float64", "bit/s", "step of hyper increase; 0: none"),
            "allreduce_bps": Column("float64", "bit/s", "HFReduce's algbw over the counted steps"),
            "read_bps": Column("float64", "bit/s", "bandwidth of all storage reads"),
            "read_p99_s": Column(
                "float64", "s", "99th percentile of the latency of reads; at least that, if some failed"
            ),
            "cuts": Column("int64", "count", "how often DCQCN cut a rate"),
        },
    ),
}
