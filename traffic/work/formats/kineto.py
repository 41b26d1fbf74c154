"""Traces of PyTorch's profiler, Kineto's JSON: kernels of one rank's GPU, and when the host launched them. Reader.

- kernels and copies take the time that they took, one after the other on their stream, each behind its launch;
- the host is one stream: between the beginnings of two launches it computes for as long as there was between them, the
  launch itself included. Where it waited for the GPU (``cudaStreamSynchronize`` and the like) it waits for what had
  ended there, and so it does in a call that returns after its copy has ended, as one to pageable memory;
- what has no time (0 and 0 in captures of some versions), or stands before its launch, cannot be played;
- a kernel of NCCL is a collective. Its size is in its arguments in newer captures; in older ones it follows from the
  shapes of the call that launched it. Without either it cannot be played;
- NCCL's streams and others wait for each other where the host called ``cudaStreamWaitEvent``: for what was launched
  before and had ended when the next kernel began.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.group_table import ONE_RANKS_MESSAGES, GroupTable, one_name_each, ranks_in, with_users
from traffic.work.formats.pytorch_dispatched import BELOW
from traffic.work.formats.sizes import of_inputs
from traffic.work.formats.trace import Asked, Program, Trace, TraceFile, ranks_of
from traffic.work.formats.values import MOST_BYTES, first_of, shown, whole
from traffic.work.operations import ANY, HOST, CollectiveCall, Compute, Operation, Receive, Send

FORMAT = "Kineto"
MICROSECOND_S = 1e-6
_GPU = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_COPIES = {"gpu_memcpy", "Memcpy"}
_LAUNCHES = {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"}
_WAITS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize")
_STREAM_WAIT = "StreamWaitEvent"
_CALL, _ANNOTATION = "record_param_comms", "nccl:"
_KERNEL = re.compile(r"^(nccl|rccl)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+")
_SLACK_US = 2.0
"""By so much may two clocks of a capture differ."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Event:
    """An event that takes time; ``args`` are its arguments; ``number``: its place in the file."""

    name: str
    kind: str
    thread: object
    start_us: float
    took_us: float
    args: Mapping[str, Any]
    number: int

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.took_us


@dataclass
class _File:
    """A file that was read: kernels in the order of their starts, what the host did, calls of collectives."""

    name: str
    rank: int | None = None
    world: int | None = None
    kernels: list[_Event] = field(default_factory=list)
    host: list[_Event] = field(default_factory=list)
    calls: list[_Event] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Collective:
    """What a kernel of NCCL did. ``elements``: put in by the rank, and got; ``sent``: to each place of the group."""

    collective: str
    elements: tuple[int, int]
    width: int
    dtype: str
    group: str
    ranks: tuple[int, ...]
    peer: int
    sent: tuple[int, ...] = ()
    split_unknown: bool = False


def is_trace(part: Any) -> bool:
    """Whether a JSON document is a trace of Kineto."""
    return isinstance(part, dict) and isinstance(part.get("traceEvents"), list)


def read_kineto(files: Sequence[tuple[TraceFile, Mapping[str, Any]]], asked: Asked) -> Trace:
    """Return the graph of a trace, files with their JSON in the order of ranks. Raises ConfigError."""
    read = [_read(file, document) for file, document in files]
    source = read[0].name
    for place, one in enumerate(read):
        if len(read) > 1 and one.rank not in (None, place):
            raise ConfigError(
                one.name, [f"is of rank {one.rank} and stands at place {place}; give all ranks, in order"]
            )
    if len(read) > 1 and asked.ranks not in (None, len(read)):
        raise ConfigError(source, [f"{len(read)} files, and {asked.ranks} ranks are asked for; leave --ranks out"])
    makers = [_Maker(one) for one in read]
    said, means = one_name_each([maker.groups() for maker in makers])
    groups = with_users(asked, said)
    ranks = ranks_of(asked, read[0].world or ranks_in(groups), source) if len(read) == 1 else len(read)
    table = GroupTable(source, ranks, groups, single=len(read) == 1)
    programs = [maker.program(rank, table, means[rank]) for rank, maker in enumerate(makers)]
    left_out = sum((one.left_out for one in read), Counter[str]())
    program = table.for_all(programs, left_out)
    notes = sum((one.notes for one in read), Counter[str]())
    told = tuple(f"{count:,} {note}" for note, count in notes.items())
    copied = table.alike
    return Trace(source, FORMAT, ranks, program, table.groups, copied, dict(left_out), told, is_copied=copied)


