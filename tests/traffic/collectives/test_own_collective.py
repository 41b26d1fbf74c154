"""A collective in a file of a folder elsewhere: it is played over sockets, and checked as any other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import TrafficError
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric
from traffic.collectives.bandwidth import with_bandwidths
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.nccl import NcclConfig, NcclJob
from traffic.job import Stage

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
SCAN = '''
"""Scan: each rank gets the sum over all ranks up to itself, as of MPI_Scan."""

from collections.abc import Iterator

from traffic.collectives.collective import Collective, Expected, all_elements
from traffic.collectives.primitives import Primitive
from traffic.collectives.ring import Ring, ring_algorithm


def expected(rank: int, ranks: int, elements: int) -> tuple[Expected, ...]:
    return (Expected(slice(0, elements), tuple(range(rank + 1)), 0),)


def busbw_factor(ranks: int) -> float:
    return 3.0


def primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    for piece in ring.slices(ring.data):
        source, target = rank - 1 if rank else None, rank + 1 if rank + 1 < ring.ranks else None
        yield Primitive(source, piece, piece, target)


def flows(ranks: int) -> list[tuple[int, int, float]]:
    return [(rank, rank + 1, 1.0) for rank in range(ranks - 1)]


CHAIN = ring_algorithm(primitives, flows)
OWN = Collective("own", "what each rank has", all_elements, expected, busbw_factor, {"chain": CHAIN})
'''
FAULTY = '''
"""An all-gather of which rank 1 sends one slice from a place beside the right one."""

from collections.abc import Iterator
from dataclasses import replace

from traffic.collectives.operations import all_gather
from traffic.collectives.primitives import Primitive
from traffic.collectives.ring import Ring, ring_algorithm, ring_flows


def primitives(ring: Ring, rank: int) -> Iterator[Primitive]:
    for number, one in enumerate(all_gather.ring_primitives(ring, rank)):
        is_wrong = rank == 1 and number == 2
        yield one._replace(own=slice(one.own.start + 1, one.own.stop + 1), result=None) if is_wrong else one


def flows(ranks: int) -> list[tuple[int, int, float]]:
    return ring_flows(0.5, ranks)


OWN = replace(all_gather.ALL_GATHER, name="own", algorithms={"ring": ring_algorithm(primitives, flows)})
'''


@pytest.fixture
def stage() -> Iterator[Stage]:
    pool = AgentPool(preload=("traffic.collectives.nccl",))
    yield Stage(FABRIC, pool, lambda _: None, seed=7)
    assert not pool.handles, "a test did not close its job"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Write a module with a collective into a folder elsewhere, and list that collective for the time of a test."""
    names: list[str] = []

    def add(text: str) -> ModuleType:
        names.append(f"own_collective_{len(names)}_{tmp_path.name.replace('-', '_')}")
        (tmp_path / f"{names[-1]}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        module = importlib.import_module(names[-1])
        monkeypatch.setitem(COLLECTIVES, "own", module.OWN)
        return module

    yield add
    for name in names:
        del sys.modules[name]


def played(stage: Stage, **config: object) -> pd.DataFrame:
    """Return the rows of two steps over four ranks, after a warm-up."""
    made = checked(NcclConfig, {"collective": "own", "size": 300_004, "slice": 10_000, **config}, "test")
    job = NcclJob(stage, made, FABRIC.computes[:4], lambda _: "127.0.0.1")
    try:
        job.start()
        job.warm_up()
        return pd.DataFrame(job.run_steps(2).rows("steps"))
    finally:
        job.close()


def test_one_file_adds_a_collective(stage: Stage, own: Callable[[str], ModuleType]) -> None:
    own(SCAN)
    steps = played(stage, channels=2)
    assert steps["collective"].tolist() == ["own", "own"]
    rows = with_bandwidths(steps)
    assert (rows["busbw"] / rows["algbw"]).tolist() == pytest.approx([3.0, 3.0])
    assert sum(share for *_, share in COLLECTIVES["own"].algorithm(None).flows(4)) == 3


def test_a_wrong_slice_of_a_collective_is_found(stage: Stage, own: Callable[[str], ModuleType]) -> None:
    own(FAULTY)
    with pytest.raises(TrafficError, match=r"element \d+ of 75001 is \d+, expected \d+ .* of the input of rank 1\)"):
        played(stage)
