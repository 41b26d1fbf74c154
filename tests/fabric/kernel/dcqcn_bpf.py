"""``fabric/kernel/dcqcn.c`` as it is in BPF programs, in this machine's kernel: histories of flows played by one."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fabric.world.kernel_api import bpf, libbpf
from tests.fabric.kernel.dcqcn_library import CFlowState, CParameters
from tests.fabric.kernel.dcqcn_reference import Parameters

_TEST_RUN = 10
_MOST_EVENTS = 131072
"""``MOST_EVENTS`` of ``history.bpf.c``."""


class Event(NamedTuple):
    """Something that happens to a flow: when, what it has sent since the last event, and whether a mark comes."""

    now_ns: int
    sent_bytes: int
    is_marked: bool


class _CEvent(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("parameters", CParameters),
        ("now_ns", ctypes.c_uint64),
        ("sent_bytes", ctypes.c_uint64),
        ("starts", ctypes.c_uint32),
        ("is_marked", ctypes.c_uint32),
        ("heard", ctypes.c_uint64),
        ("flow", CFlowState),
    ]


def played(
    histories: Sequence[tuple[Parameters, Sequence[Event]]],
) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Play histories; yield of each event whether it cut its flow, and the flow after it."""
    loaded = libbpf.Loaded("history", directory=Path(__file__).parent)
    program, memory = loaded.program("play"), loaded.map("events")
    loaded.close()
    size = sum(len(events) for _, events in histories)
    assert size <= _MOST_EVENTS
    with mmap.mmap(memory, _MOST_EVENTS * ctypes.sizeof(_CEvent)) as mapped:
        shared = (_CEvent * _MOST_EVENTS).from_buffer(mapped)
        places = iter(shared)
        for parameters, events in histories:
            for number, event in enumerate(events):
                place = next(places)
                place.parameters = CParameters(*astuple(parameters))
                place.now_ns, place.sent_bytes = event.now_ns, event.sent_bytes
                place.starts, place.is_marked = int(number == 0), int(event.is_marked)
        bpf.call(_TEST_RUN, program.to_bytes(4, "little"), "playing histories")
        found = [(bool(one.heard), one.flow.members()) for one in shared[:size]]
        del shared, places, place
    os.close(program)
    os.close(memory)
    return iter(found)
