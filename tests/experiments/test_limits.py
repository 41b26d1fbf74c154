"""Numbers that no machine can play are refused by their key, their value and the limit, before anything begins.

The keys are found by walking through the configs of all experiments, so one that is added has a limit, or fails here.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from annotated_types import Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.sweeps.config import SweepConfig
from fabric.config import MOST_BYTES, MOST_RATE_BPS, MOST_TIME_S, checked, read_yaml
from fabric.errors import ConfigError
from fabric.failures.line import FailureConfig
from runs.config import RunConfig
from runs.registry import EXPERIMENTS, _resolve_data
from topologies.load import read_topology
from traffic.work.operations import MOST_FLOPS_PER_S

HUGE = (10**30, 1e30)
NEEDED = {
    "failures": {"at": 1.0, "for": 0.001, "repeat": {"every": 1.0, "times": 1}},
    "lanes": {},
}
"""What an item of a list or a mapping has beside the key that is tried, where it has keys without a default."""

TARGETS = {"link": "z0l00:1", "silent": "z0h000", "process": "z0h000", "disk": "st001", "gpu": "z0h000"}
"""What fails, by the first key that names a target of a kind of failure."""
EFFECTS = {"share": "slow", "factor": "slow", "latency": "slow", "chunks": "rot"}
"""What a failure is whose key is tried."""
WITH_ALL_KEYS = "shared_cluster"
ALWAYS = {("sample_period",), ("receive_window",)}
"""Keys of all configs that an experiment may count with."""


@dataclass(frozen=True)
class Key:
    """A number of a config: the way to it, in which ``0`` is an item of a list, and what it may be at most."""

    path: tuple[str | int, ...]
    kind: type
    most: float | None

    def __str__(self) -> str:
        return ".".join(map(str, self.path))


def numbers(annotation: Any, path: tuple[str | int, ...], metadata: tuple[Any, ...] = ()) -> Iterator[Key]:
    """Yield the numbers that a field of this type has in it."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [part for one in parts[1:] for part in (one.metadata if isinstance(one, FieldInfo) else [one])]
        yield from numbers(parts[0], path, (*metadata, *inner))
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from numbers(part, path, metadata)
    elif origin in (list, tuple):
        for part in parts:
            yield from numbers(part, (*path, 0))
    elif origin is dict:
        yield from numbers(parts[1], (*path, "*"))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = annotation.model_fields.get("kind")
        if kind is not None and len(get_args(kind.annotation)) == 1:  # Of several that an item may be.
            path = (*path, f"kind={get_args(kind.annotation)[0]}")
        if issubclass(annotation, FailureConfig):
            path = (*path, f"target={annotation.targets[0]}")
        for name, field in annotation.model_fields.items():
            yield from numbers(field.annotation, (*path, field.alias or name), tuple(field.metadata))
    elif annotation in (int, float):
        yield Key(path, annotation, _most(metadata))


def _most(metadata: tuple[Any, ...]) -> float | None:
    limits = [float(one.le if isinstance(one, Le) else one.lt) for one in metadata if isinstance(one, Le | Lt)]  # type: ignore[arg-type]
    return min(limits, default=None)


def keys_of(model: type[BaseModel]) -> list[Key]:
    return list(dict.fromkeys(numbers(model, ())))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_number_of_a_config_has_a_limit(name: str) -> None:
    keys = keys_of(EXPERIMENTS[name].load_config())
    assert len(keys) > 20
    assert [str(key) for key in keys if key.most is None] == []


def test_every_number_of_a_sweep_has_a_limit() -> None:
    assert [str(key) for key in keys_of(SweepConfig) if key.most is None] == []


def test_the_limits_of_rates_sizes_and_times_are_the_largest() -> None:
    keys = [key for name in EXPERIMENTS for key in keys_of(EXPERIMENTS[name].load_config())]
    most = {key.most for key in keys if key.most is not None}
    assert max(most) == max(MOST_BYTES, MOST_RATE_BPS, MOST_TIME_S, MOST_FLOPS_PER_S)


def tried_with(name: str) -> list[Key]:
    """Return the keys of an experiment that are tried with it: its own. Those of all configs, and of jobs of any kind,
    are tried with one experiment, but for a few that others count with, too."""
    found = keys_of(EXPERIMENTS[name].load_config())
    if name == WITH_ALL_KEYS:
        return found
    shared = set(keys_of(RunConfig))
    return [key for key in found if key.path in ALWAYS or not (key in shared or _is_of_any_job(key))]


def _is_of_any_job(key: Key) -> bool:
    return any(str(part).startswith("kind=") for part in key.path)


@cache
def data_of(name: str) -> Mapping[str, Any]:
    """Return the config of an experiment with its whole topology; read once, and nobody's to change."""
    data = read_yaml(EXPERIMENTS[name].file)
    return {**data, "topology": read_topology(str(data["topology"]))}


