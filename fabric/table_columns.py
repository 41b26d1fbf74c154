"""What a row of each result table is, and the unit and meaning of each of its columns.

The columns and their dtypes are :data:`fabric.results.TABLES`. The pages of ``make docs`` are made from both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fabric.results import TABLES

NO_UNIT = "none"
UNITS = ("s", "ns", "bytes", "packets", "bit/s", "fraction", "count", NO_UNIT)


class Column(NamedTuple):
    """The unit of a column's values, one of :data:`UNITS`, and what they mean."""

    unit: str
    meaning: str


class TableColumn(NamedTuple):
    """A column as a reader of the table needs it."""

    name: str
    dtype: str
    unit: str
    meaning: str


ROWS: dict[str, str] = {
    "ports": "One row per port, lane and sample.",
    "stalls": "One row per port, lane and sample of lossless queues.",
    "waits": "One row per sample and pair of an input buffer and a stalled lane of the same switch: data in the buffer "
    "leaves it only when the lane has sent it.",
    "stalled_time": "One row per phase and lane of lossless queues, from the first sample of the phase to its last.",
    "congestion_trees": "One row per congestion tree and interval between two samples.",
    "flow_stalls": "One row per phase of lossless queues and flow. A flow is all connections of a Service Level from "
    "`host` to `peer`.",
    "machine": "One row per sample of the emulating machine.",
    "cores": "One row per core that the run may use and reading, four readings per second.",
    "flows": "One row per connection and sample: TCP_INFO of the sending side.",
    "jobs": "One row per time that a job played.",
    "steps": "One row per step of a collective.",
    "operations": "One row per storage operation, read by request, or background flow.",
    "failures": "One row per change of the state of a link.",
    "blackouts": "One row per run of consecutive lost probes.",
    "probes": "One row per flow of probes.",
    "restarts": "One row per collective that failed within a step and restarted from its last complete step.",
    "controller": "One row per action of the controller while links failed.",
    "cuts": "One row per cut of a link or switch.",
    "cut_flows": "One row per cut and flow of probes that crosses it by the plan, or that lost probes.",
    "days": "One row per day of a replayed year.",
    "metrics": "One row per metric, the answers of the run as numbers.",
}

COMMON: dict[str, Column] = {
    "at_s": Column("s", "time of the sample"),
    "phase": Column(NO_UNIT, "name of the phase"),
    "routing": Column(NO_UNIT, "routing and repair of the phase, by its name in the config"),
    "job": Column(NO_UNIT, "name of the job"),
    "service_level": Column(NO_UNIT, "Service Level of the traffic"),
    "host": Column(NO_UNIT, "host that sends or that asks"),
    "peer": Column(NO_UNIT, "host at the other end"),
    "port": Column(NO_UNIT, "sending end of the direction of a link, e.g. `z0l03:7`"),
    "lane": Column(NO_UNIT, "lane of the port"),
    "flow": Column(NO_UNIT, "name of the flow of probes"),
    "root_port": Column(NO_UNIT, "port at the root of the congestion tree"),
    "root_lane": Column(NO_UNIT, "lane at the root of the congestion tree"),
    "cut": Column(NO_UNIT, "number of the cut within its phase"),
    "place": Column(NO_UNIT, "kind of link that was cut, e.g. `leaf_spine`"),
}
"""Columns that mean the same in every table, unless :data:`COLUMNS` says otherwise."""

