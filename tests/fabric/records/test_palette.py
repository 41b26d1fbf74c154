"""The palette: what stands side by side is told apart, with each common colour blindness too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.colors import to_rgb

from fabric.model.identity import Role
from fabric.records import palette

ROOT = Path(__file__).parents[3]
HEX = re.compile(r"#[0-9A-Fa-f]{6}\b|[\"']C[0-9][\"']")
# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as it is seen.
SEEN = {
    "by all": np.eye(3),
    "without red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip
Floats = npt.NDArray[np.float64]
LEAST_APART = 9.0
"""In CIELAB (1976); 2.3 is just noticeable."""


def lab(colour: str, seen: Floats) -> Floats:
    values = np.array(to_rgb(colour))
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(seen @ linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    "family",
    [
        list(palette.LANES.values()),
        list(palette.HOSTS.values()),
        list(palette.QUEUEINGS.values()),
        list(palette.VERDICTS.values()),
        [*palette.SERIES, palette.FAILURE],
        [*palette.LANES.values(), palette.FAILURE],
    ],
    ids=["lanes", "hosts", "queueings", "verdicts", "series", "failures"],
)
@pytest.mark.parametrize("how", list(SEEN))
def test_colours_of_a_family_are_told_apart(family: Sequence[str], how: str) -> None:
    apart = {
        pair: float(np.linalg.norm(lab(pair[0], SEEN[how]) - lab(pair[1], SEEN[how])))
        for pair in combinations(family, 2)
    }
    assert {pair: distance for pair, distance in apart.items() if distance < LEAST_APART} == {}


def test_a_colour_means_one_thing() -> None:
    families: Mapping[str, set[str]] = {
        "lanes": {*palette.LANES.values(), *palette.OWN_LANES},
        "queueings": set(palette.QUEUEINGS.values()),
        "series": set(palette.SERIES),
        "hosts": set(palette.HOSTS.values()) - {palette.HOSTS[Role.STORAGE]},
        "verdicts": set(palette.VERDICTS.values()),
        "single": {palette.FAILURE, palette.ROOT, palette.SWITCH},
    }
    for one, other in combinations(families, 2):
        assert families[one] & families[other] == set(), f"{one} and {other}"
    assert palette.HOSTS[Role.STORAGE] == palette.LANES["storage"]


def test_colours_are_defined_once() -> None:
    modules = [path for folder in ("fabric", "experiments", "app", "runs") for path in (ROOT / folder).rglob("*.py")]
    found = [path for path in modules if path.name != "palette.py" and HEX.search(path.read_text())]
    assert found == []


def test_the_page_has_the_same_colours() -> None:
    text = (ROOT / "fabric/report/view/page/view.css").read_text()
    light = dict(re.findall(r"--(\w+): (#[0-9A-Fa-f]{6})", text[: text.index("data-theme")]))
    meant = {"compute": palette.HOSTS[Role.COMPUTE], "storage": palette.HOSTS[Role.STORAGE], "node": palette.SWITCH,
             "root": palette.ROOT, "cut": palette.FAILURE}  # fmt: skip
    assert {name: light[name].upper() for name in meant} == {name: colour.upper() for name, colour in meant.items()}
    badges = dict(re.findall(r"\.badge\.(\w+) \{ background: (#[0-9A-Fa-f]{6})", text))
    assert badges == palette.VERDICTS
