"""Every figure that studies declare by form: axes say in words what they show, with units, and no number has more
digits than were measured."""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from fabric.metrics import Numbers
from fabric.records.figure_forms import Bands, Bars, Form, Lines, Scatter
from fabric.report.figures import forms
from fabric.report.figures.style import headed
from runs.registry import EXPERIMENTS
from tests.figure_axes import axis_faults, precision_faults

FORMS = [(name, form) for name, one in EXPERIMENTS.items() for form in one._load_forms()]
VALUE = 0.02718281828


class AnyNumbers(Numbers):
    """A value for each number that a figure asks for."""

    def __init__(self, value: float, names: list[str]) -> None:
        super().__init__(dict.fromkeys(names, value))
        self.value = value

    def __getitem__(self, name: str) -> float:
        return self.value

    def __missing__(self, name: str) -> float:
        return self.value


def fields(texts: list[str]) -> list[str]:
    found = (name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name)
    return [name for name in dict.fromkeys(found) if name.isidentifier()]


def cases_of(form: Form) -> list[forms.Shown]:
    """Return a case for each combination of two settings of each axis; those at a numeric axis are numbers."""
    of_x = fields([form.x]) if isinstance(form, Lines | Bands) else []
    labels = [] if isinstance(form, Scatter) else [*form.labels, *(one.label for one in form.numbers)]
    if isinstance(form, Bands) and form.band:
        labels += [one.label for one in form.band]
    names = fields([*forms._texts(form), *labels])
    settings = [["8", "64"] if name in of_x else [f"one {name} (s)", f"other {name} (s)"] for name in names]
    asked = fields([form.looks.bar_words]) if isinstance(form, Bars) else []
    return [
        forms.Shown(
            {**dict(zip(names, values, strict=True)), "title": "a case"}, [AnyNumbers(VALUE * (1 + place), asked)]
        )
        for place, values in enumerate(product(*settings))
    ]


def drawn(form: Form) -> Iterator[Any]:
    cases = cases_of(form)
    with headed("title", "subtitle", ["foot"], form.looks.width, forms._height(form, cases)) as (figure, body):
        forms._draw(body, form, cases)
    yield figure


@pytest.mark.parametrize(("experiment", "form"), FORMS, ids=[f"{name}-{form.name}" for name, form in FORMS])
def test_axes_have_words_and_units(experiment: str, form: Form) -> None:
    for figure in drawn(form):
        assert axis_faults(figure) == []
        assert precision_faults(figure) == []
