"""What the sampler writes of a run that plays is what a reader of the file gets, however it is cut into pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fabric.measure.live_file import LiveNames, LivePhase, LiveReader, LiveWriter
from fabric.measure.sampling import STALLS
from fabric.queueing.counters import COUNTERS
from fabric.tables import TABLES

PHASE = LivePhase("one", "One", "lossless", "static", ("storage",), origin_s=100.0)
KEYS = [(0, 4, 0), (0, 5, 0), (1, 9, 0)]
NAMES = LiveNames(PHASE, {(0, 4): "a:1", (1, 9): "h:0"}, {0: "lossless"})


def write(path: Path, samples: int) -> None:
    path.touch()
    writer = LiveWriter(path, is_synced=True)
    writer.begin(NAMES, KEYS, is_lossless=True)
    for number in range(samples):
        counters, stalls = np.zeros(3, COUNTERS), np.zeros(3, STALLS)
        counters["sent_bytes"] = [10 * number, 7, 3 * 2**33 + number]
        counters["drops_packets"], counters["marked_packets"] = number, 5 * number
        stalls["stalled_ns"] = [1, 2, 3]
        writer.sample(101.0 + number, counters, stalls)


def test_a_reader_gets_the_samples_of_known_ports(tmp_path: Path) -> None:
    write(tmp_path / "live", 3)
    reader = LiveReader(tmp_path / "live")
    reader.read()
    (found,) = reader.series
    assert found.phase.queues == (("a:1", "lossless"), ("h:0", "lossless"))
    assert found.at_s == [1.0, 2.0, 3.0]
    last = dict(zip(found.phase.columns, found.rows[2].tolist(), strict=True))
    assert last.keys() == TABLES["ports"].labelled.keys() | TABLES["stalls"].labelled.keys()
    assert (last["sent_bytes"], last["drops_packets"]) == ([20, 3 * 2**33 + 2], [2, 2])
    assert (last["marked_packets"], last["backlog_bytes"]) == ([10, 10], [0, 0])
    assert (last["stalled_ns"], last["buffered_bytes"]) == ([1, 3], [0, 0])


def test_records_arrive_once_they_are_whole(tmp_path: Path) -> None:
    write(tmp_path / "whole", 2)
    content, piece = (tmp_path / "whole").read_bytes(), tmp_path / "piece"
    piece.touch()
    reader = LiveReader(piece)
    seen = []
    for place in range(0, len(content), 13):
        with piece.open("ab") as file:
            file.write(content[place : place + 13])
        reader.read()
        seen.append(sum(len(one.at_s) for one in reader.series))
    assert seen == sorted(seen)
    assert seen[-1] == 2
    assert seen[-2] == 1
