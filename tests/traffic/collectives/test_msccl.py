"""MSCCL's files: what they mean, carried out with data, and every fault that a file may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.traffic.collectives.test_collectives import carried_out, inputs_of, right
from traffic.collectives.chunk_program import ProgramError
from traffic.collectives.collective import Collective, Layout, ScheduleOptions
from traffic.collectives.msccl import MscclAlgorithm, parse_msccl, read_msccl

Block = tuple[int, int, int, list[str]]
"""Whom a thread block sends to, whom it receives from, its channel, and its steps."""


def step(kind: str, source: str, target: str, count: int = 1, after: tuple[int, int] = (-1, -1)) -> str:
    """Return a step without its number: places are as i3."""
    return (
        f'type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" dstbuf="{target[0]}" dstoff="{target[1:]}" '
        f'cnt="{count}" depid="{after[0]}" deps="{after[1]}" hasdep="0"'
    )


def algo(coll: str, chunks: int, gpus: Sequence[Sequence[Block]], inplace: int = 1) -> str:
    lines = [f'<algo name="mine" nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}">']
    for number, blocks in enumerate(gpus):
        lines.append(f'<gpu id="{number}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{chunks}">')
        for tb, (send, receive, channel, steps) in enumerate(blocks):
            lines.append(f'<tb id="{tb}" send="{send}" recv="{receive}" chan="{channel}">')
            lines += [f'<step s="{place}" {one}/>' for place, one in enumerate(steps)]
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def ring_allreduce(ranks: int) -> str:
    """Return a ring as MSCCL's own: what comes is added and kept, or kept and sent on at once (rcs)."""
    gpus = []
    for rank in range(ranks):
        steps = [step("s", f"i{rank}", f"i{rank}")]
        for back in range(1, ranks):
            chunk = f"i{(rank - back) % ranks}"
            steps += [step("rrc", chunk, chunk), step("s", chunk, chunk)] if back < ranks - 1 else []
        last = f"i{(rank + 1) % ranks}"
        steps.append(step("rrcs", last, last))
        for back in range(ranks - 1):
            chunk = f"i{(rank - back) % ranks}"
            steps.append(step("rcs" if back < ranks - 2 else "r", chunk, chunk))
        gpus.append([((rank + 1) % ranks, (rank - 1) % ranks, 0, steps)])
    return algo("allreduce", ranks, gpus)


def to_root_and_back(ranks: int) -> str:
    """Return an allreduce in which sums travel in a chain without being kept (rrs), and the sum comes back."""
    last = ranks - 1
    gpus: list[list[Block]] = [[(1, -1, 0, [step("s", "i0", "i0", 2)]), (-1, 1, 1, [step("r", "i0", "i0", 2)])]]
    for rank in range(1, last):
        gpus.append(
            [
                (rank + 1, rank - 1, 0, [step("rrs", "i0", "i0", 2)]),
                (rank - 1, rank + 1, 1, [step("rcs", "i0", "i0", 2, (0, 0))]),
            ]
        )
    gpus.append(
        [(-1, last - 1, 0, [step("rrc", "i0", "i0", 2)]), (last - 1, -1, 1, [step("s", "i0", "i0", 2, (0, 0))])]
    )
    return algo("allreduce", 2, gpus)


def direct(coll: str, ranks: int, per_rank: int, inplace: int) -> str:
    """Return an all-gather or all-to-all in which each sends each its chunks, several in a step."""
    gpus = []
    for rank in range(ranks):
        blocks: list[Block] = []
        for peer in range(ranks):
            theirs, mine = f"o{peer * per_rank}", f"o{rank * per_rank}"
            source = "i0" if coll == "allgather" else f"i{peer * per_rank}"
            if peer != rank:
                steps = [step("s", source, mine, per_rank), step("r", "i0", theirs, per_rank)]
                blocks.append((peer, peer, 0, steps))
            elif not inplace:
                blocks.append((-1, -1, 0, [step("cpy", source, mine, per_rank), step("nop", "i0", "i0", 0)]))
        gpus.append(blocks)
    return algo(coll, ranks * per_rank, gpus, inplace)


