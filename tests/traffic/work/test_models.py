"""Models have exactly the parameters and FLOPs that are published or follow in closed form."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.errors import ConfigError
from traffic.work.models.listing import active_parameters, forward_flops, model_names, model_of, parameters_of
from traffic.work.models.shapes import Role
from traffic.work.models.theory import gpt_flops, gpt_parameters, training_flops_per_token
from traffic.work.models.transformer import Transformer

PARAMETERS = {
    "lenet5": 61_706,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "gpt2_medium": 354_823_168,
    "llama_13b": 13_015_864_320,
    "deepseek_moe_16b": 16_375_728_128,
    "llama3_70b": 70_553_706_496,
    "deepseek_v3": 671_026_404_352,
}
OWN = """
family: transformer
source: a test
layers: 4
hidden: 64
sequence: 128
vocabulary: 512
attention: {heads: 4, head_size: 16, biases: true}
mlp: {inner: 256, gated: false, biases: true}
norm: layer
positions: 128
tied: true
"""


def transformer(name: str) -> Transformer:
    model = model_of(name)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_exact(name: str) -> None:
    assert parameters_of(model_of(name)) == PARAMETERS[name]


def test_every_model_that_is_shipped_has_its_number() -> None:
    assert {*model_names()} == {*PARAMETERS, "deepseek_v3_layer"}


def test_parts_of_models_are_exact() -> None:
    gpt2 = model_of("gpt2_medium").all_layers()
    assert {layer.parameters for layer in gpt2[1:-1]} == {12_596_224}
    assert gpt2[0].parameters + gpt2[-1].parameters == 52_513_792
    assert model_of("llama_13b").all_layers()[1].parameters == 317_204_480
    assert model_of("deepseek_v3_layer").all_layers()[1].parameters == 11_507_286_016
    assert sum(len(layer.tensors) for layer in model_of("resnet50").all_layers()) == 161


def test_a_token_meets_some_experts() -> None:
    assert active_parameters(model_of("deepseek_moe_16b")) == 2_828_650_496
    assert active_parameters(model_of("deepseek_v3")) == 37_552_282_624
    assert active_parameters(model_of("llama_13b")) == PARAMETERS["llama_13b"]


def test_experts_begin_behind_the_dense_layers() -> None:
    roles = [layer.parts[-1].role for layer in model_of("deepseek_v3").all_layers()[1:-1]]
    assert roles == [Role.MLP] * 3 + [Role.EXPERTS] * 58


def test_flops_and_parameters_are_those_of_megatrons_formulas() -> None:
    model = transformer("gpt2_medium")
    assert 3 * forward_flops(model) == pytest.approx(gpt_flops(model, 1), rel=1e-12)
    layers, head = 3 * forward_flops(model), 6 * model.sequence * model.hidden * model.vocabulary
    assert gpt_flops(model, 1, recompute=True) == pytest.approx(layers + (layers - head) / 3, rel=1e-12)
    last_norm = 2 * model.hidden
    assert gpt_parameters(model) + last_norm == pytest.approx(parameters_of(model), rel=1e-12)
    assert training_flops_per_token(model) == pytest.approx(gpt_flops(model, 1) / model.sequence)


def test_flops_of_networks_of_modules() -> None:
    assert forward_flops(model_of("resnet50")) == pytest.approx(2 * 4.089e9, rel=1e-3)
    assert forward_flops(model_of("vgg16")) == pytest.approx(2 * 15.47e9, rel=1e-3)


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    model = model_of(str(file))
    assert isinstance(model, Transformer)
    assert parameters_of(model) == pytest.approx(gpt_parameters(model) + 2 * 64)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("layers: 4", "layers: 0"),
        ("heads: 4", "heds: 4"),
        ("family: transformer", "family: recurrent"),
    ],
)
def test_a_file_that_is_wrong_is_told_by_its_key(tmp_path: Path, changed: str, said: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN.replace(changed, said))
    with pytest.raises(ConfigError) as error:
        model_of(str(file))
    assert str(file) in str(error.value)
    assert said.partition(":")[0] in str(error.value)


def test_a_name_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'llama_13'; did you mean 'llama_13b'"):
        model_of("llama_13")


def test_experts_that_cannot_be_taken() -> None:
    text = "experts: {routed: 8, inner: 4, top: 3, groups: 4, top_groups: 1}"
    with pytest.raises(ConfigError, match="top: 3 experts, but top_groups have 2"):
        _own_with(text)


def _own_with(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "own.yaml"
        file.write_text(OWN + text)
        model_of(str(file))
