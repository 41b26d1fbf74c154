"""A run as Perfetto's own protobuf trace: the events of :mod:`fabric.report.trace`, which writes them as JSON.

What JSON leaves to its reader is explicit here. Slices of a track are nested: one that only overlaps another is on a
further track. Spans that overlap (cuts, reads) have tracks of their own below their process. Each series of a counter
is a track with its unit. An arrow joins two instants by its flow id. Times are whole nanoseconds of the run.

The format: ``protos/perfetto/trace/trace_packet.proto`` and ``track_event.proto`` of google/perfetto.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceProto

from app.export.choice import Exported
from fabric.report.trace import LIMIT_BYTES, Event, Trace, fitting
from fabric.report.view.model import view_of
from fabric.results import Result

_SEQUENCE = 1
"""The writer of all packets; there is one."""
_CLEARED = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED


def perfetto(result: Result, limit_bytes: int = LIMIT_BYTES) -> Exported:
    """Return a run as a trace of at most ``limit_bytes``, with each n-th sample of counters if all do not fit. Raises
    ResultError if it has no samples, UsageError if even counters of a single sample are too much."""
    data = b""

    def size_of(trace: Trace) -> int:
        nonlocal data
        data = encoded(trace)
        return len(data)

    trace = fitting(view_of(result), limit_bytes, size_of, result.shown_path)
    return Exported(data, trace.notes)


def encoded(trace: Trace) -> bytes:
    """Return a trace as a message ``perfetto.protos.Trace``."""
    return _Encoder(trace).encoded()


def nested(slices: Sequence[Event]) -> Iterator[list[tuple[int, bool, Event]]]:
    """Yield tracks of slices, each as times in ns, whether a slice begins then, and the slice: begins and ends of a
    track are those of a stack.

    Slices that overlap without being nested are on different tracks, the earlier one on the first.
    """
    left = sorted(slices, key=lambda one: (_begin(one), -_end(one)))
    while left:
        track: list[tuple[int, bool, Event]] = []
        stack: list[Event] = []
        others: list[Event] = []
        for one in left:
            while stack and _end(stack[-1]) <= _begin(one):
                track.append((_end(stack[-1]), False, stack.pop()))
            if stack and _end(one) > _end(stack[-1]):
                others.append(one)
                continue
            track.append((_begin(one), True, one))
            stack.append(one)
        track += [(_end(one), False, one) for one in reversed(stack)]
        yield track
        left = others


def _ns(time_us: float) -> int:
    """Return a time of an event in ns, of which it is a whole number, written in microseconds."""
    return round(1000 * time_us)


def _begin(event: Event) -> int:
    return _ns(event["ts"])


def _end(event: Event) -> int:
    return _ns(event["ts"]) + _ns(event["dur"])


@dataclass
class _Tracks:
    """The descriptors of tracks in the order in which they are first used."""

    descriptors: list[TrackDescriptor] = field(default_factory=list)

    def new(self, **fields: Any) -> int:
        """Add a track and return its number."""
        number = len(self.descriptors) + 1
        self.descriptors.append(TrackDescriptor(uuid=number, **fields))
        return number


class _Encoder:
    """Makes packets of the events of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._notes = trace.notes
        self._by_kind: dict[str, list[Event]] = defaultdict(list)
        for event in trace.events:
            self._by_kind[event["ph"]].append(event)
        self._names = {(event["name"], event["pid"], event["tid"]): event["args"] for event in self._by_kind["M"]}
        self._tracks = _Tracks()
        self._processes = dict(self._process_tracks())
        self._threads = dict(self._thread_tracks())
        self._packets: list[tuple[int, bytes]] = []

    def encoded(self) -> bytes:
        """Return the whole message: descriptors, then events in the order of their times."""
        self._add_slices()
        self._add_spans()
        self._add_instants()
        self._add_counters()
        described = (
            TracePacket(track_descriptor=one, trusted_packet_sequence_id=_SEQUENCE) for one in self._tracks.descriptors
        )
        first = [TracePacket(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=_CLEARED)]
        head = b"".join(_framed(packet) for packet in [*first, *described])
        self._packets.sort(key=lambda one: one[0])  # Stable: within a track, order is kept.
        return head + b"".join(packet for _, packet in self._packets)

    # Tracks

    def _process_tracks(self) -> Iterator[tuple[int, int]]:
        named = [(pid, args["name"]) for (what, pid, _), args in self._names.items() if what == "process_name"]
        for pid, name in named:
            order = self._names["process_sort_index", pid, 0]["sort_index"]
            process: dict[str, Any] = {"pid": pid, "process_name": name, "legacy_sort_index": order}
            if self._notes and name == "run":
                process["process_labels"] = list(self._notes)
            yield pid, self._tracks.new(process=process, child_ordering=TrackDescriptor.LEXICOGRAPHIC)

    def _thread_tracks(self) -> Iterator[tuple[tuple[int, int], int]]:
        # Perfetto takes the number of a thread for one of the whole machine.
        tid_from = 1 + max(self._processes, default=0)
        named = [(pid, tid, args) for (what, pid, tid), args in self._names.items() if what == "thread_name"]
        for place, (pid, tid, args) in enumerate(named):
            thread = {"pid": pid, "tid": tid_from + place, "thread_name": args["name"]}
            yield (pid, tid), self._tracks.new(parent_uuid=self._processes[pid], thread=thread)

    def _further(self, pid: int, name: str) -> int:
        return self._tracks.new(parent_uuid=self._processes[pid], name=name)

    def _thread_name(self, pid: int, tid: int) -> str:
        return str(self._names["thread_name", pid, tid]["name"])

    # Events

    def _add(self, at_ns: int, track: int, kind: int, event: Event | None = None, **more: Any) -> None:
        """Add an event, with the name and the arguments of one of the trace's if it is given."""
        fields: dict[str, Any] = {"type": kind, "track_uuid": track, **more}
        if event is not None:
            fields |= {"name": event["name"], "debug_annotations": _annotations(event.get("args", {}))}
        packet = TracePacket(timestamp=at_ns, trusted_packet_sequence_id=_SEQUENCE, track_event=TrackEvent(**fields))
        self._packets.append((at_ns, _framed(packet)))

    def _add_slices(self) -> None:
        by_thread: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in self._by_kind["X"]:
            by_thread[event["pid"], event["tid"]].append(event)
        for key, slices in by_thread.items():
            for number, track in enumerate(nested(slices), 1):
                uuid = self._threads[key] if number == 1 else self._further(key[0], self._numbered(*key, number))
                self._add_stack(uuid, track)

    def _numbered(self, pid: int, tid: int, number: int) -> str:
        return f"{self._thread_name(pid, tid)} ({number})"

    def _add_stack(self, track: int, steps: Sequence[tuple[int, bool, Event]]) -> None:
        for at_ns, begins, event in steps:
            if begins:
                self._add(at_ns, track, TrackEvent.TYPE_SLICE_BEGIN, event)
            else:
                self._add(at_ns, track, TrackEvent.TYPE_SLICE_END)

    def _add_spans(self) -> None:
        """Add spans that may overlap: each on the first track of its kind that is free."""
        ends = {(event["pid"], event["cat"], event["id"]): event for event in self._by_kind["e"]}
        free_at: dict[tuple[int, int, str], list[tuple[int, int]]] = defaultdict(list)
        for event in sorted(self._by_kind["b"], key=_begin):
            begin_ns = _begin(event)
            end_ns = max(begin_ns, _begin(ends[event["pid"], event["cat"], event["id"]]))
            tracks = free_at[event["pid"], event["tid"], event["cat"]]
            place = next((place for place, (_, free_ns) in enumerate(tracks) if free_ns <= begin_ns), len(tracks))
            if place == len(tracks):
                name = f"{self._thread_name(event['pid'], event['tid'])}: {event['cat']}"
                tracks.append((self._further(event["pid"], name), 0))
            uuid = tracks[place][0]
            tracks[place] = uuid, end_ns
            self._add_stack(uuid, [(begin_ns, True, event), (end_ns, False, event)])

    def _add_instants(self) -> None:
        """Add instants, and the ends of arrows, which are instants with a flow."""
        for event in self._by_kind["i"]:
            self._add(_begin(event), self._threads[event["pid"], event["tid"]], TrackEvent.TYPE_INSTANT, event)
        flows: dict[tuple[int, str], int] = {}
        for kind, ids in (("s", "flow_ids"), ("f", "terminating_flow_ids")):
            for event in self._by_kind[kind]:
                number = flows.setdefault((event["pid"], event["id"]), len(flows) + 1)
                track = self._threads[event["pid"], event["tid"]]
                self._add(_begin(event), track, TrackEvent.TYPE_INSTANT, event, **{ids: [number]})

    def _add_counters(self) -> None:
        """Add counters, a track per series, whose value is there whenever it changes."""
        tracks: dict[tuple[int, str, str, str], int] = {}
        last: dict[int, float] = {}
        for event in self._by_kind["C"]:
            for series, value in event["args"].items():
                key = event["pid"], event["name"], event["unit"], series
                if key not in tracks:
                    tracks[key] = self._counter_track(*key)
                track = tracks[key]
                if last.get(track) != value:
                    last[track] = value
                    what = {"counter_value" if isinstance(value, int) else "double_counter_value": value}
                    self._add(_begin(event), track, TrackEvent.TYPE_COUNTER, **what)

    def _counter_track(self, pid: int, name: str, unit: str, series: str) -> int:
        """Return a new track of a series of a counter."""
        is_size = unit == "bytes"
        counter = (
            CounterDescriptor(unit=CounterDescriptor.UNIT_SIZE_BYTES)
            if is_size
            else CounterDescriptor(unit_name=unit, unit=CounterDescriptor.UNIT_UNSPECIFIED)
        )
        return self._tracks.new(parent_uuid=self._processes[pid], name=f"{name} {series}", counter=counter)


def _framed(packet: Any) -> bytes:
    """Return a packet as a part of the message of the whole trace."""
    data: bytes = TraceProto(packet=[packet]).SerializeToString()
    return data


def _annotations(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    kinds = {bool: "bool_value", int: "int_value", float: "double_value"}
    return [
        {"name": name, kinds.get(type(value), "string_value"): value if type(value) in kinds else str(value)}
        for name, value in arguments.items()
    ]
