"""The tables of every result: what a row of each is, and the dtype, unit and meaning of each of its columns.

An experiment may have more (:attr:`runs.definition.Experiment.tables`), and so may a kind of job
(:attr:`traffic.job_kind.JobKind.tables`). The schema in the docs is made from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fabric.metrics import metric_path

if TYPE_CHECKING:
    import pandas as pd

NO_UNIT = "none"
UNITS = ("s", "ns", "bytes", "packets", "bit/s", "fraction", "count", NO_UNIT)


_GROWTH = {"bytes": (8, "bit/s"), "packets": (1, "packets/s"), "count": (1, "1/s"), "ns": (1e-9, "fraction")}
Absent = str | float | Callable[["pd.DataFrame"], Any]


class Column(NamedTuple):
    """A column: its dtype in pandas, the unit of its values, one of :data:`UNITS`, and what they mean.

    ``grows``: it counts from the start of what it is counted at, and means something by its growth between two rows.
    ``label``: of a counter or a gauge of a port's lane, its name where ports are looked into: on pages of runs, also
    while they play, in traces and in OpenMetrics; a column without one is in its table alone. ``absent``: its values in
    results from before it was there, or a function that makes them from the table as it was read; None: it stays away.
    """

    dtype: str
    unit: str
    meaning: str
    grows: bool = False
    label: str = ""
    absent: Absent | None = None

    @property
    def shown(self) -> tuple[float, str]:
        """What its values are multiplied by where ports are looked into, and their unit then: of a counter, that of its
        growth per second."""
        return _GROWTH[self.unit] if self.grows else (1, self.unit)


@dataclass(frozen=True)
class Table:
    """A table of results: what a row is, and its columns in their order."""

    row: str
    columns: Mapping[str, Column]

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column."""
        return {name: column.dtype for name, column in self.columns.items()}

    @property
    def sampled(self) -> dict[str, Column]:
        """The columns that are counters and gauges, with a unit, of a row for a time, a port and a lane."""
        return {name: column for name, column in self.columns.items() if column.unit != NO_UNIT and name != "at_s"}

    @property
    def labelled(self) -> dict[str, Column]:
        """The columns that are shown wherever ports are looked into."""
        return {name: column for name, column in self.columns.items() if column.label}

    def of_today(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return rows of a result of any age with the columns of today, as far as they can be known."""
        import pandas as pd

        for name, column in self.columns.items():
            if name not in frame and (absent := column.absent) is not None:
                values = absent(frame) if callable(absent) else absent
                frame = frame.assign(**{name: pd.Series(values, frame.index, dtype=column.dtype)})
        return frame[[name for name in self.columns if name in frame]]

    def empty(self) -> pd.DataFrame:
        """Return it with no rows."""
        import pandas as pd  # It takes a third of a second, and most commands need no tables.

        return pd.DataFrame({name: pd.Series(dtype=column.dtype) for name, column in self.columns.items()})


COMMON: dict[str, Column] = {
    "at_s": Column("float64", "s", "time of the sample"),
    "phase": Column("category", NO_UNIT, "name of the phase"),
    "job": Column("category", NO_UNIT, "name of the job", absent=lambda frame: frame["service_level"]),
    "service_level": Column("category", NO_UNIT, "Service Level of the traffic"),
    "host": Column("category", NO_UNIT, "host that sends or that asks"),
    "peer": Column("category", NO_UNIT, "host at the other end"),
    "port": Column("category", NO_UNIT, "sending end of the direction of a link, e.g. `z0l03:7`"),
    "lane": Column("category", NO_UNIT, "lane of the port"),
    "flow": Column("category", NO_UNIT, "name of the flow of probes"),
    "root_port": Column("category", NO_UNIT, "port at the root of the congestion tree"),
    "root_lane": Column("category", NO_UNIT, "lane at the root of the congestion tree"),
}
"""Columns that mean the same in most tables."""


def common(*names: str) -> dict[str, Column]:
    """Return columns of :data:`COMMON`."""
    return {name: COMMON[name] for name in names}


BY_RUN, BY_HAND = "run", "by hand"
"""Who asks for failures: a run, by its config or as its experiment does, or a user of a fabric that is up."""
WHOLE_STATE = "whole"
"""The ``state`` in ``failures`` of a target that does not fail."""
TABLES: dict[str, Table] = {
    "ports": Table(
        "One row per port, lane and sample.",
        {
            **common("at_s", "port", "lane"),
            "sent_bytes": Column("int64", "bytes", "bytes sent", grows=True, label="rate"),
            "sent_packets": Column("int64", "packets", "packets sent", grows=True),
            "drops_packets": Column("int64", "packets", "packets dropped by the queue", grows=True, label="drops"),
            "backlog_bytes": Column("int64", "bytes", "bytes in the queue", label="backlog"),
            "marked_packets": Column(
                "int64", "packets", "packets that the queue has marked (ECN)", grows=True, label="marks"
            ),
        },
    ),
    "stalls": Table(
        "One row per port, lane and sample of lossless queues.",
        {
            **common("at_s", "port", "lane"),
            "stalls": Column(
                "int64", "count", "times that the frame in front found no room at the other end of the link", grows=True
            ),
            "stalled_ns": Column(
                "int64",
                "ns",
                "time for which a frame waited, the link was free and there was no room",
                grows=True,
                label="paused",
            ),
            "buffered_bytes": Column(
                "int64", "bytes", "bytes in the input buffer at the other end", label="buffered at peer"
            ),
            "most_buffered_bytes": Column("int64", "bytes", "most bytes that this input buffer has held so far"),
        },
    ),
    "waits": Table(
        "One row per sample and pair of an input buffer and a stalled lane of the same switch: data in the "
        "buffer leaves it only when the lane has sent it.",
        {
            **common("at_s"),
            "port": Column("category", NO_UNIT, "port whose lane holds the data"),
            "lane": Column("category", NO_UNIT, "lane that holds the data"),
            "input_port": Column("category", NO_UNIT, "port of the input buffer"),
            "input_lane": Column("category", NO_UNIT, "lane of the input buffer"),
            "waiting_bytes": Column("int64", "bytes", "bytes in the input buffer that the lane must send"),
        },
    ),
    "stalled_time": Table(
        "One row per phase and lane of lossless queues, from the first sample of the phase to its last.",
        {
            **common("phase", "port"),
            "peer": Column("category", NO_UNIT, "port at the other end of the link, which had no room"),
            **common("lane"),
            "stalls": Column("int64", "count", "times that the lane stalled"),
            "stalled_s": Column("float64", "s", "time for which the lane was stalled"),
            "stalled_fraction": Column(
                "float64", "fraction", "`stalled_s` as a fraction of the time between first and last sample"
            ),
            "worst_fraction": Column(
                "float64", "fraction", "that fraction of the interval between two samples that was stalled longest"
            ),
        },
    ),
    "congestion_trees": Table(
        "One row per congestion tree and interval between two samples.",
        {
            **common("phase"),
            "at_s": Column("float64", "s", "time at which the interval ended"),
            "interval_s": Column("float64", "s", "length of the interval"),
            **common("root_port", "root_lane"),
            "kind": Column(
                "category",
                NO_UNIT,
                "what the root is: `busy` (a full link), `cycle` (lanes that wait for each other) or `unseen` "
                "(nothing was in the buffer whenever it was read)",
            ),
            "ports": Column("int64", "count", "ports in the tree, the root's included"),
            "depth": Column("int64", "count", "waits between the root and the lane farthest from it"),
            "hosts": Column("int64", "count", "hosts that cannot send because of the tree"),
            "waiting_bytes": Column("int64", "bytes", "bytes that wait in the tree"),
        },
    ),
    "flow_stalls": Table(
        "One row per phase of lossless queues and flow. A flow is all connections of a Service Level from "
        "`host` to `peer`.",
        {
            **common("phase", "service_level", "host", "peer"),
            "delivered_bytes": Column("int64", "bytes", "bytes delivered in the phase"),
            "active_s": Column("float64", "s", "time for which the flow had data in flight"),
            "slowed_s": Column(
                "float64", "s", "part of it for which the path was stalled by trees whose roots the flow does not cross"
            ),
            "own_s": Column("float64", "s", "part of it for which a root was on the path"),
            "rate_bps": Column("float64", "bit/s", "delivered bytes over the active time"),
            "idle_bps": Column(
                "float64", "bit/s", "rate left unused by the fullest port of the path while other trees slowed the flow"
            ),
            "root_port": Column("category", NO_UNIT, "port of the root that slowed the flow longest"),
            "root_lane": Column("category", NO_UNIT, "lane of the root that slowed the flow longest"),
            "victim": Column("bool", NO_UNIT, "whether the flow is a victim"),
        },
    ),
    "machine": Table(
        "One row per sample of the emulating machine.",
        {
            **common("at_s"),
            "cpu_busy_fraction": Column("float64", "fraction", "CPU time used of all cores, since the sample before"),
            "switch_cpu_fraction": Column(
                "float64", "fraction", "CPU time used by the switches, of one core, since the sample before"
            ),
            "lateness_s": Column("float64", "s", "delay of a wake-up at the priority of the switches"),
            "host_lateness_s": Column(
                "float64", "s", "longest delay of a wake-up at the priority of programs, since the sample before"
            ),
            "input_queue_bytes": Column(
                "int64", "bytes", "memory of all frames that the userspace switches have not read yet"
            ),
            "input_wait_s": Column("float64", "s", "least time for which the last of these frames will still wait"),
            "softnet_drops": Column(
                "int64", "packets", "drops of the kernel's input queues (softnet) on the whole machine, since boot"
            ),
            "softnet_backlog": Column(
                "int64", "packets", "frames in the kernel's input queues; -1: this kernel does not report it"
            ),
            "softnet_squeezed": Column(
                "int64", "count", "times that the kernel deferred work on its input queues, since boot"
            ),
            "clock_offset_s": Column(
                "float64", "s", "the machine's date less its monotonic clock: it jumps when the date is set"
            ),
            "stolen_s": Column(
                "float64",
                "s",
                "time that a hypervisor took from all cores since the sample before, in ticks of 10 ms",
            ),
        },
    ),
    "cores": Table(
        "One row per core that the run may use and reading, four readings per second.",
        {
            **common("at_s"),
            "core": Column("int64", NO_UNIT, "number of the core"),
            "busy_fraction": Column(
                "float64", "fraction", "time used since the reading before, without niced programs"
            ),
            "niced_fraction": Column("float64", "fraction", "time used by niced programs, which give way to others"),
            "switch_fraction": Column("float64", "fraction", "time used by ovs-vswitchd"),
        },
    ),
    "flows": Table(
        "One row per connection and sample: what the connection says of what its host has sent on it.",
        {
            **common("at_s", "phase", "job", "service_level", "host", "peer"),
            "rtt_s": Column("float64", "s", "smoothed round-trip time; empty where the transport does not measure it"),
            "retransmissions": Column(
                "Int64", "count", "packets sent again; empty where the transport does not count them", grows=True
            ),
            "bytes_acked": Column("int64", "bytes", "bytes delivered, by what the peer has acknowledged", grows=True),
            "naks": Column(
                "Int64",
                "count",
                "negative acknowledgements that came, and of trimmed messages; empty with TCP",
                absent=math.nan,
                grows=True,
            ),
            "timeouts": Column(
                "Int64",
                "count",
                "timeouts of acknowledgements, probes of messages; empty with TCP",
                absent=math.nan,
                grows=True,
            ),
            "cnps": Column(
                "Int64",
                "count",
                "congestion notification packets that came; empty without RDMA",
                absent=math.nan,
                grows=True,
            ),
        },
    ),
    "jobs": Table(
        "One row per time that a job played.",
        {
            **common("phase", "job", "service_level"),
            "started_s": Column("float64", "s", "time at which the job was started"),
            "halted_s": Column(
                "float64",
                "s",
                "time at which the job was halted: its load plays until then",
                absent=math.nan,
            ),
            "ended_s": Column("float64", "s", "time at which it had ended: a collective ends its step first"),
            "failed": Column(
                "category",
                NO_UNIT,
                "why it could not go on after a failure that was asked for; empty if it did",
                absent="",
            ),
        },
    ),
    "steps": Table(
        "One row per step of a collective.",
        {
            **common("phase", "job", "service_level"),
            "collective": Column("category", NO_UNIT, "name of the collective, e.g. `allreduce`", absent="allreduce"),
            "step": Column("int64", NO_UNIT, "number of the step"),
            "ranks": Column("int64", "count", "ranks of the collective: GPUs, if nodes have an inside"),
            "size_bytes": Column(
                "int64",
                "bytes",
                "size S of the collective, as nccl-tests counts it: of an allreduce, what each rank contributes",
            ),
            "started_s": Column("float64", "s", "time at which the step started"),
            "ended_s": Column("float64", "s", "time at which the last rank had its result"),
        },
    ),
    "rank_steps": Table(
        "One row per step of a collective and rank.",
        {
            **common("phase", "job", "service_level"),
            "step": Column("int64", NO_UNIT, "number of the step"),
            "host": Column("category", NO_UNIT, "host of the rank"),
            "started_s": Column("float64", "s", "time at which the rank started the step"),
            "ended_s": Column("float64", "s", "time at which the rank had its result"),
        },
    ),
    "operations": Table(
        "One row per storage operation, read by request, or background flow.",
        {
            **common("phase", "job", "service_level"),
            "operation": Column(
                "category",
                NO_UNIT,
                "`read`, `write` or `flow`, or the name that the experiment gives its reads. `flow_abandoned`, "
                "`flow_failed`, `flow_refused`: flows that did not complete. `read_failed`, `write_failed`: "
                "operations given up after their retries. `restore`: all that a client restores, whose reads are rows, "
                "too; `restore_failed`, `restore_abandoned`: not whole",
            ),
            **common("host", "peer"),
            "size_bytes": Column(
                "int64", "bytes", "bytes of the operation; of `flow_abandoned`, those that its peer had acknowledged"
            ),
            "started_s": Column("float64", "s", "time from which its caller waited: at its first try"),
            "ended_s": Column("float64", "s", "time of its last byte"),
            "retries": Column("int64", "count", "tries after the first"),
        },
    ),
    "failures": Table(
        "One row per change of the state of what failures hit, as it was there: links, each job's programs on a host, "
        "disks, GPUs; and one per change that was due and never done.",
        {
            **common("phase"),
            "kind": Column("category", NO_UNIT, "`link`, `process`, `disk` or `gpu`", absent="link"),
            "target": Column(
                "category",
                NO_UNIT,
                "what it is: a link, `hfreduce on z0h003`, `st001/2`",
                absent=lambda frame: frame["link"].astype(str),
            ),
            "state": Column(
                "category", NO_UNIT, "how it is from now on, such as `down`, `stopped`, `killed`, `whole`", absent=""
            ),
            "link": Column("category", NO_UNIT, "the link, by its two ends; empty for other targets"),
            "up": Column("bool", NO_UNIT, "whether the link has carrier from now on"),
            "rate_fraction": Column("float64", "fraction", "rate of the link from now on, as a fraction of its own"),
            "loss_fraction": Column("float64", "fraction", "share of frames that the link loses from now on"),
            "paused": Column("bool", NO_UNIT, "whether the link's NIC pauses the switch from now on", absent=False),
            "due_s": Column("float64", "s", "time at which the change was due"),
            "due_end_s": Column(
                "float64",
                "s",
                "time at which the next change was due, the phase's end if not before; NaN: unknown",
                absent=math.nan,
            ),
            "asked_s": Column("float64", "s", "time at which the kernel, or the program, was first asked for it"),
            "done_s": Column(
                "float64", "s", "time at which the target was so; of links, read back at both ends; NaN: never"
            ),
            "ended_s": Column(
                "float64", "s", "time of the target's next change; NaN if there was none in the phase", absent=math.nan
            ),
            "waiting_packets": Column("int64", "packets", "packets in the queues of both ends shortly before"),
            "jobs": Column("category", NO_UNIT, "the jobs whose programs or disks it hit", absent=""),
            "detail": Column(
                "category", NO_UNIT, "what else there is to say, such as which chunks are rotten", absent=""
            ),
            "missed": Column("category", NO_UNIT, "why the change was never done; empty if it was", absent=""),
            "causes": Column(
                "category",
                NO_UNIT,
                "what begins or ends with the change, by number, e.g. `3` or `3, 4`: the cut, or in runs with "
                "`failures` in their config the line there, from 0",
                absent="",
            ),
            "asked_by": Column(
                "category", NO_UNIT, "who asked for it: `run` (its config or experiment), or `by hand`", absent=BY_RUN
            ),
        },
    ),
    "blackouts": Table(
        "One row per run of consecutive lost probes.",
        {
            **common("phase", "flow"),
            "began_s": Column("float64", "s", "arrival of the last probe before the loss"),
            "ended_s": Column("float64", "s", "arrival of the first probe after it"),
            "lost_packets": Column("int64", "packets", "probes lost in between"),
        },
    ),
    "probes": Table(
        "One row per flow of probes.",
        {
            **common("phase", "flow"),
            "period_s": Column("float64", "s", "time between two probes"),
            "sent_packets": Column("int64", "packets", "probes sent"),
            "lost_packets": Column("int64", "packets", "probes that never arrived"),
            "reordered_packets": Column("int64", "packets", "probes that arrived after a later one"),
            "duplicated_packets": Column("int64", "packets", "probes that arrived more than once"),
            "longest_gap_s": Column("float64", "s", "longest time between two arrivals"),
            "clock_steps": Column(
                "int64", "count", "times that the machine's date was set meanwhile; this moves no arrival"
            ),
        },
    ),
    "restarts": Table(
        "One row per collective that failed within a step and restarted from its last complete step.",
        {
            **common("phase", "job", "service_level"),
            "step": Column("int64", NO_UNIT, "number of the step that failed"),
            "failed_s": Column("float64", "s", "time at which the step failed"),
            "resumed_s": Column("float64", "s", "time at which the collective ran again"),
            "reason": Column("category", NO_UNIT, "why the step failed"),
        },
    ),
    "controller": Table(
        "One row per action of the controller while links failed, and per move of adaptive routing.",
        {
            **common("phase"),
            "at_s": Column("float64", "s", "time of the action"),
            "kind": Column("category", NO_UNIT, "kind of the action"),
            "details": Column("category", NO_UNIT, "details of the action, as JSON"),
        },
    ),
    "metrics": Table(
        "One row per metric, the answers of the run as numbers.",
        {
            "phase": Column("category", NO_UNIT, "phase, or group of phases, that the metric is of; may be empty"),
            "job": Column("category", NO_UNIT, "job that the metric is of; may be empty"),
            "name": Column(
                "category",
                NO_UNIT,
                "name of the metric; ends with its unit: `_s`, `_bps`, `_Bps`, `_bytes`, `_packets`",
            ),
            "unit": Column(
                "category",
                NO_UNIT,
                "unit of the value: `s`, `bit/s`, `B/s`, `B`, `packets`, or `1` for a number without",
            ),
            "value": Column("float64", NO_UNIT, "the value, in its unit"),
            "path": Column(
                "category",
                NO_UNIT,
                "what names it in `summary.json` and in `runs.csv` of a sweep",
                absent=lambda frame: [
                    metric_path(*parts) for parts in frame[["phase", "job", "name"]].astype(str).to_numpy().tolist()
                ],
            ),
        },
    ),
}
"""The tables of every result, by name."""