def scattered_sums(ranks: int) -> str:
    """Return a reduce-scatter out of place: copies wait in scratch and are added there and then (re)."""
    gpus = []
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        receive = [
            (peer, peer, 0, [step("s", f"i{peer}", "o0"), step("r", "i0", f"s{place}")])
            for place, peer in enumerate(peers)
        ]
        add = [step("cpy", f"i{rank}", "o0")]
        add += [step("re", f"s{place}", "o0", 1, (place, 1)) for place in range(len(peers))]
        gpus.append([*receive, (-1, -1, 0, add)])
    return algo("reduce_scatter", ranks, gpus, inplace=0)


def broadcast() -> str:
    """Return a chain from GPU 0 over three, out of place."""
    first = [(1, -1, 0, [step("s", "i0", "o0", 3), step("cpy", "i0", "o0", 3)])]
    second = [(2, 0, 0, [step("rcs", "i0", "o0", 3)])]
    third = [(-1, 1, 0, [step("r", "i0", "o0", 3)])]
    return algo("broadcast", 3, [first, second, third], inplace=0)


FILES = {
    "ring of 8": (ring_allreduce(8), 14 / 8),
    "ring of 3": (ring_allreduce(3), 4 / 3),
    "chain": (to_root_and_back(4), 2.0),
    "all-gather": (direct("allgather", 4, 3, 0), 3 / 4),
    "all-gather in place": (direct("allgather", 4, 3, 1), 3 / 4),
    "all-to-all": (direct("alltoall", 4, 2, 0), 3 / 4),
    "reduce-scatter": (scattered_sums(4), 3 / 4),
    "broadcast": (broadcast(), 1.0),
}


def played(text: str) -> tuple[MscclAlgorithm, Collective]:
    found = parse_msccl(text)
    return found, found.played


@pytest.mark.parametrize("elements", [0, 1, 7, 101, 2003])
@pytest.mark.parametrize("name", FILES)
def test_files_are_carried_out_and_every_element_is_right(name: str, elements: int) -> None:
    found, collective = played(FILES[name][0])
    inputs = inputs_of(collective, found.ranks, elements)
    schedule = collective.algorithm("mine").schedule(ScheduleOptions(found.ranks, elements, 16, slots=4))
    outcome = carried_out(collective, schedule, inputs, in_place=found.in_place)
    assert outcome.faults == []
    for rank, result in enumerate(outcome.results):
        wanted = right(collective.name, inputs_of(collective, found.ranks, elements), rank)
        there = ~np.isnan(wanted)
        assert np.array_equal(result[: wanted.size][there], wanted[there])


@pytest.mark.parametrize("name", FILES)
def test_what_a_rank_sends_is_the_chunks_of_its_sending_steps(name: str) -> None:
    text, busiest = FILES[name]
    found, collective = played(text)
    sent: Counter[int] = Counter()
    for source, _, share in collective.algorithm("mine").flows(found.ranks):
        sent[source] += share  # type: ignore[assignment]
    assert max(sent.values()) == pytest.approx(busiest)
    sending = [
        sum(one.chunks for block in blocks for one in block.steps if one.kind in ("s", "rcs", "rrs", "rrcs"))
        for blocks in found.gpus
    ]
    assert [sent[rank] * found.chunks for rank in range(found.ranks)] == pytest.approx(sending)


def test_one_wrong_element_is_found() -> None:
    _, collective = played(ring_allreduce(4))
    schedule = collective.algorithm("mine").schedule(ScheduleOptions(4, 203, 16))
    for edge in schedule.edges:
        faults = carried_out(collective, schedule, inputs_of(collective, 4, 203), spoilt=edge).faults
        assert any("(1 wrong elements in its chunk of " in fault for fault in faults)


