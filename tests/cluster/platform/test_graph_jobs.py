"""Training graphs and collectives as jobs of a platform: their keys, and nodes that play them over loopback."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.platform import graph_play, graph_steps
from cluster.platform.config import PlatformConfig, SubmittedJob
from cluster.platform.gang import LANE_BYTES, GangLostError, Place, gathered
from cluster.platform.graph_jobs import SAMPLES, GraphFile, SteppedGraph, graph_job_of, values_of
from cluster.platform.graph_play import ranks_playing
from cluster.platform.stage_file import FILE, VARIABLE, RanksStage, read_stage, write_stage
from cluster.platform.training_saves import FolderSaves, ModelSize
from cluster.platform.training_steps import MOST_STEPS, Trainer, Training, WrongSumError, factor, pattern
from cluster.platform.training_sums import sum_of
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.ports import held_port
from topologies.load import load_fabric
from traffic.job import Ready, Stage
from traffic.work.player.payload import Payload

FABRIC = load_fabric("fire_flyer_2_tiny")
NODES = [node.name for node in FABRIC.computes]
LENET = {"model": "lenet5", "compute": {"forward": "1 ms"}}
DDP: dict[str, Any] = {
    "graph": {"steps": 6, "every": 2, "training": {**LENET, "layout": {"data": 3, "gpus_per_node": 1}}}
}
LLAMA = {"model": "llama_13b", "sequence": 8, "micro_batches": 2, "compute": {"forward": "1 ms"}}
PIPELINE: dict[str, Any] = {"graph": {"steps": 3, "training": {**LLAMA, "layout": {"pipeline": 2, "gpus_per_node": 1}}}}
CALLS: dict[str, Any] = {
    "collective": {"steps": 3, "algorithm": "hfreduce", "begin": "8 KiB", "end": "64 KiB", "slice": "4 KiB"}
}
RING = Path(__file__).parents[2] / "traffic" / "work" / "ring.jsonl"
FILE_OF_TWO_NODES: dict[str, Any] = {"graph": {"steps": 2, "work": {"graph": str(RING), "ranks_per_node": 2}}}
GRAPH = """{"work_graph": "two", "ranks": 4}
{"rank": 0, "kind": "send", "peer": 3, "size_bytes": 5000}
{"rank": 3, "kind": "receive", "peer": 0, "size_bytes": 5000}
"""


def job_of(data: dict[str, Any]) -> SteppedGraph:
    return checked(GraphFile, data, "test").one


def stage_in(folder: Path) -> RanksStage:
    """Return what a platform whose nodes are all on loopback leaves."""
    stage = Stage(FABRIC, AgentPool(), lambda _: None, 5, {ServiceLevel.NCCL: "reno"}, 1 << 16)
    write_stage(folder, stage, {name: f"127.8.0.{place + 1}" for place, name in enumerate(NODES)})
    return read_stage()


@dataclass
class Life:
    """A life of a job whose nodes are threads of this process: what each has come to, or which error it ended with."""

    job: SteppedGraph
    stage: RanksStage
    folder: Path
    hosts: Sequence[str]
    steps: int
    leaves: Callable[[int, int], bool] = lambda rank, step: False
    found: list[Any] = field(default_factory=list)

    def play(self) -> Life:
        port = held_port()
        with ThreadPoolExecutor(len(self.hosts)) as threads:
            self.found = list(threads.map(lambda rank: self._node(rank, port), range(len(self.hosts))))
        return self

    def _node(self, rank: int, port: int) -> Any:
        job, place = self.job, Place(rank, len(self.hosts), ("127.0.0.1", port), job="7")
        training = Training(self.steps, 0.0, job.values, job.every, samples=SAMPLES)
        try:
            with (
                FolderSaves(str(self.folder / self.hosts[rank]), "7", 2) as saves,
                gathered(place, 20, 5) as gang,
                ranks_playing(job, gang, self.stage, self.hosts[rank]) as play,
            ):

                def part(step: int) -> None:
                    if self.leaves(rank, step):
                        raise GangLostError("it leaves")
                    play(step)

                trainer = Trainer(training, gang, saves, part)
                trainer.restore()
                assert trainer.train()
                return trainer.state.step, trainer.state.value
        except (GangLostError, WrongSumError) as error:
            return error


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RanksStage:
    monkeypatch.setenv(VARIABLE, str(tmp_path / FILE))
    return stage_in(tmp_path)


def state_after(steps: int, values: int) -> int:
    return pattern(values) * sum(factor(step, range(SAMPLES)) for step in range(1, steps + 1))


def test_nodes_play_graphs_and_collectives_and_others_go_on(
    stage: RanksStage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every step's sum is that of the formula, which a reader knows by the command alone."""
    for place, data in enumerate((DDP, PIPELINE, FILE_OF_TWO_NODES, CALLS)):
        job = job_of(data)
        count = job.nodes_on(FABRIC) or 3
        folder = tmp_path / str(place)
        assert (
            Life(job, stage, folder, NODES[:count], job.steps).play().found
            == [(job.steps, state_after(job.steps, job.values))] * count
        )
        formula = sum_of(job.command)
        assert formula is not None
        printed = {line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")}
        assert printed == {f"step {step} sum {formula(step)}" for step in range(1, job.steps + 1)}
    ddp = job_of(DDP)
    # Two of the three nodes are gone; a third one's checkpoint is enough, and steps go on behind it.
    again = Life(ddp, stage, tmp_path / "0", [NODES[5], NODES[1], NODES[4]], 9).play()
    assert again.found == [(9, state_after(9, ddp.values))] * 3
    out = capsys.readouterr().out
    assert "restored step 6" in out and "step 6 sum" not in out and "step 7 sum" in out


def test_who_loses_a_node_begins_again_and_who_gets_wrong_bytes_does_not(
    stage: RanksStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Life(job_of(DDP), stage, tmp_path / "0", NODES[:3], 6, lambda rank, step: (rank, step) == (2, 3)).play()
    assert all(isinstance(error, GangLostError) for error in left.found), left.found
    assert str(left.found[2]) == "it leaves"
    right = Payload.piece

    def wrong(self: Payload, origin: Any, offset: int, size_bytes: int) -> memoryview:
        return right(self, origin._replace(step=origin.step + (origin.step == 2)), offset, size_bytes)

    monkeypatch.setattr(Payload, "piece", wrong)
    spoilt = Life(job_of(PIPELINE), stage, tmp_path / "1", NODES[:2], 3).play()
    assert any(isinstance(error, WrongSumError) for error in spoilt.found), spoilt.found
    said = [str(error) for error in spoilt.found if isinstance(error, WrongSumError)]
    assert "in step 2: byte 0 is" in said[0] and "not to be trusted" in said[0]


def test_who_waits_for_a_step_answers_the_suspend_command_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_play, "_LOOK_S", 0.001)
    ours, theirs = multiprocessing.Pipe()
    looks: list[int] = []

    def meanwhile() -> None:
        looks.append(1)
        if len(looks) == 3:
            theirs.send(Ready())

    rank = graph_play._Rank("rank 0", ours)
    assert graph_play._answers({0: rank}, Ready, "end of step 1", 20.0, meanwhile) == {0: Ready()}
    assert len(looks) >= 3
    with pytest.raises(GangLostError, match=r"rank 0: no end of step 2 in time"):
        graph_play._answers({0: rank}, Ready, "end of step 2", 0.01, meanwhile)


def test_a_program_plays_what_its_word_says_and_names_what_is_wrong(
    stage: RanksStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_IP": "127.0.0.1", "MASTER_PORT": "9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FABRIC_PYTHON", raising=False)
    monkeypatch.setenv("FABRIC_HOST", NODES[0])
    monkeypatch.setenv("PLATFORM_LIFE_DIR", str(tmp_path / "7-0"))
    (tmp_path / "7-0").mkdir()
    data = {"collective": {"steps": 2, "collective": "all_to_all", "begin": "4 KiB", "ranks_per_node": 2}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    for word in (str(tmp_path / "job.yaml"), job_of(data).command[-1]):
        assert graph_steps.main([word]) == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("done step 2 state ")
    alone = json.dumps({"collective": {"steps": 2}})
    for words, said in (
        ([], "0 words; give one"),
        (["{}"], "neither is given"),
        ([str(tmp_path / "none.yaml")], "cannot be read"),
        ([alone], "a collective is between 2 ranks at least"),
    ):
        assert graph_steps.main(words) == 2
        assert said in capsys.readouterr().err, said
    monkeypatch.setenv("FABRIC_HOST", "z9h9")
    assert graph_steps.main([alone]) == 2
    assert "'z9h9': is not a node of this platform" in capsys.readouterr().err
    monkeypatch.delenv(VARIABLE)
    assert graph_steps.main([alone]) == 2
    assert "no platform has started this program" in capsys.readouterr().err


def test_a_command_says_all_of_a_job(tmp_path: Path) -> None:
    servers = {"servers": 1, "slow_workers": {1: 2.0}}
    own = {**LENET, "layout": {"data": 2, "gpus_per_node": 1}, "parameter_server": servers}
    for data in (DDP, PIPELINE, FILE_OF_TWO_NODES, CALLS, {"graph": {"steps": 1, "state": "1 MiB", "training": own}}):
        job = job_of(data)
        *program, text = job.command
        assert program == ["python3", "-m", "cluster.platform.graph_steps"]
        assert graph_job_of(text) == job
        assert values_of(text) == job.values
    assert values_of("job.yaml") is values_of("{}") is values_of("[1]") is None
    assert job_of(CALLS).level is ServiceLevel.HFREDUCE and job_of(DDP).level is ServiceLevel.NCCL
    assert MOST_STEPS * SAMPLES * (1 << 16) * (1 << 16) < 1 << (8 * LANE_BYTES), "no lane overflows"


def test_what_cannot_be_is_refused_with_the_thing_and_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "two.jsonl").write_text(GRAPH)
    work: dict[str, Any] = {"graph": {"steps": 2, "work": {"graph": str(tmp_path / "two.jsonl")}}}
    pair = {"user": "ada", "name": "one", "nodes": 4}
    for given, said in (
        ({}, "command, graph, collective: none is given"),
        ({"command": ["true"], **CALLS}, "command and collective are given; give one of them"),
        ({**DDP, **CALLS}, "graph and collective are given"),
        ({"graph": {"steps": 2}}, "training, work: neither is given"),
        ({"graph": {**DDP["graph"], **work["graph"]}}, "training, work: both are given"),
        ({"graph": {**DDP["graph"], "training": {**LENET, "recorded_steps": 1}}}, "training.recorded_steps: is for"),
        ({"graph": {**work["graph"], "work": {**work["graph"]["work"], "placement": ["z0h000"]}}}, "names nodes"),
        ({"collective": {"steps": 1, "collective": "alreduce"}}, "'alreduce' is not a collective; use one of all"),
        ({"collective": {"steps": 1, "algorithm": "rng"}}, "'rng' is not an algorithm of allreduce"),
        ({"collective": {"steps": 1, "end": "1 KiB"}}, "end: 1 KiB is less than begin"),
        ({"collective": {"steps": 1, "state": 100}}, "100 bytes are not whole values"),
    ):
        with pytest.raises(ConfigError) as caught:
            checked(SubmittedJob, {**pair, **given}, "test")
        assert said in str(caught.value), (said, str(caught.value))

    def faults(nodes: int, given: dict[str, Any]) -> list[str]:
        jobs = [{**pair, "nodes": nodes, **given}]
        return list(checked(PlatformConfig, {"jobs": jobs}, "test").faults(FABRIC))

    assert faults(3, DDP) == faults(4, work) == faults(2, CALLS) == []
    for nodes, given, fault in (
        (4, DDP, "graph: the job asks for 4 nodes, and 3 ranks, 1 on a node, take 3; give nodes: 3, or"),
        (2, work, "graph: the job asks for 2 nodes, and 4 ranks, 1 on a node, take 4"),
        (1, CALLS, "collective: nodes: 1 with 1 ranks; a collective is between 2 ranks at least"),
        (
            2,
            {"collective": {**CALLS["collective"], "ranks_per_node": 2}},
            "collective: group all: allreduce: hfreduce is",
        ),
        (3, {"graph": {"steps": 1, "training": {"model": "lenet5"}}}, "graph: training.compute: says not how long"),
        (4, {"graph": {"steps": 1, "work": {"graph": "none.goal"}}}, "graph: work.graph: "),
    ):
        (found,) = faults(nodes, given)
        assert found.startswith(f"jobs.0 (one): {fault}"), found


def test_checkpoints_of_a_models_size_need_storage_and_are_in_the_command() -> None:
    graph = {**DDP["graph"], "files": "files", "checkpoint": {"size": "2 GiB", "tensors": 4}}
    job = job_of({"graph": graph})
    assert job.model == ModelSize(2 << 30, 4, 27e9)
    assert graph_job_of(job.command[-1]).model == job.model
    at_once = job_of({"graph": {**graph, "checkpoint": {"size": "1 KiB", "device_to_host": "off"}}})
    assert graph_job_of(at_once.command[-1]).model == at_once.model == ModelSize(1024, 16, None)
    with pytest.raises(
        ConfigError, match=r"checkpoint: the parts of all nodes need storage .* name a job of kind files"
    ):
        job_of({"graph": {**graph, "files": ""}})
    with pytest.raises(ConfigError, match="1024 B are fewer than a value for each of 513 tensors"):
        job_of({"graph": {**graph, "checkpoint": {"size": 1024, "tensors": 513}}})
