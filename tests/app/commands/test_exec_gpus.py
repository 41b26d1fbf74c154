"""What ``fabric exec --gpu`` gives programs, and refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from app.commands.exec_gpus import add_gpu_options, gpu_environment, require_gpus, torchrun_environment
from fabric.errors import ConfigError, UsageError
from fabric.model.network import Fabric
from topologies.load import load_fabric
from traffic.torch_gpus.startup import FOLDER
from traffic.torch_gpus.variables import TIMES


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return load_fabric("head_of_line_200g")


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_gpu_options(parser)
    return parser.parse_args(words)


def test_programs_are_told_of_their_gpus(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    hosts = fabric.hosts[:2]
    given = gpu_environment(asked("--gpu", "h100:8", "--gpu-values", "nan"), fabric, hosts)
    assert given == {
        "FABRIC_GPU": "h100", "FABRIC_GPUS": "8", "FABRIC_GPU_VALUES": "nan", "PET_NNODES": "2",
        "PYTHONPATH": f"{FOLDER}:/mine",
    }  # fmt: skip
    routed = gpu_environment(asked("--gpu", "h100", "--gpu-router", "3:0.5"), fabric, hosts)
    assert routed["FABRIC_GPU_ROUTER"] == "3:0.5"
    with pytest.raises(UsageError, match="--gpu-router many: is not SEED"):
        require_gpus(asked("--gpu", "h100", "--gpu-router", "many"), fabric)
    own = {"FABRIC_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    assert torchrun_environment(asked("--gpu", "h100"), own) == {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.1"}


def test_a_host_has_one_gpu_where_the_topology_says_nothing(fabric: Fabric) -> None:
    assert gpu_environment(asked("--gpu", "a100"), fabric, fabric.hosts)["FABRIC_GPUS"] == "1"


def test_nothing_is_given_without_the_option(fabric: Fabric) -> None:
    assert gpu_environment(asked(), fabric, fabric.hosts) == {}
    assert torchrun_environment(asked(), {}) == {}
    assert require_gpus(asked(), fabric) == []


def test_programs_read_measured_times_as_our_own_csv(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = tmp_path / "mine.csv"
    table.write_text("operator,shapes,type,us,note\nmm,8x8 8x8,bf16,3,\nmm,8x8 8x8,bf16,5,\n")
    words = require_gpus(asked("--gpu", "h100", "--gpu-times", str(table)), fabric)
    written = gpu_environment(asked("--gpu", "h100", *words), fabric, fabric.hosts)[TIMES]
    assert Path(written).read_text() == "operator,shapes,type,us\nmm,8x8 8x8,bf16,4.0\n"
    assert require_gpus(asked("--gpu", "h100", "--gpu-times", str(table)), fabric) == words
    table.write_text("operator\n")
    with pytest.raises(ConfigError, match=r"mine\.csv: lacks columns shapes, type, us"):
        require_gpus(asked("--gpu", "h100", "--gpu-times", str(table)), fabric)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h1000", "GPU 'h1000' is not known; use one of h100"),
        ("h100:0", "--gpu h100:0: '0' GPUs per host; give a number from 1 to 16, e.g. h100:8"),
        ("h100:many", "--gpu h100:many: 'many' GPUs per host"),
    ],
)
def test_gpus_that_cannot_be_are_refused_with_what_can(fabric: Fabric, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        require_gpus(asked("--gpu", text), fabric)
