"""The pages of all configs: what every key means, its type and its default; one page per experiment, and for what they
share."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import topologies
from app.sweeps.config import SweepConfig
from fabric.config_keys import Words, models_in
from runs.config import RunConfig
from runs.definition import Experiment
from runs.registry import EXPERIMENTS, resolve

Model = type[BaseModel]
SHARED, TOPOLOGIES, SWEEPS = "shared", "topologies", "sweeps"
"""The pages that are of no experiment."""


def config_pages() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each page, in Markdown."""
    places = _places()
    yield SHARED, list(_shared_page(places))
    yield TOPOLOGIES, list(_topologies_page(places))
    yield SWEEPS, list(_sweeps_page(places))
    for experiment in EXPERIMENTS.values():
        yield experiment.name, list(_experiment_page(experiment, places))


class _Links(Words):
    """Types in Markdown on one page, with links to parts on any. ``places``: the page of each part."""

    def __init__(self, page: str, places: dict[Model, str]) -> None:
        self._page, self._places = page, places

    def code(self, text: str) -> str:
        """Return a text as code."""
        return f"`{text}`".replace("|", "\\|")

    def part(self, model: Model) -> str:
        """Return a link to where a part's keys are."""
        page = self._places[model]
        file = "" if page == self._page else f"{page}.md"
        return f"[{model.__name__}]({file}#{model.__name__.lower()})"

    def sections(self) -> Iterator[str]:
        """Yield the parts that are on this page."""
        for model in sorted(self._places, key=lambda one: one.__name__):
            if self._places[model] == self._page:
                yield from (f"### {model.__name__}", "", *_prose(model), "", *self.table(model.model_fields))

    def table(self, fields: dict[str, FieldInfo], config: RunConfig | None = None) -> Iterator[str]:
        """Yield a table of keys, with the values of ``config`` as their defaults (None: those of the code)."""
        yield from ("| key | type | default | meaning |", "|---|---|---|---|")
        for name, field in fields.items():
            set_to = "" if config is None else self.value(getattr(config, name), field.annotation, field.metadata)
            default = self.default_of(field) if config is None else set_to
            cells = (self.type_of(field), default or "its own", field.description or "")
            yield f"| `{field.alias or name}` | {' | '.join(cells)} |"
        yield ""


def _shared_page(places: dict[Model, str]) -> Iterator[str]:
    links = _Links(SHARED, places)
    yield from (
        "# Keys of every experiment",
        "",
        "Set a key with `--set a.b=value`, or in a YAML file of your own that",
    )
    yield from ("names its `experiment`. Times, sizes and rates are written with their units: `50 ms`, `4 MiB`,")
    yield from ("`20 Mbit/s`. `fabric keys EXPERIMENT` prints the same with the defaults of an experiment.", "")
    yield from ("The keys of `topology` are on [a page of their own](topologies.md).", "")
    yield from links.table(RunConfig.model_fields)
    yield from ("## Parts of configs", "", *links.sections())


def _topologies_page(places: dict[Model, str]) -> Iterator[str]:
    links = _Links(TOPOLOGIES, places)
    yield from ("# Keys of topologies", "", "A topology is a file of its own, or the value of `topology`.", "")
    for spec in _topologies():
        yield from (f"## {spec.__name__}", "", *_prose(spec), "", *links.table(spec.model_fields))
    yield from ("## Parts of topologies", "", *links.sections())


def _sweeps_page(places: dict[Model, str]) -> Iterator[str]:
    links = _Links(SWEEPS, places)
    yield from ("# Keys of sweeps", "", "A sweep is a file of its own: see [Repeats and sweeps](../../sweeps.md).", "")
    yield from (*links.table(SweepConfig.model_fields), "## Parts of sweeps", "", *links.sections())


def _experiment_page(experiment: Experiment, places: dict[Model, str]) -> Iterator[str]:
    links = _Links(experiment.name, places)
    config = resolve(experiment.name, [])[1]
    yield from (f"# Keys of {experiment.name}", "", experiment.question, "")
    yield from (
        "Its own keys, beside [those of every experiment](shared.md):",
        "",
        *links.table(_own(experiment), config),
    )
    yield from ("## Its YAML file", "", "```yaml", experiment.file.read_text().rstrip(), "```", "")
    if experiment.name in places.values():
        yield from ("## Parts", "", *links.sections())


def _own(experiment: Experiment) -> dict[str, FieldInfo]:
    fields = experiment.load_config().model_fields
    return {name: field for name, field in fields.items() if name not in RunConfig.model_fields}


def _places() -> dict[Model, str]:
    """Return the page of each part of configs: that of the only experiment that has it, or one that is shared."""
    shared = set(_models_of(RunConfig.model_fields.values()))
    of_experiments = {name: set(_models_of(_own(one).values())) for name, one in EXPERIMENTS.items()}
    count = Counter(model for models in of_experiments.values() for model in models)
    shared |= {model for model, times in count.items() if times > 1}
    own = {model: name for name, models in of_experiments.items() for model in models - shared}
    in_topologies = {model for spec in _topologies() for model in _models_of(spec.model_fields.values())}
    in_sweeps = set(_models_of(SweepConfig.model_fields.values()))
    return {
        **dict.fromkeys(in_topologies, TOPOLOGIES),
        **dict.fromkeys(in_sweeps, SWEEPS),
        **own,
        **dict.fromkeys(shared, SHARED),
    }


def _topologies() -> Iterator[Model]:
    """Yield what topology files of each ``builder`` may have."""
    for found in pkgutil.walk_packages(topologies.__path__, "topologies."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            is_own = isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == found.name
            if is_own and "builder" in value.model_fields:
                yield value


def _prose(model: Model) -> list[str]:
    return inspect.cleandoc(model.__doc__ or "").replace("``", "`").splitlines()


def _models_of(fields: Iterable[FieldInfo]) -> Iterator[Model]:
    """Yield the parts that keys have, and theirs."""
    for field in fields:
        for model in models_in(field.annotation):
            yield model
            yield from _models_of(model.model_fields.values())
