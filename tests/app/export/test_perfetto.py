"""Perfetto's protobuf trace holds the events of the JSON one, in the form that Perfetto asks for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, TrackEvent
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceProto

from app.export.perfetto import encoded, nested, perfetto
from fabric.errors import UsageError
from fabric.report.trace import Trace, trace_of
from fabric.report.view.model import view_of
from fabric.results import Result
from tests.synthetic_result import Recipe, write_result

TINY = "fire_flyer_2_tiny"
BEGIN, END = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
INSTANT, COUNTER = TrackEvent.TYPE_INSTANT, TrackEvent.TYPE_COUNTER


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result(write_result(tmp_path_factory.mktemp("results") / "one", Recipe()))


@pytest.fixture(scope="module")
def trace(result: Result) -> Trace:
    return trace_of(view_of(result))


@pytest.fixture(scope="module")
def packets(trace: Trace) -> list[Any]:
    return read(encoded(trace))


def read(data: bytes) -> list[Any]:
    found = TraceProto()
    found.ParseFromString(data)
    return list(found.packet)


def descriptors(packets: list[Any]) -> dict[int, Any]:
    return {one.track_descriptor.uuid: one.track_descriptor for one in packets if one.HasField("track_descriptor")}


def events(packets: list[Any], *kinds: int) -> list[Any]:
    return [one for one in packets if one.HasField("track_event") and (one.track_event.type in kinds or not kinds)]


def of_kind(trace: Trace, kind: str) -> list[dict[str, Any]]:
    return [event for event in trace.events if event["ph"] == kind]


def ns(time_us: float) -> int:
    return round(1000 * time_us)


def test_tracks_are_described_before_they_are_used_and_once(packets: list[Any]) -> None:
    seen: set[int] = set()
    assert {one.trusted_packet_sequence_id for one in packets} == {1}
    for one in packets:
        if one.HasField("track_descriptor"):
            track = one.track_descriptor
            assert track.uuid not in seen
            assert track.HasField("process") or track.parent_uuid in seen
            seen.add(track.uuid)
        elif one.HasField("track_event"):
            assert one.track_event.track_uuid in seen


def test_processes_and_threads_have_the_names_of_the_json(packets: list[Any], trace: Trace) -> None:
    named = [(e["name"], e["pid"], e["args"].get("name")) for e in of_kind(trace, "M")]
    found = descriptors(packets).values()
    processes = {(one.process.pid, one.process.process_name) for one in found if one.HasField("process")}
    threads = sorted((one.thread.pid, one.thread.thread_name) for one in found if one.HasField("thread"))
    assert processes == {(pid, name) for what, pid, name in named if what == "process_name"}
    assert threads == sorted((pid, name) for what, pid, name in named if what == "thread_name")
    tids = [one.thread.tid for one in found if one.HasField("thread")]
    assert len(set(tids) | {pid for pid, _ in processes}) == len(tids) + len(processes)


def test_begins_and_ends_of_every_track_are_those_of_a_stack(packets: list[Any], trace: Trace) -> None:
    stacks: dict[int, list[tuple[int, str]]] = defaultdict(list)
    found, last_ns = [], 0
    for one in events(packets):
        assert one.timestamp >= last_ns
        last_ns = one.timestamp
        event = one.track_event
        if event.type == BEGIN:
            stacks[event.track_uuid].append((one.timestamp, event.name))
        elif event.type == END:
            begun_ns, name = stacks[event.track_uuid].pop()
            found.append((name, begun_ns, one.timestamp))
    assert not any(stacks.values())
    ends = {(e["pid"], e["cat"], e["id"]): ns(e["ts"]) for e in of_kind(trace, "e")}
    slices = [(e["name"], ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in of_kind(trace, "X")]
    spans = [(e["name"], ns(e["ts"]), ends[e["pid"], e["cat"], e["id"]]) for e in of_kind(trace, "b")]
    assert sorted(found) == sorted([*slices, *spans])
    assert len(spans) > 100


def slice_at(name: str, begin_ns: int, end_ns: int) -> dict[str, Any]:
    return {"name": name, "ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000}


def test_slices_that_overlap_are_on_tracks_of_their_own() -> None:
    slices = [
        slice_at("outer", 0, 100),
        slice_at("inner", 10, 50),
        slice_at("over", 40, 120),
        slice_at("next", 100, 130),
        slice_at("none", 130, 130),
    ]
    tracks = [[(at, begins, one["name"]) for at, begins, one in track] for track in nested(slices)]
    assert tracks == [
        [
            (0, True, "outer"),
            (10, True, "inner"),
            (50, False, "inner"),
            (100, False, "outer"),
            (100, True, "next"),
            (130, False, "next"),
            (130, True, "none"),
            (130, False, "none"),
        ],
        [(40, True, "over"), (120, False, "over")],
    ]


def test_counters_are_those_of_the_json_with_their_units(packets: list[Any], trace: Trace) -> None:
    """Each series has at any time the value that the JSON says, in fewer events."""
    tracks = descriptors(packets)
    names = {one.uuid: one.process.process_name for one in tracks.values() if one.HasField("process")}
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for one in events(packets, COUNTER):
        track = tracks[one.track_event.track_uuid]
        is_size = " backlog " in track.name
        assert track.counter.unit == (
            CounterDescriptor.UNIT_SIZE_BYTES if is_size else CounterDescriptor.UNIT_UNSPECIFIED
        )
        is_rate = " rate " in track.name
        assert track.counter.unit_name == ("" if is_size else "bit/s" if is_rate else "fraction")
        value = one.track_event.counter_value or one.track_event.double_counter_value
        found[names[track.parent_uuid], track.name].append((one.timestamp, value))
    processes = {e["pid"]: e["args"]["name"] for e in of_kind(trace, "M") if e["name"] == "process_name"}
    said: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for event in of_kind(trace, "C"):
        for series, value in event["args"].items():
            key = processes[event["pid"]], f"{event['name']} {series}"
            if not said[key] or said[key][-1][1] != value:
                said[key].append((ns(event["ts"]), value))
    assert found == said
    assert len(found) > 100


def test_instants_keep_their_times_and_details(packets: list[Any], trace: Trace) -> None:
    flowless = [
        one
        for one in events(packets, INSTANT)
        if not one.track_event.flow_ids and not one.track_event.terminating_flow_ids
    ]
    assert sorted((one.track_event.name, one.timestamp) for one in flowless) == sorted(
        (e["name"], ns(e["ts"])) for e in of_kind(trace, "i")
    )
    steps = [one for one in events(packets, BEGIN) if one.track_event.name.startswith("step ")]
    details = {note.name: note for note in steps[0].track_event.debug_annotations}
    assert (details["ranks"].int_value, details["size_bytes"].int_value) == (12, 200_000)
    assert details["phase"].string_value


def test_each_arrow_has_an_id_of_its_own_and_goes_forward(packets: list[Any], trace: Trace) -> None:
    begun = {one.track_event.flow_ids[0]: one for one in events(packets, INSTANT) if one.track_event.flow_ids}
    ended = {
        one.track_event.terminating_flow_ids[0]: one
        for one in events(packets, INSTANT)
        if one.track_event.terminating_flow_ids
    }
    assert begun.keys() == ended.keys()
    assert len(begun) == len(of_kind(trace, "s")) > 10
    for number, one in begun.items():
        assert one.timestamp < ended[number].timestamp
        assert one.track_event.name == ended[number].track_event.name


def test_spans_of_one_track_do_not_overlap_and_cuts_have_tracks(tmp_path: Path) -> None:
    common = {"pid": 1, "tid": 2, "cat": "cut"}
    names = [
        {"ph": "M", "pid": 1, "tid": 0, "ts": 0, "name": "process_name", "args": {"name": "run"}},
        {"ph": "M", "pid": 1, "tid": 0, "ts": 0, "name": "process_sort_index", "args": {"sort_index": 1}},
        {"ph": "M", "pid": 1, "tid": 2, "ts": 0, "name": "thread_name", "args": {"name": "links that failed"}},
    ]
    spans = []
    for number, (begin, end) in enumerate([(0, 10), (5, 15), (10, 20), (15, 15)]):
        spans.append({**common, "ph": "b", "id": number, "name": f"cut {number}", "ts": begin, "args": {"f": 0.5}})
        spans.append({**common, "ph": "e", "id": number, "name": f"cut {number}", "ts": end})
    packets = read(encoded(Trace([*names, *spans], ("thinned",))))
    tracks = {one.track_event.name: one.track_event.track_uuid for one in events(packets, BEGIN)}
    assert tracks["cut 0"] == tracks["cut 2"] != tracks["cut 1"] == tracks["cut 3"]
    described = descriptors(packets)
    assert {described[uuid].name for uuid in tracks.values()} == {"links that failed: cut"}
    assert list(described[1].process.process_labels) == ["thinned"]
    (detail,) = events(packets, BEGIN)[0].track_event.debug_annotations
    assert detail.double_value == 0.5


def test_it_is_smaller_than_the_json(result: Result, trace: Trace) -> None:
    whole = perfetto(result)
    size = sum(map(len, trace.encoded()))
    print(f"protobuf {len(whole.data):,} bytes, JSON {size:,} bytes")
    assert len(whole.data) < size / 2
    assert whole.notes == ()


def test_a_large_trace_is_thinned_and_says_so(result: Result) -> None:
    whole = perfetto(result)
    limit_bytes = 3 * len(whole.data) // 4
    found = perfetto(result, limit_bytes)
    assert len(found.data) <= limit_bytes
    (note,) = found.notes
    assert note.startswith("thinned: counters have 1 of ")
    run = next(one for one in descriptors(read(found.data)).values() if one.process.process_name == "run")
    assert list(run.process.process_labels) == [note]
    kept, before = (len(events(read(data), BEGIN, END, INSTANT)) for data in (found.data, whole.data))
    assert kept == before
    with pytest.raises(UsageError, match="needs more than 1,000 bytes even without counters"):
        perfetto(result, 1000)
