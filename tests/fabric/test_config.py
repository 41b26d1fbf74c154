"""YAML to checked values: every fault at once, each with its key's path and the nearest key; and overrides."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field

from fabric.config import (
    ByName,
    Fault,
    RateBps,
    SizeBytes,
    Strict,
    TimeS,
    checked,
    checked_with_settings,
    parse_yaml,
    read_yaml,
    setting,
    unknown_key,
    with_overrides,
    yaml_of,
)
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


@dataclass(frozen=True)
class Plug:
    """A value that configs name."""

    name: str
    pins: int = 2


PLUGS = (Plug("flat"), Plug("round", 3))


class Socket(Strict):
    plug: Annotated[Plug, ByName(PLUGS)] = PLUGS[0]
    others: list[Annotated[Plug, ByName(PLUGS)]] = Field(default_factory=list)


def test_values_with_names_are_read_and_written_by_these() -> None:
    socket = checked(Socket, {"plug": "round", "others": ["flat"]}, "test")
    assert socket.plug is PLUGS[1]
    assert socket.others == [PLUGS[0]]
    assert socket.model_dump() == socket.model_dump(mode="json") == {"plug": "round", "others": ["flat"]}
    assert Socket(plug=Plug("own")).plug.name == "own"
    assert Socket.model_json_schema()["properties"]["plug"]["enum"] == ["flat", "round"]


@pytest.mark.parametrize("said", ["Flat", "", 1, None, ["flat"], {"name": "flat"}])
def test_what_is_no_name_is_told_which_there_are(said: Any) -> None:
    with pytest.raises(ConfigError) as failed:
        checked(Socket, {"plug": said}, "test")
    assert failed.value.faults == (f"plug: Input should be 'flat' or 'round' (got {said!r})",)


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


class Fan(Strict):
    kind: Literal["fan"]
    speed: int = 1


class Pump(Strict):
    kind: Literal["pump"]
    pressure: int = 1


class Cooling(Strict):
    parts: list[Annotated[Fan | Pump, Field(discriminator="kind")]]


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"kind": "pump", "presure": 2}, "parts.0.presure: unknown key; did you mean 'parts.0.pressure'?"),
        ({"kind": "pump", "speed": 2}, "parts.0.speed: unknown key; valid here: kind, pressure"),
        ({"kind": "fan", "speed": []}, "parts.0.speed: Input should be a valid integer (got [])"),
    ],
)
def test_keys_of_one_kind_are_not_those_of_another(part: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(Cooling, {"parts": [part]}, "cooling.yaml")
    assert refused.value.faults == (fault,)


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


DEEP = "[" * 3000
MANY = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
NO_CONFIGS = {
    "twice": ("a: 1\nb: 2\na: 3\n", ["line 3: a is on line 1, too; keep one of them"]),
    "three times": ("a: 1\na: 2\na: 3\n", [f"line {line}: a is on line 1, too; keep one of them" for line in (2, 3)]),
    "inside": ("a:\n  b: 1\n  c: {d: 1, d: 2}\n", ["line 3: d is on line 3, too; keep one of them"]),
    "in a list": ("a:\n- {b: 1}\n- {b: 1,\n   b: 2}\n", ["line 4: b is on line 3, too; keep one of them"]),
    "quoted": ("a: 1\n'a': 2\n", ["line 2: a is on line 1, too; keep one of them"]),
    "deep": (DEEP, ["is nested too deep; 100 levels can be read"]),
    "deeper than read": (
        "a: " + "[" * 150 + "]" * 150,
        ["is nested too deep, or holds itself by an alias; 100 levels"],
    ),
    "itself": ("a: &a\n  b: *a\n", ["is nested too deep, or holds itself by an alias; 100 levels can be read"]),
    "aliases": (MANY, ["holds more than 1,000,000 values, its aliases written out; use fewer"]),
    "a date": ("a: 2026-99-99\n", ["is not YAML that can be read: line 1: '2026-99-99' is not of type timestamp"]),
    "digits": (f"a: {'9' * 5000}\n", ["is not YAML that can be read: line 1: '99999"]),
    "half a character": ('a: "\\ud83d"\n', [r"'\ud83d': has half of a character in it; write the whole one as \U"]),
}


@pytest.mark.parametrize(("text", "faults"), NO_CONFIGS.values(), ids=list(NO_CONFIGS))
def test_yaml_that_can_be_no_config_is_refused(tmp_path: Path, text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        read_yaml(write(tmp_path / "a.yaml", text))
    assert len(refused.value.faults) == len(faults)
    for fault, begin in zip(refused.value.faults, faults, strict=True):
        assert fault.startswith(begin)


def test_a_merged_key_may_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a: &a {b: 1, c: 2}\nd: {<<: *a, b: 3}\ne: [*a, *a]\n")
    merged = {"b": 1, "c": 2}
    assert read_yaml(path) == {"a": merged, "d": {"b": 3, "c": 2}, "e": [merged, merged]}


def test_a_file_that_is_not_utf_8_is_named_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes("name: isolé\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"a.yaml: is not UTF-8 \(byte 10, 0xe9\); give the path of a YAML file"):
        read_yaml(tmp_path / "a.yaml")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e14", 1e14), ("-2E+3", -2e3), ("5.e-1", 0.5), ("'1e14'", "1e14"), ("1e14 bit/s", "1e14 bit/s"), ("e14", "e14")],
)
def test_powers_of_ten_are_numbers_as_in_json_and_yaml_1_2(text: str, value: Any) -> None:
    found = parse_yaml(f"a: {text}", "a test")["a"]
    assert (type(found), found) == (type(value), value)
    assert parse_yaml(yaml_of({"a": value, "1e5": [value]}), "again") == {"a": value, "1e5": [value]}


@given(value=VALUES)
def test_a_value_that_is_set_is_that_value(value: Any) -> None:
    assert with_overrides({}, [setting("a", value)]) == {"a": value}


@pytest.mark.parametrize(
    "value", [5e-05, 1e-7, 1e16, 1e300, -2e-9, "5e-05", "yes", "1:20", "😀", "a\u2028b\x85", "", "~"]
)
def test_values_that_json_and_yaml_read_differently_are_themselves(value: Any) -> None:
    found = with_overrides({}, [setting("a", value)])["a"]
    assert (type(found), found) == (type(value), value)


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
        ("duration", "--set: 'duration' is not a setting; write it like duration=5s or topology.mtu=1500"),
        ("=5", "--set: '=5' is not a setting; write it like duration=5s or topology.mtu=1500"),
        ("e.f=5", "--set: 'e.f=5': 'e' is 'text', not a mapping; set 'e' itself"),
        ("a.b.c=5", "--set: 'a.b.c=5': 'b' is [1], not a mapping; set 'b' itself"),
        ("e={f: 1, f: 2}", "--set: 'e={f: 1, f: 2}': line 1: f is on line 1, too; keep one of them"),
        ("e=[1", "--set: 'e=[1': '[1' is not YAML; put it in quotes"),
    ],
)
def test_an_override_that_cannot_be_applied_says_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_overrides({"a": {"b": [1]}, "e": "text"}, [text])
    assert str(refused.value) == message


def _known(value: str) -> str:
    raise ValueError(f"{value} is nothing that is known")


class Rule(str, Enum):
    PACKED = "packed"
    SPREAD = "spread"


class Eithers(Strict):
    placement: Annotated[Rule, Field(strict=False)] | Annotated[list[str], Field(max_length=3)] = Rule.PACKED
    nodes: Annotated[int, Field(ge=1)] | list[str] = 1
    steps: Annotated[float, Field(gt=0)] | Annotated[str, AfterValidator(_known)] | None = None
    inner: list[Eithers] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"placement": "foo"}, "placement: Input should be 'packed' or 'spread', or a valid list (got 'foo')"),
        ({"placement": ["a", 1]}, "placement.1: Input should be a valid string (got 1)"),
        ({"placement": ["a"] * 4}, "placement: List should have at most 3 items after validation, not 4"),
        ({"nodes": 0}, "nodes: Input should be greater than or equal to 1 (got 0)"),
        ({"nodes": {"a": 1}}, "nodes: Input should be a valid integer, or a valid list (got {'a': 1})"),
        ({"steps": "x"}, "steps: x is nothing that is known"),
        ({"inner": [{"nodes": 1.5}]}, "inner.0.nodes: Input should be a valid integer, or a valid list (got 1.5)"),
    ],
)
def test_a_value_of_several_types_has_one_fault_without_names_of_our_types(data: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(Eithers, data, "x.yaml")
    (found,) = refused.value.faults
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "text",
    ['!!int ""', "!!int", "!!float", "!!bool maybe", "!!timestamp now", "!!int 0x", "2026-13-41", "[1, !!int '']"],
)
def test_a_scalar_that_is_not_what_its_tag_says_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not YAML that can be read: line 2: '.*' is not of type \w+"):
        parse_yaml(f"a: 1\nb: {text}\n", "test")


class Pipe(Strict):
    width: int


class Plant(Strict):
    pipes: dict[str, Pipe] = Field(default_factory=lambda: {"main": Pipe(width=5)})
    pressure: int = 1
    load: int = 1


def plant_of(data: dict[str, Any]) -> Plant:
    found = checked(Plant, data, "plant.yaml")
    if found.load > found.pressure:
        raise ConfigError("plant.yaml", ["too much for the pressure"])  # Of two keys, and it says none.
    return found


def test_a_fault_says_its_key_and_what_it_is_as_values() -> None:
    with pytest.raises(ConfigError) as caught:
        checked(Plant, {"pipes": {"spare": {}}, "load": "x", "presure": 2}, "plant.yaml")
    faults = [one for one in caught.value.faults if isinstance(one, Fault)]
    assert [(one.path, one.is_missing) for one in faults] == [
        ("pipes.spare.width", True),
        ("load", False),
        ("presure", False),
    ]
    assert list(faults) == list(caught.value.faults)
    again = pickle.loads(pickle.dumps(faults[0]))
    assert (again, again.path, again.is_missing) == (faults[0], "pipes.spare.width", True)
    assert (faults[0].inside, faults[0].inside.path) == ("spare.width: is missing; add it", "spare.width")


@pytest.mark.parametrize(
    ("settings", "source", "fault"),
    [
        (["pressure=3", "load=x"], "--set load=x", "load: Input should be a valid integer"),
        (["pipes.main.width=3", "load=2"], "--set load=2", "too much for the pressure"),
        (["pressure=2", "load=3"], "--set load=3", "too much for the pressure"),
        (["pressure=-2", "load=-1"], "--set pressure=-2", "too much for the pressure"),
        (["pressure=0", "load=2"], "--set", "too much for the pressure"),
        (["load=1", "pipes.mian.wdith=3"], "--set", "pipes has no 'mian'; did you mean 'main'?"),
    ],
)
def test_faults_name_the_setting_that_has_them(settings: list[str], source: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_with_settings(plant_of, {}, settings)
    assert caught.value.source == source
    assert caught.value.faults[0].startswith(fault)