def _read(file: TraceFile, document: Mapping[str, Any]) -> _File:
    found = _File(file.name)
    about = document.get("distributedInfo")
    faults: list[str] = []
    try:
        if isinstance(about, dict):
            found.rank = whole(about["rank"], "distributedInfo.rank", 0, 10**6) if "rank" in about else None
            found.world = whole(about["world_size"], "world_size", 1, 10**6) if "world_size" in about else None
    except ValueError as error:
        raise ConfigError(file.name, [str(error)]) from None
    for number, part in enumerate(document["traceEvents"]):
        if not isinstance(part, dict) or part.get("ph") != "X":
            continue
        try:
            _sort_in(found, _event(part, number))
        except ValueError as error:
            faults.append(f"event {number}, counted from 0: {error}")
    faults += _without_time(found)
    if faults:
        raise ConfigError(file.name, first_of(faults))
    if not found.kernels:
        found.notes["files without kernels of a GPU: captured without ProfilerActivity.CUDA"] += 1
    for events in (found.kernels, found.host, found.calls):
        events.sort(key=lambda one: one.start_us)
    return found


def _without_time(file: _File) -> list[str]:
    """Return what of a file has no time that can be: events at 0 that took none beside others, and kernels that stand
    before the call that launched them."""
    events = sorted((*file.kernels, *file.host), key=lambda one: one.number)
    launch_of = {_correlation(one): one for one in file.host if _correlation(one) is not None}
    nothing = [one for one in events if not one.start_us and not one.took_us]
    if not any(one.kind in _GPU for one in nothing) and len(nothing) < 2:
        nothing = []  # Some captures begin at 0, with a call that takes less than their clock shows.
    known = {one.number for one in nothing}
    early = [
        (one, launch.start_us - one.start_us)
        for one in events
        if one.kind in _GPU and one.number not in known and (launch := launch_of.get(_correlation(one))) is not None
        if launch.number not in known and one.start_us < launch.start_us - _SLACK_US
    ]
    faults = []
    if nothing:
        which = f"events {_numbers(nothing)}, counted from 0: without a time (ts 0, dur 0)"
        faults.append(f"{which}, of {len(events):,} that would be played; capture it again with another PyTorch")
    if early:
        which = f"events {_numbers([one for one, _ in early])}, counted from 0: before the calls that launched them"
        most = max(before for _, before in early)
        faults.append(f"{which}, by up to {most:,.0f} us; the clocks of GPU and host differ: capture it again")
    return faults


def _numbers(events: Sequence[_Event]) -> str:
    """Return the numbers of events, the first ones of many."""
    more = f" and {len(events) - _SHOWN:,} more" if len(events) > _SHOWN else ""
    return f"{', '.join(str(one.number) for one in events[:_SHOWN])}{more}"