S = step("s", "i0", "i0")
R = step("r", "i0", "i0")
RRC = step("rrc", "i0", "i0")
FAULTS = {
    "is not XML: syntax error": "no",
    "begins with <system>; an algorithm of MSCCL begins with <algo>": "<system/>",
    "algo: has no coll": '<algo ngpus="2"/>',
    "coll='custom' is not played; use one of allreduce, allgather": algo("custom", 1, [[], []]),
    "algo: ngpus=1 is not from 2 to 4096": algo("allreduce", 1, [[]]),
    "algo: nchunksperloop='x' is not a whole number": algo("allreduce", 1, [[], []]).replace('loop="1"', 'loop="x"'),
    "nchunksperloop=3 are not equally many for each of 2 GPUs": algo("allgather", 3, [[], []]),
    "inplace=1: an all-to-all's blocks change their places": algo("alltoall", 2, [[], []]),
    "has <gpu> of the ids 0, 0, not 0, 1, ... once each": algo("allreduce", 1, [[], []]).replace('id="1"', 'id="0"'),
    "gpu 0, tb 0: talks to its own GPU; use cpy": algo("allreduce", 1, [[(0, -1, 0, [S])], []]),
    "gpu 0, tb 0: send=5 is not from -1 to 1": algo("allreduce", 1, [[(5, -1, 0, [S])], []]),
    "gpu 0, tb 0, step 0: type='r', and the thread block has no such peer": algo(
        "allreduce", 1, [[(1, -1, 0, [R])], []]
    ),
    "gpu 0, tb 0, step 0: type='x' is not one of": algo("allreduce", 1, [[(1, -1, 0, [S.replace('"s"', '"x"')])], []]),
    "gpu 0: thread blocks 0 and 1 both send with 1 on channel 0; give one another channel": algo(
        "allreduce", 1, [[(1, -1, 0, [S]), (1, -1, 0, [S])], []]
    ),
    "gpu 0, tb 0, step 0: waits for thread block 4, step 0, which is not there": algo(
        "allreduce", 1, [[(1, -1, 0, [step("s", "i0", "i0", 1, (4, 0))])], []]
    ),
    "gpu 0, tb 0, step 0: chunk 1 of the input, which has 0 to 0": algo(
        "allreduce", 1, [[(1, -1, 0, [step("s", "i0", "i0", 2)])], [(-1, 0, 0, [R])]]
    ),
    "gpu 0, tb 0, step 0: never gets what it waits for: 1 chunks from gpu 1 on channel 0": algo(
        "allreduce", 1, [[(1, 1, 0, [R, S])], [(0, 0, 0, [R, S])]]
    ),
    "gpu 1, tb 0, step 0: never gets what it waits for: thread block 1, step 0": algo(
        "allreduce",
        1,
        [
            [],
            [(-1, -1, 0, [step("nop", "i0", "i0", 0, (1, 0))]), (-1, -1, 0, [step("nop", "i0", "i0", 0, (0, 0))])],
        ],
    ),
    "gpu 0 sends 1 chunks more to gpu 1 on channel 0 than that receives": algo("allreduce", 1, [[(1, -1, 0, [S])], []]),
    "gpu 1, tb 0, step 0: rank 1: reads chunk 0 of scratch, in which nothing has come yet": algo(
        "allreduce", 1, [[], [(0, -1, 0, [step("s", "s0", "i0")])]]
    ),
    "rank 0: chunk 0 of the result is chunk 0 of rank 0, not chunk 0 of the sum over ranks 0, 1": algo(
        "allreduce", 1, [[], []]
    ),
    "gpu 1, tb 0, step 1: rank 1, chunk 0 of data: the input of rank 0 is added twice": algo(
        "allreduce", 1, [[(1, -1, 0, [S, S])], [(-1, 0, 0, [RRC, RRC])]]
    ),
    # GPU 1 sends chunk 0 while another thread block adds to it: which comes first is anybody's guess.
    "uses chunk 0 of data as gpu 1, tb 0, step 0 does, and neither waits for the other": algo(
        "allreduce", 1, [[(1, 1, 0, [S, RRC])], [(-1, 0, 0, [RRC]), (0, -1, 0, [S])]]
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_wrong_is_refused_with_the_place(fault: str) -> None:
    with pytest.raises(ProgramError) as caught:
        assert parse_msccl(FAULTS[fault]).played is None
    assert fault in str(caught.value)


def test_ranks_must_be_as_many_as_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "mine.xml"
    path.write_text(ring_allreduce(4))
    with pytest.raises(ProgramError, match="mine: is for 4 GPUs, not for 5 ranks; use as many"):
        read_msccl(path)(Layout(5))
    path.write_text("<algo")
    with pytest.raises(ProgramError, match=r"mine\.xml: is not XML: unclosed token"):
        read_msccl(path)
