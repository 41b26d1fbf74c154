"""YAML to checked values: every fault at once, each with its key's path and the nearest key; and overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from fabric.config import RateBps, SizeBytes, Strict, TimeS, checked, read_yaml, unknown_key, with_overrides
from fabric.errors import ConfigError


class Cable(Strict):
    rate: RateBps
    length_m: Annotated[int, Field(ge=1)] = 3


class Rack(Strict):
    spare: Cable | None = None
    cables: dict[str, Cable] = Field(default_factory=dict)
    list_of_cables: list[Cable] = Field(default_factory=list)


class Room(Strict):
    name: str
    rack: Rack = Field(default_factory=Rack)
    buffer: SizeBytes = 4096
    timeout: Annotated[TimeS, Field(gt=0)] = 1.0
    lit: bool = False


def faults_of(data: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        checked(Room, data, "room.yaml")
    assert refused.value.exit_code == 2
    assert str(refused.value) == "\n".join(f"room.yaml: {fault}" for fault in refused.value.faults)
    return list(refused.value.faults)


def test_quantities_are_read_at_every_depth() -> None:
    room = checked(
        Room,
        {
            "name": "a",
            "buffer": "4 MiB",
            "timeout": "50 ms",
            "rack": {"spare": {"rate": "20 Mbit/s"}, "cables": {"red": {"rate": 5, "length_m": 2}}},
        },
        "room.yaml",
    )
    assert room == Room(
        name="a",
        buffer=4 * 2**20,
        timeout=0.05,
        rack=Rack(spare=Cable(rate=20_000_000), cables={"red": Cable(rate=5, length_m=2)}),
    )


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"buffr": 1}, "buffr: unknown key; did you mean 'buffer'?"),
        ({"rack": {"sparse": None}}, "rack.sparse: unknown key; did you mean 'rack.spare'?"),
        (
            {"rack": {"spare": {"rate": 1, "lenght_m": 2}}},
            "rack.spare.lenght_m: unknown key; did you mean 'rack.spare.length_m'?",
        ),
        (
            {"rack": {"cables": {"red": {"rate": 1, "rates": 2}}}},
            "rack.cables.red.rates: unknown key; did you mean 'rack.cables.red.rate'?",
        ),
        (
            {"rack": {"list_of_cables": [{"rate": 1}, {"rate": 1, "length": 2}]}},
            "rack.list_of_cables.1.length: unknown key; did you mean 'rack.list_of_cables.1.length_m'?",
        ),
        ({"qqq": 1}, "qqq: unknown key; valid here: buffer, lit, name, rack, timeout"),
    ],
)
def test_a_fault_names_the_nearest_key(data: dict[str, Any], fault: str) -> None:
    assert faults_of({"name": "a", **data}) == [fault]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"lit": 1}, "lit: Input should be a valid boolean (got 1)"),
        ({"lit": "yes"}, "lit: Input should be a valid boolean (got 'yes')"),
        ({"name": 5}, "name: Input should be a valid string (got 5)"),
        ({"buffer": None}, "buffer: None is not a size; write it like '4 MiB'"),
        ({"buffer": 1.5}, "buffer: 1.5 is not a size; write it like '4 MiB'"),
        ({"buffer": True}, "buffer: True is not a size; write it like '4 MiB'"),
        ({"timeout": True}, "timeout: True is not a time; write it like '50 ms'"),
        ({"timeout": "0 s"}, "timeout: Input should be greater than 0 (got '0 s')"),
        ({"timeout": float("inf")}, "timeout: Input should be a finite number (got inf)"),
        ({"timeout": float("nan")}, "timeout: Input should be a finite number (got nan)"),
        (
            {"rack": {"spare": {"rate": "20 Mb"}}},
            "rack.spare.rate: '20 Mb': unknown unit 'Mb' of a rate; use one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s",
        ),
        ({"rack": {"spare": {}}}, "rack.spare.rate: is missing; add it"),
    ],
)
def test_nothing_is_converted_that_is_not_a_quantity(data: dict[str, Any], fault: str) -> None:
    assert faults_of({"name": "a", **data}) == [fault]


def test_all_faults_are_told_at_once() -> None:
    assert faults_of({"buffer": "big", "lit": 1, "tmeout": 1, "rack": {"cables": {"red": {"length_m": 0}}}}) == [
        "name: is missing; add it",
        "rack.cables.red.rate: is missing; add it",
        "rack.cables.red.length_m: Input should be greater than or equal to 1 (got 0)",
        "buffer: 'big' is not a size; write it like '4 MiB'",
        "lit: Input should be a valid boolean (got 1)",
        "tmeout: unknown key; did you mean 'timeout'?",
    ]


def test_an_unknown_key_without_a_near_one_lists_what_is_valid_there() -> None:
    assert unknown_key("a.b.zzz", ["rate", "length"]) == "a.b.zzz: unknown key; valid here: length, rate"


def test_a_config_does_not_change() -> None:
    with pytest.raises(Exception, match="Instance is frozen"):
        Room(name="a").name = "b"  # type: ignore[misc]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_yaml_file_is_read(tmp_path: Path) -> None:
    assert read_yaml(write(tmp_path / "a.yaml", "a: {b: 3}\nc: 20 Mbit/s\n")) == {"a": {"b": 3}, "c": "20 Mbit/s"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as refused:
        read_yaml(path)
    assert str(refused.value) == f"{path}: cannot be read: No such file or directory; give the path of a YAML file"


@pytest.mark.parametrize(("text", "kind"), [("", "NoneType"), ("- a\n- b\n", "list"), ("just words", "str")])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    path = write(tmp_path / "a.yaml", text)
    with pytest.raises(ConfigError) as refused:
        read_yaml(path)
    assert str(refused.value) == f"{path}: holds a {kind}; expected a mapping of keys to values"


def test_text_that_is_not_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a: 1\nb: [1, 2\n")
    with pytest.raises(ConfigError) as refused:
        read_yaml(path)
    (fault,) = refused.value.faults
    assert fault.startswith("is not YAML: while parsing a flow sequence")
    assert "line 2, column 4" in fault


@pytest.mark.parametrize(
    ("overrides", "result"),
    [
        ([], {"a": {"b": 1, "c": {"d": 2}}, "e": "text"}),
        (["e=5s"], {"a": {"b": 1, "c": {"d": 2}}, "e": "5s"}),
        (["a.b=true"], {"a": {"b": True, "c": {"d": 2}}, "e": "text"}),
        (["a.c.d=[1, 2]"], {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": "text"}),
        (["a.c.x=y=z"], {"a": {"b": 1, "c": {"d": 2, "x": "y=z"}}, "e": "text"}),
        (["n.e.w=3"], {"a": {"b": 1, "c": {"d": 2}}, "e": "text", "n": {"e": {"w": 3}}}),
        (["a={q: 1}", "a.r=2"], {"a": {"q": 1, "r": 2}, "e": "text"}),
        (["a.b=2", "a.b=3"], {"a": {"b": 3, "c": {"d": 2}}, "e": "text"}),
        (["e="], {"a": {"b": 1, "c": {"d": 2}}, "e": None}),
    ],
)
def test_overrides_set_what_they_name_and_nothing_else(overrides: list[str], result: dict[str, Any]) -> None:
    data: dict[str, Any] = {"a": {"b": 1, "c": {"d": 2}}, "e": "text"}
    assert with_overrides(data, overrides) == result
    assert data == {"a": {"b": 1, "c": {"d": 2}}, "e": "text"}, "the original stays as it was"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("duration", "--set: 'duration' is no setting; write it like duration=5s or topology.mtu=1500"),
        ("=5", "--set: '=5' is no setting; write it like duration=5s or topology.mtu=1500"),
        ("e.f=5", "--set: 'e.f=5': 'e' is 'text', not a mapping; set 'e' itself"),
        ("a.b.c=5", "--set: 'a.b.c=5': 'b' is [1], not a mapping; set 'b' itself"),
        ("e=[1", "--set: 'e=[1': '[1' is not YAML; put it in quotes"),
    ],
)
def test_an_override_that_cannot_be_applied_says_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides({"a": {"b": [1]}, "e": "text"}, [text])
    assert str(refused.value) == message
