"""Keys in words: types with limits, values as they can be written again, parts inside others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fabric.config import ByName, NoneAs, RateBps, SizeBytes, Strict, TimeS
from fabric.config_keys import Key, Words, keys_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Plug:
    name: str


PLUGS = (Plug("flat"), Plug("round"))


class Inner(Strict):
    depth: Annotated[int, Field(ge=1, le=9)] = Field(default=3, description="How deep.")


class Other(Strict):
    kind: Literal["other"] = Field(description="Which.")


class Third(Strict):
    kind: Literal["third"] = Field(description="Which.")


class Config(Strict):
    size: Annotated[SizeBytes, Field(ge=1)] = Field(default=320 * 10**9, description="")
    odd_size: SizeBytes = Field(default=1234567, description="")
    rate: RateBps = Field(default=25_000_000, description="")
    time: Annotated[TimeS, Field(gt=0, lt=2)] | None = Field(default=None, description="")
    fraction: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.1, description="")
    off: Annotated[int | None, NoneAs("off")] = Field(default=None, description="")
    colour: Colour = Field(default=Colour.BLUE, description="")
    plug: Annotated[Plug, ByName(PLUGS)] = Field(default=PLUGS[1], description="")
    plugs: list[Annotated[Plug, ByName(PLUGS)]] = Field(default_factory=lambda: list(PLUGS), description="")
    times: Annotated[list[TimeS], Field(min_length=1)] = Field(default_factory=lambda: [0.5, 1e-6], description="")
    needed: str = Field(description="Any text.")
    inner: Inner = Field(default_factory=Inner, description="")
    lanes: dict[str, Inner] = Field(default_factory=dict, description="")
    jobs: list[Other | Third] = Field(default_factory=list, description="")
    raw: dict[str, Any] = Field(default_factory=dict, description="")


@pytest.mark.parametrize(
    ("name", "type_", "default"),
    [
        ("size", "size >= 1 B", "320 GB"),
        ("odd_size", "size", "1234567 B"),
        ("rate", "rate", "25 Mbit/s"),
        ("time", "time > 0, < 2 s", "none"),
        ("fraction", "number >= 0, < 1", "0.1"),
        ("off", "integer or off", "off"),
        ("colour", "red or blue", "blue"),
        ("plug", "flat or round", "round"),
        ("plugs", "list of flat or round", "[flat, round]"),
        ("times", "list of time, 1 or more", "[500 ms, 1 us]"),
        ("needed", "text", "required"),
        ("lanes", "mapping of text to mapping", "{}"),
    ],
)
def test_types_and_defaults(name: str, type_: str, default: str) -> None:
    field = Config.model_fields[name]
    assert (Words().type_of(field), Words().default_of(field)) == (type_, default)


def test_the_keys_of_parts_follow_their_own() -> None:
    value = Config(needed="x", lanes={"fast": Inner(depth=7)})
    keys = {key.path: key for key in keys_of(Config, value, {"raw": Inner(depth=2)})}
    assert keys["needed"] == Key("needed", "text", "x", "Any text.")
    assert keys["inner.depth"].default == "3"
    assert keys["lanes.NAME.depth"].default == "3"
    assert (keys["lanes.fast.depth"].default, keys["lanes.fast.depth"].is_entrys) == ("7", True)
    assert keys["jobs[third].kind"].type == "third"
    assert keys["raw.depth"].default == "2"