def _event(part: Mapping[str, Any], number: int) -> _Event:
    is_played = part.get("cat") in _GPU | _LAUNCHES
    start, took = part.get("ts"), part.get("dur", None if is_played else 0)
    for what, value in (("ts", start), ("dur", took)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e17:
            raise ValueError(f"{what} {shown(repr(value))}: must be a number of microseconds, 0 or more")
    assert start is not None, "it is a number"
    args = part.get("args")
    thread = (str(part.get("pid")), str(part.get("tid")))
    name, kind = str(part.get("name", "")), str(part.get("cat", ""))
    return _Event(name, kind, thread, start, took, args if isinstance(args, dict) else {}, number)


def _sort_in(found: _File, event: _Event) -> None:
    if event.kind in _GPU:
        found.kernels.append(event)
    elif event.kind in _LAUNCHES:
        found.host.append(event)
    elif event.name == _CALL or event.name.startswith(_ANNOTATION):
        found.calls.append(event)
    elif event.name.startswith(BELOW):
        found.left_out["calls over gloo and the like, which have no kernel: use an execution trace for them"] += 1
    elif event.kind == "cpu_op":
        found.left_out["operators of the host, which are in the time between launches"] += 1


_Made = tuple[type[Operation], dict[str, Any]] | None
"""The kind and the fields of an operation; None if it cannot be played."""


class _Maker:
    """Makes the program of a file."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._launch_of = {_correlation(one): one for one in file.host if _correlation(one) is not None}
        self._calls: dict[object, list[_Event]] = defaultdict(list)
        for call in file.calls:
            self._calls[call.thread].append(call)
        self._starts = {thread: [one.start_us for one in calls] for thread, calls in self._calls.items()}
        self._seen: set[int] = set()
        self._collectives = {place: self._collective(one) for place, one in enumerate(file.kernels) if _is_nccl(one)}

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Return the ranks of the groups that kernels name; empty for all."""
        found: dict[str, tuple[int, ...]] = {}
        for one in self._collectives.values():
            if one is not None and (one.ranks or one.group not in found):
                found[one.group] = one.ranks
        return {name: ranks for name, ranks in found.items() if ranks or name in ("", "0")}

    def program(self, rank: int, table: GroupTable, means: Mapping[str, str]) -> Program:
        """Return the operations. Raises ConfigError."""
        made = _Program()
        found = {place: self._made(place, rank, table, means) for place in range(len(self._file.kernels))}
        if faults := [one for one in found.values() if isinstance(one, str)]:
            raise ConfigError(self._file.name, first_of(faults))
        kernels: dict[object, list[int]] = defaultdict(list)
        for place, kernel in enumerate(self._file.kernels):
            kernels[_correlation(kernel) if _correlation(kernel) in self._launch_of else None].append(place)
        alone = deque(kernels.pop(None, []))
        if alone:
            self._file.notes["kernels without a launch, which wait for their stream only"] += len(alone)
        for event in self._file.host:
            while alone and self._file.kernels[alone[0]].start_us <= event.start_us:
                made.add(self._file.kernels[alone[0]], found[alone.popleft()])
            if event.name.endswith(_WAITS):
                made.synchronize(event)
            elif event.name.endswith(_STREAM_WAIT):
                made.wait_event()
            launched = kernels.pop(_correlation(event), []) if _correlation(event) is not None else []
            copy = self._file.kernels[launched[0]] if len(launched) == 1 else None
            if copy is not None and copy.kind in _COPIES and event.end_us >= copy.end_us:
                made.copy(event, copy)
                continue
            if launched:
                made.launch(event)
            for place in launched:
                made.add(self._file.kernels[place], found[place])
        for place in alone:
            made.add(self._file.kernels[place], found[place])
        return tuple(made.operations)

    def _made(self, place: int, rank: int, table: GroupTable, means: Mapping[str, str]) -> _Made | str:
        """Return what a kernel is as an operation, or what is wrong with it."""
        kernel = self._file.kernels[place]
        if not _is_nccl(kernel):
            return Compute, {"duration_s": kernel.took_us * MICROSECOND_S}
        found, call = self._collectives[place], next(self._calls_around(kernel), None)
        if found is None:
            self._file.left_out["kernels of NCCL without a size"] += 1
            return None
        if call is not None and id(call) in self._seen:
            self._file.left_out["further kernels of a call of NCCL"] += 1
            return None
        self._seen.add(id(call))
        try:
            return self._operation(found, rank, table, means)
        except ValueError as error:
            return f"kernel {shown(kernel.name)} at {kernel.start_us:.0f} us: {error}"

    def _operation(self, one: _Collective, rank: int, table: GroupTable, means: Mapping[str, str]) -> _Made:
        group = table.group_of(means.get(one.group, one.group), rank)
        ranks = table.size(group)
        bytes_in, bytes_out = one.elements[0] * one.width, one.elements[1] * one.width
        if bytes_in > MOST_BYTES:
            raise ValueError(f"{bytes_in:,} bytes: more than {MOST_BYTES:,}")
        if one.collective in (names.SEND, names.RECEIVE, names.RECEIVE_ANY):
            if table.single:
                self._file.left_out[ONE_RANKS_MESSAGES] += 1
                return None
            if one.peer < 0 and one.collective == names.SEND:
                raise ValueError("a send, and no Dst Rank says to whom")
            return (Send if one.collective == names.SEND else Receive), {
                "peer": one.peer if one.peer >= 0 else ANY,
                "size_bytes": bytes_in or bytes_out,
            }
        collective, sent = one.collective, tuple(count * one.width for count in one.sent)
        total = bytes_out if collective == names.ALL_GATHER and bytes_out else of_inputs(collective, bytes_in, ranks)
        if collective in (names.ALL_TO_ALL_V, names.ALL_TO_ALL, names.SEND_RECEIVE):
            if sent and len(sent) != ranks:
                raise ValueError(
                    f"has splits for {len(sent)} ranks, and its group has {ranks}; say --ranks {len(sent)}"
                )
            collective = names.ALL_TO_ALL_V if sent else names.ALL_TO_ALL
            if one.split_unknown:
                self._file.notes["all-to-alls whose splits the file does not say, played with even ones"] += 1
        details = {
            "collective": collective,
            "size_bytes": total,
            "group": group,
            "sent_bytes": sent,
            "dtype": one.dtype,
        }
        return CollectiveCall, details | {"root": one.peer if 0 <= one.peer < ranks else 0}

    def _calls_around(self, kernel: _Event) -> Iterator[_Event]:
        launch = self._launch_of.get(_correlation(kernel))
        if launch is None or launch.thread not in self._calls:
            return
        calls = self._calls[launch.thread]
        last = bisect_right(self._starts[launch.thread], launch.start_us)
        for call in reversed(calls[max(0, last - 8) : last]):
            if call.end_us >= launch.start_us:
                yield call

    def _collective(self, kernel: _Event) -> _Collective | None:
        """Return what a kernel did: by its arguments, or those of a call around its launch, or that call's shapes."""
        around = list(self._calls_around(kernel))
        for event in (kernel, *around):
            says = "In msg nelems" in event.args or "Collective name" in event.args
            if says and (found := _of_arguments(event.args, kernel.name)):
                return found
        for event in around:
            if found := _of_shapes(event, kernel.name):
                return found
        return None


class _Program:
    """Operations as they are launched."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._host: int | None = None
        self._host_end_us: float | None = None
        self._launched: dict[str, list[tuple[int, _Event]]] = defaultdict(list)
        self._nccl_streams: set[str] = set()
        self._event_waited = False
        self._any_event = False

    def wait_event(self) -> None:
        """Keep that the next kernel waits for other streams."""
        self._event_waited = self._any_event = True

    def launch(self, event: _Event) -> None:
        """Add what the host computed up to a launch. The call itself is a part of what it computes until the next."""
        self._on_host(event.start_us, ())
        self._host_end_us = max(event.start_us, self._host_end_us or 0.0)

    def copy(self, event: _Event, copy: _Event) -> None:
        """Add a copy whose call returned after it had ended: the host waited for it, and so for what it waits for. What
        else of the call there was before and behind the copy, the host computed."""
        waits = set(self._behind(copy, self._nccl_streams if self._event_waited else set()))
        ends = [one.end_us for of_stream in self._launched.values() for place, one in of_stream[-16:] if place in waits]
        waited_us = min(max(0.0, max(ends, default=0.0) - event.start_us), max(0.0, copy.start_us - event.start_us))
        self.launch(replace(event, start_us=max(event.start_us, copy.start_us) - waited_us))
        self._compute(copy)
        self._on_host(self._host_end_us or 0.0, (len(self.operations) - 1,))
        self._host_end_us = copy.end_us

    def synchronize(self, event: _Event) -> None:
        """Add that the host waited, for what had ended when it went on."""
        ended = [
            next((place for place, one in reversed(of_stream[-16:]) if one.end_us <= event.end_us + _SLACK_US), None)
            for of_stream in self._launched.values()
        ]
        self._on_host(event.start_us, tuple(place for place in ended if place is not None))
        self._host_end_us = event.end_us

    def _on_host(self, until_us: float, after: tuple[int, ...]) -> None:
        gap_us = max(0.0, until_us - self._host_end_us) if self._host_end_us is not None else 0.0
        before = () if self._host is None else (self._host,)
        # It computes first, and waits then: the other way round a wait would be as long as both together.
        self.operations.append(Compute(duration_s=gap_us * MICROSECOND_S, after=before, stream=HOST, name="launch"))
        self._host = len(self.operations) - 1
        if after:
            waits = (self._host, *after)
            self.operations.append(Compute(duration_s=0.0, after=waits, stream=HOST, name="synchronize"))
            self._host = len(self.operations) - 1

    def add(self, kernel: _Event, made: _Made | str) -> None:
        """Add what a kernel is, unless it cannot be played."""
        assert not isinstance(made, str), "faults were raised"
        if made is not None and made[0] is Compute:
            self._compute(kernel)
        elif made is not None:
            self._communicate(kernel, *made)

    def _compute(self, kernel: _Event) -> None:
        others = self._nccl_streams if self._event_waited else set()
        after = self._behind(kernel, others)
        stream = _stream(kernel)
        self.operations.append(
            Compute(duration_s=kernel.took_us * MICROSECOND_S, after=after, stream=stream, name=kernel.name)
        )
        self._launched[stream].append((len(self.operations) - 1, kernel))
        self._event_waited = False

    def _communicate(self, kernel: _Event, kind: type[Operation], details: Mapping[str, Any]) -> None:
        stream = _stream(kernel)
        others = {one for one in self._launched if one != stream and one not in self._nccl_streams}
        after = self._behind(kernel, others if self._event_waited or not self._any_event else set())
        self._nccl_streams.add(stream)
        measured_s = kernel.took_us * MICROSECOND_S
        self.operations.append(kind(**details, after=after, stream=stream, name=kernel.name, measured_s=measured_s))
        self._launched[stream].append((len(self.operations) - 1, kernel))
        self._event_waited = False

    def _behind(self, kernel: _Event, others: set[str]) -> tuple[int, ...]:
        """Return what a kernel waits for: its launch, its stream, and of others what had ended when it began."""
        found = [] if self._host is None else [self._host]
        if of_stream := self._launched[_stream(kernel)]:
            found.append(of_stream[-1][0])
        for stream in sorted(others - {_stream(kernel)}):
            ended = (
                place
                for place, one in reversed(self._launched[stream][-16:])
                if one.end_us <= kernel.start_us + _SLACK_US
            )
            found += list(ended)[:1]
        return tuple(dict.fromkeys(found))


def _correlation(event: _Event) -> object:
    return event.args.get("correlation")


def _is_nccl(event: _Event) -> bool:
    return bool(_KERNEL.match(event.name))


def _stream(event: _Event) -> str:
    return f"gpu {event.args.get('stream', event.thread)}"


def _of_arguments(args: Mapping[str, Any], kernel: str) -> _Collective | None:
    """Return what newer captures say of a call; None if it is not communication. What is not said is 0."""
    collective = names.collective_named(str(args.get("Collective name", ""))) or names.collective_named(kernel)
    if collective in (None, names.WAIT, names.INIT):
        return None
    assert collective is not None
    dtype = names.type_named(str(args.get("dtype", "")))
    elements = tuple(_count(args.get(name, 0)) for name in ("In msg nelems", "Out msg nelems"))
    if collective != names.BARRIER and (dtype is None or not any(elements)):
        return None
    splits = str(args.get("In split size", ""))
    sent = tuple(int(one) for one in _NUMBER.findall(splits)) if "..." not in splits else ()
    total = sum(sent)
    if sent and total and elements[0] % total == 0:
        sent = tuple(one * (elements[0] // total) for one in sent)
    elif total != elements[0]:
        sent = ()
    peer = args.get("Dst Rank" if collective == names.SEND else "Src Rank", args.get("Root Rank", -1))
    name, width = dtype or ("fp32", 1)
    return _Collective(
        collective, (elements[0], elements[1]), width, name, str(args.get("Process Group Name", "")), _ranks(args),
        _count(peer) if peer != -1 else -1, sent, "..." in splits,
    )  # fmt: skip


def _count(value: Any) -> int:
    try:
        return whole(value, "number", 0, 10**15)
    except ValueError:
        return 0


def _ranks(args: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a group; those of a list that was cut go on at the distance of its first two."""
    text = str(args.get("Process Group Ranks", ""))
    found = [int(one) for one in _NUMBER.findall(text[:1_000_000])]
    size = _count(args.get("Group size", len(found)))
    if "..." not in text or len(found) < 2:
        return tuple(found) if len(set(found)) == len(found) else ()
    stride = found[1] - found[0]
    regular = stride > 0 and all(after - before == stride for before, after in pairwise(found))
    return tuple(range(found[0], found[0] + stride * size, stride)) if regular and size <= 10**6 else ()


def _of_shapes(event: _Event, kernel: str) -> _Collective | None:
    """Return what the shapes of a call say in older captures; None if they say nothing."""
    shapes, types = event.args.get("Input Dims"), event.args.get("Input type")
    collective = names.collective_named(event.name.removeprefix(_ANNOTATION)) or names.collective_named(kernel)
    if not isinstance(shapes, list) or not shapes or not isinstance(types, list) or not types:
        return None
    elements, dtype = _elements(shapes[0]), names.type_named(str(types[0]))
    if collective is None or dtype is None or elements == 0:
        return None
    return _Collective(
        collective,
        (elements, 0),
        dtype[1],
        dtype[0],
        "",
        (),
        -1,
        (),
        collective in (names.ALL_TO_ALL, names.ALL_TO_ALL_V, names.SEND_RECEIVE),
    )


def _elements(shape: Any) -> int:
    """Return how many elements a tensor of a shape has, or all of a list of shapes; 0 if it says none."""
    if not isinstance(shape, list) or not shape:
        return 0
    if all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in shape):
        found = 1
        for one in shape:
            found = min(found * one, 10**16)
        return found
    return sum(_elements(one) for one in shape)