def with_value(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return a config with a value at a place; items and mappings on the way are made if they are not there."""
    part, *rest = path
    below = tuple(rest)
    if isinstance(part, int) and below and str(below[0]).startswith("kind="):
        kind = str(below[0]).partition("=")[2]
        return [with_value({"kind": kind, "name": "mine", "nodes": 2}, below[1:], value)]
    if isinstance(part, int) and below and str(below[0]).startswith("target="):
        target = str(below[0]).partition("=")[2]
        effect = {"effect": EFFECTS[str(below[1])]} if below[1] in EFFECTS else {}
        return [with_value({**NEEDED["failures"], target: TARGETS[target], **effect}, below[1:], value)]
    if isinstance(part, int):
        items = list(data) if isinstance(data, list) and data else [None]
        return [with_value(items[0], below, value) if below else value, *items[1:]]
    found = dict(data) if isinstance(data, Mapping) else {}
    if part == "*":
        part = next(iter(found), "storage")
    if not below:
        return {**found, part: value}
    inner = found.get(part)
    if inner is None and part in NEEDED:
        inner = [NEEDED[part]] if isinstance(below[0], int) else {"storage": NEEDED[part]}
    return {**found, part: with_value(inner, below, value)}


def refusal(name: str, key: Key, value: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        _resolve_data(deepcopy(with_value(data_of(name), key.path, value)), f"{name}.yaml", [], {})
    return str(refused.value)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_number_that_no_machine_can_play_is_refused_by_its_key(name: str) -> None:
    """Whatever else of the config is then wrong, too."""
    for key in tried_with(name):
        last = next(part for part in reversed(key.path) if isinstance(part, str) and part != "*")
        value = int(HUGE[0]) if key.kind is int else HUGE[1]
        words = refusal(name, key, value)
        assert any(last in line and _names(line, value) for line in words.splitlines()), (key, words)


def _names(line: str, value: float) -> bool:
    return str(value) in line or repr(value) in line or f"{value:g}" in line


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_largest_numbers_that_a_key_may_have_are_checked_at_once(name: str) -> None:
    """Each is taken, or refused with what it does not fit: checks do not count up to it."""
    for key in tried_with(name):
        assert key.most is not None
        most = key.most if key.most != int(key.most) or key.kind is float else int(key.most) - 1
        try:
            _resolve_data(with_value(data_of(name), key.path, most), f"{name}.yaml", [], {})
        except ConfigError as error:
            assert all(error.faults)


def test_numbers_of_hundreds_of_digits_are_refused() -> None:
    data = data_of("isolation")
    for text in ("9" * 400 + " s", "9" * 5000 + " ms"):
        with pytest.raises(ConfigError, match=r"alone_time: a time of .* digits is more than anything has"):
            _resolve_data({**data, "alone_time": text}, "x", [], {})
    with pytest.raises(ConfigError, match="alone_time: a time of 401 digits"):
        _resolve_data({**data, "alone_time": 10**400}, "x", [], {})
    with pytest.raises(ConfigError, match="shared_limit: a size of 400 digits"):
        _resolve_data({**data, "queues": {"shared_limit": "9" * 400 + " GiB"}}, "x", [], {})


UNPLAYABLE = {
    "chunk above size": ("isolation", {"hfreduce": {"size": "1 MiB", "chunk": "2 MiB"}}, "chunk: 2 MiB exceeds size"),
    "slice above size": ("isolation", {"nccl": {"size": "1 MiB", "slice": "2 MiB"}}, "slice: 2 MiB exceeds size"),
    "a day of samples": ("isolation", {"together_time": 86400}, "together_time: 86,400 s take 1,728,000 samples"),
    "reads at once": (
        "isolation",
        {"storage": {"dataloader": {"depth": 60_000, "batch": 60_000}}},
        r"3,600,000,000 reads of each client at once \(depth x batch\) exceed 65,536; lower depth or batch",
    ),
    "chunks": (
        "isolation",
        {"storage": {"dataloader": {"files": 60_000, "file_size": "1024 GiB"}}},
        "dataloader: 60000 files of 1024 GiB are .* chunks, more than 1,000,000; lower it or raise chunk_size",
    ),
    "a checkpoint": (
        "isolation",
        {"storage": {"checkpoint": {"size": "1024 GiB", "share": 1}}},
        "checkpoint.size: 1024 GiB are 4,194,304 chunks, more than 1,000,000",
    ),
    "rings": ("nic_failover", {"rings_per_nic": 32}, "rings_per_nic: 32 on .* NICs are .* rings, and a job has 32"),
    "a year": ("flash_cut_year", {"year": {"day": 1000, "days": 36500}}, "year.day x year.days: 36,500,000 s take"),
    "scaled": ("head_of_line", {"measured": 1000, "time_scale": 1000}, "x time_scale: .* s take .* samples"),
    "the same load": ("random_arrivals", {"loads": [0.2, 0.2]}, "loads: 0.2: named more than once"),
    "the same cut": ("link_flap", {"durations": ["50 ms", 0.05]}, "durations: 0.05: named more than once"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words"), UNPLAYABLE.values(), ids=list(UNPLAYABLE))
def test_what_cannot_be_played_together_is_refused(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _resolve_data({**data_of(name), **change}, f"{name}.yaml", [], {})


MATRIX = "Nodes 4\nConnections 1\n0->1 start {start} size {size}\n"
FLOWS = {
    "too large": ({"start": 0, "size": 10**15}, "line 3: size 1000000000000000 takes .* than patience, 600 s"),
    "too late": ({"start": 1e17, "size": 10}, "line 3: starts after .* s, and the last may after 1,000,000;"),
}  # fmt: skip


@pytest.mark.parametrize(("numbers", "words"), FLOWS.values(), ids=list(FLOWS))
def test_a_flow_that_cannot_end_in_its_time_is_refused(numbers: dict[str, float], words: str) -> None:
    data = {"matrix": MATRIX.format(**numbers), "experiment": "replay", "topology": read_topology("fire_flyer_2_small")}
    with pytest.raises(ConfigError, match=words):
        _resolve_data(data, "replay.yaml", [], {})


def test_more_seeds_than_a_machine_can_play_are_refused() -> None:
    for seeds in (10**30, 10**9):
        with pytest.raises(ConfigError, match=f"seeds.*10000.*{seeds}"):
            checked(SweepConfig, {"experiment": "isolation", "seeds": seeds}, "sweep.yaml")
    assert yaml.safe_load("1e30") == "1e30", "YAML 1.1 takes it for a text, which no number is"
