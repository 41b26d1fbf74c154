"""Training jobs that cannot be: each fault names the key, the value, the limit and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from tests.traffic.work.training import config_of, graph_of_job
from traffic.work.generators import config as configs
from traffic.work.generators.config import TrainingConfig, training_graph
from traffic.work.operations import CollectiveCall, Compute, Receive, Send

LLAMA, MOE, VGG = "llama_13b", "deepseek_moe_16b", "vgg16"
INTERLEAVED = {"schedule": "interleaved", "chunks": 2}
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("lama_13b", {}, "did you mean 'llama_13b'"),
    ("./none.yaml", {}, "none.yaml: cannot be read"),
    (LLAMA, {"layout": {"pipeline": 3}}, "40 layers of llama_13b are not divisible by 3 stages"),
    (MOE, {"layout": {"pipeline": 10}}, "28 layers .* give each stage's in pipeline.stage_layers"),
    (MOE, {"layout": {"pipeline": 2}, "pipeline": {"stage_layers": [20, 9]}}, "2 stages with 29 layers.* add up to 28"),
    (LLAMA, {"layout": {"pipeline": 2}, "pipeline": {"stage_layers": [40, 0]}}, "stage_layers.1: Input should be"),
    (LLAMA, {"layout": {"tensor": 3}}, "heads 40, not divisible by 3"),
    ("gpt2_medium", {"layout": {"tensor": 2}}, "vocabulary 50257, not divisible by 2.*Megatron-LM pads it"),
    ("llama3_70b", {"layout": {"tensor": 16}}, "key_value_heads 8, not divisible by 16"),
    (LLAMA, {"layout": {"context": 3}}, "2048 tokens is not divisible by 3"),
    (LLAMA, {"layout": {"data": 2, "expert": 2}}, "llama_13b has no experts"),
    (MOE, {"layout": {"data": 3, "expert": 3}}, "64 experts are not divisible by 3 ranks"),
    (MOE, {"layout": {"data": 2, "expert": 4, "tensor": 2}}, "set layout.sequence_parallel"),
    (MOE, {"layout": {"data": 16, "expert": 16, "gpus_per_node": 12}}, "not evenly on nodes of 12 GPUs"),
    (MOE, {"layout": {"data": 3, "context": 2, "expert": 2, "gpus_per_node": 3}},
     "ranks 0, 1 are 2 per node of 3 GPUs, and ranks 2, 3 are 1"),
    (MOE, {"layout": {"data": 2, "expert": 2}, "experts": {"groups": 64, "top_groups": 4}}, "do not have the 6"),
    (MOE, {"layout": {"data": 2, "expert": 2}, "experts": {"groups": 7}}, "64 experts are not in 7 equal groups"),
    (LLAMA, {"layout": {"pipeline": 4}, "micro_batches": 6, "pipeline": INTERLEAVED}, "not a multiple of the 4.*use 8"),
    (LLAMA, {"pipeline": INTERLEAVED, "micro_batches": 4}, "needs layout.pipeline of 2 or more"),
    (LLAMA, {"pipeline": {"chunks": 2}}, "1f1b with 2 chunks"),
    (LLAMA, {"layout": {"pipeline": 2}, "data_parallel": {"strategy": "fsdp"}}, "layout.pipeline 2 .* use zero1"),
    (MOE, {"layout": {"data": 2, "expert": 2}, "data_parallel": {"strategy": "zero3"}}, "experts are spread already"),
    (LLAMA, {"data_parallel": {"no_sync": True}}, "is of fsdp, and the strategy is ddp"),
    (LLAMA, {"data_parallel": {"reshard": False}}, "is of fsdp, and the strategy is ddp"),
    (LLAMA, {"data_parallel": {"algorithm": "ring", "strategy": "zero1"}}, "is of ddp, and the strategy is zero1"),
    (LLAMA, {"data_parallel": {"prefetch": 2}}, "prefetch: is of zero3 or fsdp, and the strategy is ddp; leave it out"),
    (LLAMA, {"data_parallel": {"strategy": "fsdp", "bucket": 5}}, "bucket: is of ddp, zero1 or zero2"),
    (LLAMA, {"data_parallel": {"parameter_bytes": 4}}, "parameter_bytes: is of zero1"),
    (LLAMA, {"layout": {"context_exchange": "all_gather"}}, "and layout.context is 1; leave it out"),
    (MOE, {"experts": {"skew": 0.5}}, "layout.expert is 1; leave it out"),
    (VGG, {"data_parallel": {"strategy": "zero1"}, "parameter_server": {"servers": 1}}, "besides a parameter server"),
    (VGG, {"layout": {"tensor": 2}}, "layout.tensor: 2, but vgg16 is a network of modules"),
    (VGG, {"sequence": 100}, "vgg16 has no sequences"),
    (VGG, {"played": 2}, "played: 2 micro-batches, of 1; play at most"),
    (LLAMA, {"layout": {"pipeline": 4}, "micro_batches": 64, "played": 5}, "no steady part; play 9 or more"),
    (LLAMA, {"layout": {"pipeline": 4}, "micro_batches": 64, "played": 9,
             "pipeline": {"stage_layers": [11, 10, 10, 9]}},
     "9 micro-batches of 4 stages of unequal length have no steady part; play 13 or more"),
    (LLAMA, {"compute": {"forward": 1.0, "flops_per_s": 1e12}}, "keep one of them"),
    (LLAMA, {"layout": {"tensor": 2}, "parameter_server": {"servers": 1}}, "2 ranks a copy; set all but data to 1"),
    (VGG, {"layout": {"data": 2}, "parameter_server": {"servers": 3, "share": "colocated"}}, "3 spare machines"),
    (VGG, {"layout": {"data": 2}, "parameter_server": {"servers": 1, "slow_workers": {2: 2.0}}}, "there are 0 to 1"),
    (VGG, {"micro_batchs": 2}, "did you mean 'micro_batches'"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys", "said"), FAULTS, ids=lambda value: str(value)[:40])
def test_what_cannot_be(model: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(model, **keys)


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        config_of(LLAMA, layout={"tensor": 3, "pipeline": 7, "context": 5})
    for said in ("heads 40", "vocabulary 32000", "7 stages", "by 5"):
        assert said in str(error.value)


def test_too_many_operations_are_told_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "MOST_OPERATIONS", 1000)
    config = config_of(LLAMA, layout={"pipeline": 4, "data": 2}, micro_batches=64)
    with pytest.raises(ConfigError, match=r"and 1,000 is the most; set played .9 micro-batches or more."):
        training_graph(config)
    monkeypatch.undo()
    training_graph(config)


def test_every_key_says_what_it_means() -> None:
    def keys(model: Any) -> None:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            if hasattr(field.annotation, "model_fields"):
                keys(field.annotation)

    keys(TrainingConfig)


def test_a_config_is_what_it_was_after_a_file() -> None:
    config = config_of(MOE, layout={"data": 4, "expert": 2}, experts={"skew": 0.5})
    assert checked(TrainingConfig, config.model_dump(mode="json"), "again") == config


JOBS: list[tuple[str, dict[str, Any]]] = [
    (LLAMA, {"layout": {"tensor": 2, "pipeline": 2, "data": 2, "sequence_parallel": True}, "micro_batches": 4}),
    (LLAMA, {"layout": {"context": 2, "pipeline": 2}, "micro_batches": 4, "pipeline": INTERLEAVED}),
    (MOE, {"layout": {"data": 8, "expert": 8, "gpus_per_node": 4}, "sequence": 64}),
    ("gpt2_medium", {"layout": {"data": 2}, "data_parallel": {"strategy": "fsdp"}}),
    (VGG, {"layout": {"data": 2}, "parameter_server": {"servers": 2, "steps": 3, "delay": None}}),
]


@pytest.mark.parametrize(("model", "keys"), JOBS, ids=lambda value: str(value)[:30])
def test_graphs_are_sound(model: str, keys: dict[str, Any]) -> None:
    """Dependencies are earlier operations, sends meet receives of their size, collectives are alike on all ranks."""
    graph = graph_of_job(model, **keys)
    assert graph.ranks == config_of(model, **keys).ranks
    messages: dict[tuple[int, int, int], list[list[int]]] = {}
    calls: dict[str, dict[int, list[tuple[str, int]]]] = {}
    for rank, place, one in graph.all_operations():
        assert all(before < place for before in (*one.after, *one.after_start))
        assert one.name
        if isinstance(one, Send):
            messages.setdefault((rank, one.peer, one.tag), [[], []])[0].append(one.size_bytes)
        elif isinstance(one, Receive):
            messages.setdefault((one.peer, rank, one.tag), [[], []])[1].append(one.size_bytes)
        elif isinstance(one, CollectiveCall):
            assert rank in graph.members(one.group)
            size = 0 if one.sent_bytes else one.size_bytes
            calls.setdefault(one.group, {}).setdefault(rank, []).append((one.collective, size))
        else:
            assert isinstance(one, Compute) and one.stream == "compute"
    assert all(sent == taken for sent, taken in messages.values())
    for group, of_rank in calls.items():
        assert {*of_rank} == {*graph.members(group)}
        assert len({tuple(one) for one in of_rank.values()}) == 1
    assert {*graph.groups} == {*calls}
