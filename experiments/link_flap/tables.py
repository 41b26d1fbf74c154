"""The tables that runs with cuts add to a result: what each cut did, and to which flow."""

from __future__ import annotations

from fabric.tables import NO_UNIT, Column, Table, common

ROUTING = Column("category", NO_UNIT, "routing and repair of the phase, by its name in the config")
CUT = Column("int64", NO_UNIT, "number of the cut within its phase")
PLACE = Column("category", NO_UNIT, "kind of link that was cut, e.g. `leaf_spine`")

TABLES = {
    "cuts": Table(
        "One row per cut of a link or switch.",
        {
            **common("phase"),
            "routing": ROUTING,
            "cut": CUT,
            "place": PLACE,
            "target": Column("category", NO_UNIT, "the link or switch that was cut"),
            "duration_s": Column("float64", "s", "how long the cut was to last"),
            "asked_s": Column("float64", "s", "time at which the kernel was asked for the cut"),
            "carrier_s": Column("float64", "s", "time at which both ends had lost carrier"),
            "port_s": Column("float64", "s", "time at which the controller was notified"),
            "planned_s": Column("float64", "s", "time at which the controller had a new plan"),
            "installed_s": Column("float64", "s", "time at which the switches had confirmed all rules"),
            "packet_s": Column("float64", "s", "time at which probes of every flow that crosses the cut arrived again"),
            "returned_s": Column("float64", "s", "time at which the link was back"),
            "flows": Column("int64", "count", "flows of probes that cross the cut"),
            "stall_s": Column(
                "float64",
                "s",
                "longest step of the allreduce that was under way when the cut was asked for or began until the next "
                "was, however late it ended, less the undisturbed median; each step is of one cut",
            ),
            "slowest_read_s": Column("float64", "s", "longest of such storage reads"),
            "slowest_write_s": Column("float64", "s", "longest of such storage writes"),
            "retries": Column("int64", "count", "retries of such reads and writes"),
        },
    ),
    "cut_flows": Table(
        "One row per cut and flow of probes that crosses it by the plan, or that lost probes.",
        {
            **common("phase"),
            "routing": ROUTING,
            "cut": CUT,
            "place": PLACE,
            **common("flow"),
            "crosses": Column("bool", NO_UNIT, "whether the planned path of the flow crosses the cut"),
            "blackout_s": Column("float64", "s", "how long the flow received nothing"),
            "lost_packets": Column("int64", "packets", "probes lost"),
        },
    ),
}
