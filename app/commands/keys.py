"""``fabric keys``: the keys of an experiment's config, or those that begin alike."""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.table import Table

from fabric.config_keys import Key, keys_of
from fabric.errors import UsageError
from runs.console import OUT

_MOST_SUGGESTIONS = 4
_LEAST_SIMILAR = 0.6
_MOST_COLUMN = 24
_MAPPING = "mapping"
_EXPERIMENT_OF_JOBS = "shared_cluster"
"""Whose config has jobs of all kinds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric keys``."""
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="its name, its folder, or a YAML file whose values are the defaults; or a kind of job, such as training",
    )
    parser.add_argument(
        "prefix", metavar="PREFIX", nargs="?", default="", help="only keys that begin so, e.g. queues or storage.data"
    )
    parser.add_argument("--all", action="store_true", help="without a PREFIX: list what is in mappings, too")
    parser.add_argument(
        "--json", action="store_true", help="write all of these keys as JSON: key, type, default, meaning"
    )
    parser.set_defaults(command=show_keys)


def show_keys(options: argparse.Namespace, _: list[str]) -> int:
    """Print the keys of an experiment. Raises ConfigError for an unknown one, UsageError if no key begins so."""
    experiment, prefix = _of_kind(options.experiment, options.prefix)
    found = beginning_with(prefix, keys_of_experiment(experiment), experiment)
    if options.json:
        rows = [{"key": one.path, "type": one.type, "default": one.default, "meaning": one.meaning} for one in found]
        print(json.dumps(rows, indent=1))
        return 0
    is_overview = not prefix and not options.all
    shown = overview(found) if is_overview else found
    OUT.print(_table(shown))
    OUT.print("Set a key with --set KEY=VALUE, or in a YAML file. A list is set as a whole.", highlight=False)
    if is_overview:
        part = next((one.path for one in shown if one.type.startswith(_MAPPING)), "PREFIX")
        hint = f"{len(found) - len(shown)} keys are in mappings: fabric keys {experiment} {part}, or --all"
        OUT.print(hint, highlight=False)
    return 0


def _of_kind(experiment: str, prefix: str) -> tuple[str, str]:
    """Return where the keys of a kind of job are, if one is named in place of an experiment: ``training`` for
    ``shared_cluster jobs[training]``."""
    from runs.kinds import KINDS
    from runs.registry import EXPERIMENTS

    if experiment in EXPERIMENTS or experiment not in {kind.name for kind in KINDS}:
        return experiment, prefix
    return _EXPERIMENT_OF_JOBS, f"jobs[{experiment}].{prefix}"


def keys_of_experiment(name: str) -> list[Key]:
    """Return the keys of an experiment, its own first, with the values of its YAML file. Raises ConfigError."""
    from runs.config import RunConfig
    from runs.registry import resolve
    from topologies.load import spec_of

    experiment, config, *_ = resolve(name, [])
    topology = spec_of(config.topology, "topology")
    keys = list(keys_of(experiment.load_config(), config, {"topology": topology}))
    return sorted(keys, key=lambda key: _root(key.path) in RunConfig.model_fields)


def beginning_with(prefix: str, keys: Sequence[Key], experiment: str) -> list[Key]:
    """Return the keys that begin with ``prefix``, without those of single entries if others do. Raises UsageError,
    which names keys like it, if none does. A kind of job stands for its entry: ``training`` for ``jobs[training]``."""
    found = [key for key in keys if key.path.startswith(prefix)]
    if not found:
        kind, dot, inner = prefix.partition(".")
        found = [key for key in keys if f"[{kind}]{dot}{inner}" in key.path]
    if not found:
        raise UsageError(f"{prefix}: no key of {experiment} begins so; {_suggestion(prefix, keys)}")
    general = [key for key in found if not key.is_entrys]
    return general or found


def overview(keys: Sequence[Key]) -> list[Key]:
    """Return the keys of the first level; the type of one with keys inside says how many there are."""
    inside = Counter(_root(key.path) for key in keys if _root(key.path) != key.path)
    return [
        replace(key, type=f"{key.type}: {inside[key.path]} keys") if inside[key.path] else key
        for key in keys
        if _root(key.path) == key.path
    ]


def _suggestion(prefix: str, keys: Sequence[Key]) -> str:
    paths = [key.path for key in keys if not key.is_entrys]
    wanted = prefix.rpartition(".")[2].lower()
    places = dict.fromkeys(part for key in keys for part in _places(key.path))
    alike = difflib.get_close_matches(prefix, places, _MOST_SUGGESTIONS, _LEAST_SIMILAR)
    if by_end := [path for path in paths if wanted and wanted in path.rpartition(".")[2]]:
        alike = by_end
    if not alike:
        ends = {path.rpartition(".")[2]: path for path in reversed(paths)}
        alike = [ends[end] for end in difflib.get_close_matches(wanted, ends, _MOST_SUGGESTIONS, _LEAST_SIMILAR)]
    if alike:
        more = f" or {len(alike) - _MOST_SUGGESTIONS} more" if len(alike) > _MOST_SUGGESTIONS else ""
        return f"did you mean {', '.join(alike[:_MOST_SUGGESTIONS])}{more}?"
    return f"keys begin with {', '.join(dict.fromkeys(_root(path) for path in paths))}"


def _places(path: str) -> Iterator[str]:
    """Yield a key's path and those of all that it is in."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _root(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _table(keys: Sequence[Key]) -> Table:
    """Return keys as a table with an empty line between those of different parts."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("key", no_wrap=True)
    table.add_column("type", max_width=_MOST_COLUMN)
    table.add_column("default", max_width=_MOST_COLUMN)
    table.add_column("meaning")
    part = _part(keys[0].path)
    for key in keys:
        if part != _part(key.path):
            table.add_row()
            part = _part(key.path)
        table.add_row(*(key.path, key.type, key.default, key.meaning.replace("`", "")))
    return table


def _part(path: str) -> str:
    return path.rpartition(".")[0]