COLUMNS: dict[str, dict[str, Column]] = {
    "ports": {
        "sent_bytes": Column("bytes", "bytes sent, cumulative"),
        "sent_packets": Column("packets", "packets sent, cumulative"),
        "drops_packets": Column("packets", "packets dropped by the queue, cumulative"),
        "backlog_bytes": Column("bytes", "bytes in the queue"),
    },
    "stalls": {
        "stalls": Column(
            "count", "times that the frame in front found no room at the other end of the link, cumulative"
        ),
        "stalled_ns": Column(
            "ns", "time for which a frame waited, the link was free and there was no room, cumulative"
        ),
        "buffered_bytes": Column("bytes", "bytes in the input buffer at the other end"),
        "most_buffered_bytes": Column("bytes", "most bytes that this input buffer has held so far"),
    },
    "waits": {
        "port": Column(NO_UNIT, "port whose lane holds the data"),
        "lane": Column(NO_UNIT, "lane that holds the data"),
        "input_port": Column(NO_UNIT, "port of the input buffer"),
        "input_lane": Column(NO_UNIT, "lane of the input buffer"),
        "waiting_bytes": Column("bytes", "bytes in the input buffer that the lane must send"),
    },
    "stalled_time": {
        "peer": Column(NO_UNIT, "port at the other end of the link, which had no room"),
        "stalls": Column("count", "times that the lane stalled"),
        "stalled_s": Column("s", "time for which the lane was stalled"),
        "stalled_fraction": Column("fraction", "`stalled_s` as a fraction of the time between first and last sample"),
        "worst_fraction": Column("fraction", "the same of the interval between two samples that was stalled longest"),
    },
    "congestion_trees": {
        "at_s": Column("s", "time at which the interval ended"),
        "interval_s": Column("s", "length of the interval"),
        "kind": Column(
            NO_UNIT,
            "what the root is: `busy` (a full link), `cycle` (lanes that wait for each other) or "
            "`unseen` (nothing was in the buffer whenever it was read)",
        ),
        "ports": Column("count", "ports in the tree, the root's included"),
        "depth": Column("count", "waits between the root and the lane farthest from it"),
        "hosts": Column("count", "hosts that cannot send because of the tree"),
        "waiting_bytes": Column("bytes", "bytes that wait in the tree"),
    },
    "flow_stalls": {
        "delivered_bytes": Column("bytes", "bytes delivered in the phase"),
        "active_s": Column("s", "time for which the flow had data in flight"),
        "slowed_s": Column(
            "s", "part of it for which the path was stalled by trees whose roots the flow does not cross"
        ),
        "own_s": Column("s", "part of it for which a root was on the path"),
        "rate_bps": Column("bit/s", "delivered bytes over the active time"),
        "idle_bps": Column(
            "bit/s", "rate left unused by the fullest port of the path while other trees slowed the flow"
        ),
        "root_port": Column(NO_UNIT, "port of the root that slowed the flow longest"),
        "root_lane": Column(NO_UNIT, "lane of the root that slowed the flow longest"),
        "victim": Column(NO_UNIT, "whether the flow is a victim"),
    },
    "machine": {
        "cpu_busy_fraction": Column("fraction", "CPU time used of all cores, since the sample before"),
        "switch_cpu_fraction": Column(
            "fraction", "CPU time used by the switches, of one core, since the sample before"
        ),
        "lateness_s": Column("s", "delay of a wake-up at the priority of the switches"),
        "host_lateness_s": Column(
            "s", "longest delay of a wake-up at the priority of programs, since the sample before"
        ),
        "input_queue_bytes": Column("bytes", "memory of all frames that the userspace switches have not read yet"),
        "input_wait_s": Column("s", "least time for which the last of these frames will still wait"),
        "softnet_drops": Column(
            "packets", "drops of the kernel's input queues (softnet) on the whole machine, since boot"
        ),
        "softnet_backlog": Column("packets", "frames in the kernel's input queues; -1: this kernel does not report it"),
        "softnet_squeezed": Column("count", "times that the kernel deferred work on its input queues, since boot"),
        "clock_offset_s": Column("s", "the machine's date less its monotonic clock: it jumps when the date is set"),
    },
    "cores": {
        "core": Column(NO_UNIT, "number of the core"),
        "busy_fraction": Column("fraction", "time used since the reading before, without niced programs"),
        "niced_fraction": Column("fraction", "time used by niced programs, which give way to others"),
        "switch_fraction": Column("fraction", "time used by ovs-vswitchd"),
    },
    "flows": {
        "rtt_s": Column("s", "smoothed round-trip time"),
        "retransmissions": Column("count", "segments retransmitted, cumulative"),
        "bytes_acked": Column("bytes", "bytes acknowledged, cumulative"),
    },
    "steps": {
        "step": Column(NO_UNIT, "number of the step"),
        "ranks": Column("count", "ranks of the allreduce"),
        "size_bytes": Column("bytes", "bytes that each rank contributes"),
        "started_s": Column("s", "time at which the step started"),
        "ended_s": Column("s", "time at which the last rank had its result"),
    },
    "operations": {
        "operation": Column(
            NO_UNIT,
            "`read`, `write` or `flow`, or the name that the experiment gives its reads. "
            "`flow_abandoned`, `flow_failed`, `flow_refused`: flows that did not complete. `read_failed`, "
            "`write_failed`: operations given up after their retries",
        ),
        "size_bytes": Column("bytes", "bytes of the operation"),
        "started_s": Column("s", "time at which the operation started"),
        "ended_s": Column("s", "time of its last byte"),
        "retries": Column("count", "tries after the first"),
    },
    "failures": {
        "link": Column(NO_UNIT, "the link, by its two ends"),
        "up": Column(NO_UNIT, "whether the link has carrier from now on"),
        "rate_fraction": Column("fraction", "rate of the link from now on, as a fraction of its own"),
        "loss_fraction": Column("fraction", "share of frames that the link loses from now on"),
        "due_s": Column("s", "time at which the change was due"),
        "asked_s": Column("s", "time at which the kernel was asked for it"),
        "done_s": Column("s", "time at which it was done, read back at both ends"),
        "waiting_packets": Column("packets", "packets in the queues of both ends shortly before"),
    },
    "blackouts": {
        "began_s": Column("s", "arrival of the last probe before the loss"),
        "ended_s": Column("s", "arrival of the first probe after it"),
        "lost_packets": Column("packets", "probes lost in between"),
    },
    "probes": {
        "period_s": Column("s", "time between two probes"),
        "sent_packets": Column("packets", "probes sent"),
        "lost_packets": Column("packets", "probes that never arrived"),
        "reordered_packets": Column("packets", "probes that arrived after a later one"),
        "duplicated_packets": Column("packets", "probes that arrived more than once"),
        "longest_gap_s": Column("s", "longest time between two arrivals"),
        "clock_steps": Column("count", "times that the machine's date was set meanwhile; this moves no arrival"),
    },
    "restarts": {
        "step": Column(NO_UNIT, "number of the step that failed"),
        "failed_s": Column("s", "time at which the step failed"),
        "resumed_s": Column("s", "time at which the collective ran again"),
        "reason": Column(NO_UNIT, "why the step failed"),
    },
    "controller": {
        "at_s": Column("s", "time of the action"),
        "kind": Column(NO_UNIT, "kind of the action"),
        "details": Column(NO_UNIT, "details of the action, as JSON"),
    },
    "cuts": {
        "target": Column(NO_UNIT, "the link or switch that was cut"),
        "duration_s": Column("s", "how long the cut was to last"),
        "asked_s": Column("s", "time at which the kernel was asked for the cut"),
        "carrier_s": Column("s", "time at which both ends had lost carrier"),
        "port_s": Column("s", "time at which the controller was notified"),
        "planned_s": Column("s", "time at which the controller had a new plan"),
        "installed_s": Column("s", "time at which the switches had confirmed all rules"),
        "packet_s": Column("s", "time at which probes of every flow that crosses the cut arrived again"),
        "returned_s": Column("s", "time at which the link was back"),
        "flows": Column("count", "flows of probes that cross the cut"),
        "stall_s": Column("s", "longest step of the allreduce until the next cut, less the undisturbed median"),
        "slowest_read_s": Column("s", "longest storage read until the next cut"),
        "slowest_write_s": Column("s", "longest storage write until the next cut"),
        "retries": Column("count", "retries of storage operations until the next cut"),
    },
    "cut_flows": {
        "crosses": Column(NO_UNIT, "whether the planned path of the flow crosses the cut"),
        "blackout_s": Column("s", "how long the flow received nothing"),
        "lost_packets": Column("packets", "probes lost"),
    },
    "days": {
        "duration_s": Column("s", "how long each cut lasts"),
        "day": Column(NO_UNIT, "number of the day"),
        "cuts": Column("count", "cuts of the day"),
        "goodput_lost": Column("fraction", "training lost, as a fraction of an undisturbed day's"),
        "blackout_s": Column("s", "time without network, added up over all flows of probes"),
    },
    "jobs": {
        "started_s": Column("s", "time at which the job was told to begin"),
        "ended_s": Column("s", "time at which it had ended: a collective ends its step first"),
    },
    "metrics": {
        "phase": Column(NO_UNIT, "phase, or group of phases, that the metric is of; may be empty"),
        "job": Column(NO_UNIT, "job that the metric is of; may be empty"),
        "name": Column(NO_UNIT, "name of the metric; ends with its unit: `_s`, `_bps`, `_Bps`, `_bytes`, `_packets`"),
        "unit": Column(NO_UNIT, "unit of the value: `s`, `bit/s`, `B/s`, `B`, `packets`, or `1` for a number without"),
        "value": Column(NO_UNIT, "the value, in its unit"),
    },
}


def columns_of(table: str) -> Iterator[TableColumn]:
    """Yield the columns of a table in their order. Raises KeyError for a column that nothing describes."""
    for name, dtype in TABLES[table].items():
        column = COLUMNS[table].get(name) or COMMON[name]
        yield TableColumn(name, dtype, column.unit, column.meaning)
