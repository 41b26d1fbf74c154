"""HFReduce over ranks that are GPUs: each node's leader carries out what its CPU and GPUs do, for all of them."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.traffic.collectives.test_collectives import Pipe
from tests.traffic.collectives.test_gpu_copies import MEMORY, PAIRED, PLAIN, FakeMemory
from traffic.collectives import gpu_copies
from traffic.collectives.collective import Groups, sum_everywhere
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.gpu_copies import NodeParts
from traffic.collectives.node_allreduce import BETWEEN_CPUS, COME, DONE, NodeAllreduce
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.schedule import RankContext
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import double_binary_tree

ELEMENTS, CHUNK, TIMEOUT_S = 1003, 100, 20.0
SPREAD: Groups = ((3, 0, 7, 8), (1, 2, 4, 5), (6, 9, 10, 11))
"""Ranks of three nodes of four GPUs, in no order."""


def schedule_of(groups: Groups) -> NodeAllreduce:
    return NodeAllreduce(TreeAllreduce(double_binary_tree(len(groups)), ELEMENTS, CHUNK), groups)


@pytest.mark.parametrize("parts", [PLAIN, PAIRED], ids=["PCIe", "NVLink pairs"])
@pytest.mark.parametrize("groups", [SPREAD, SPREAD[:1]], ids=["three nodes", "one"])
def test_all_ranks_get_the_sum_once_all_have_come(
    parts: NodeParts, groups: Groups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_copies, "Reserving", FakeMemory)
    schedule = schedule_of(groups)
    ranks = sorted(rank for group in groups for rank in group)
    data = Dataset.write(tmp_path, DatasetShape(12, 1, ELEMENTS), 5, CHUNK)
    links: Any = {edge: Pipe() for edge in schedule.edges}
    checks: dict[int, list[ResultCheck]] = {}
    nodes = []
    with ThreadPoolExecutor(100) as pool:
        begun: dict[int, list[Future[None]]] = {}
        for rank in [*ranks[1:], ranks[0]]:
            mates = schedule.node_of(rank) if schedule.is_leader(rank) else ()
            (total,) = data.sums_of([ranks])
            stretches = [(one, total) for one in sum_everywhere(0, 1, ELEMENTS)]
            checks[rank] = [ResultCheck(stretches, ELEMENTS) for _ in mates]
            node = parts.connect(CHUNK * 4, MEMORY, f"rank {rank}", 5.0) if mates else None
            nodes += [node] if node else []
            mine = {edge: link for edge, link in links.items() if rank in (edge.dialer, edge.listener)}
            inputs = [data.inputs(one)[0] for one in mates]
            worker = schedule.worker(
                RankContext(rank, mine, inputs, TIMEOUT_S, node), [one.piece for one in checks[rank]]
            )
            for check in checks[rank]:
                check.begin("test")
            if rank == ranks[0]:  # The last to come: nobody has ended.
                time.sleep(0.1)
                assert not any(task.done() for tasks in begun.values() for task in tasks)
            begun[rank] = [pool.submit(task) for task in worker.tasks(4)]
        for tasks in begun.values():
            for task in tasks:
                task.result(TIMEOUT_S)
    assert [len(checks[rank]) for rank in ranks] == [4 * schedule.is_leader(rank) for rank in ranks]
    for check in (check for of_rank in checks.values() for check in of_rank):
        check.end()
    for node in nodes:
        for end in (end for tree in node.of_trees for gpu in tree for end in gpu.all):
            end.close()


def test_edges_join_leaders_by_their_cpus_and_each_rank_with_its_leader() -> None:
    schedule = schedule_of(SPREAD)
    between = [edge for edge in schedule.edges if edge.channel >= BETWEEN_CPUS]
    inside = [edge for edge in schedule.edges if edge.channel < BETWEEN_CPUS]
    assert {rank for edge in between for rank in (edge.dialer, edge.listener)} == {3, 1, 6}
    assert len(between) == len(schedule.tree.edges)
    assert {(edge.dialer, edge.listener) for edge in inside if edge.channel == COME} == {
        (other, group[0]) for group in SPREAD for other in group[1:]
    }
    assert {(edge.listener, edge.dialer) for edge in inside if edge.channel == DONE} == {
        (other, group[0]) for group in SPREAD for other in group[1:]
    }
    sent: dict[int, float] = {}
    for source, target, share in schedule.flows():
        sent[source] = sent.get(source, 0.0) + share
        assert {source, target} <= {3, 1, 6}
    assert max(sent.values()) <= 2.0, "nodes send no more than HFReduce's do"
    assert schedule.shortened(10).elements == 10
