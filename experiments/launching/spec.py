"""A run as a value: what is asked for, and what that comes to once it is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.launching.order import Order
from experiments.registry import resolve
from fabric.config import files_noted, read_yaml, setting
from fabric.emulation.sflow import SflowExport, require_sflow
from fabric.errors import UsageError
from fabric.model.partition import partition
from fabric.queueing import lossless, red
from fabric.results import new_directory
from fabric.world import engines
from fabric.world.engine import Engine, Guest
from fabric.world.engines import EngineName, usable_engine
from fabric.world.virtual.guest import directories_named, directories_of
from fabric.world.virtual.joining import MOST_GUESTS
from fabric.world.virtual.memory import described, needed_bytes
from runs.captures import require_captures
from runs.config import RunConfig, require_engine_for_jitter
from runs.definition import Experiment
from runs.rates import CALIBRATED, rate_settings
from traffic import congestion_control


@dataclass(frozen=True)
class RunSpec:
    """What a run is to be.

    ``experiment``: the name of one, or the path of a YAML file. ``settings``: values by their place in its config, such
    as ``{"queues.lanes.storage.share": 0.2}``; ``overrides``: the same as text, ``a.b=value`` in YAML. ``seed`` is the
    config's if None. ``engine``: by default ``namespace`` for root, ``virtual`` for all others, who cannot have the
    former. ``rate``: what NICs send at, all other links in proportion, such as ``"15 Mbit/s"``, or ``calibrated``;
    None: the topology's own. ``memory_bytes``: of a guest. ``directory``: where the result will be; None: a new one in
    ``results``. ``captures``: ports and files, such as ``z0l03:7=leaf.pcap``. ``draws``: whether figures and the report
    are made at once, which takes seconds; they can be made from the directory at any time. ``guests``: how many guests
    play the run together, each on a core of its own. ``sflow``: what switches export of packets and counters, and to
    which file.
    """

    experiment: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seed: int | None = None
    engine: EngineName = field(default_factory=usable_engine)
    rate: str | None = None
    memory_bytes: int | None = None
    directory: Path | None = None
    captures: Sequence[str] = ()
    draws: bool = True
    guests: int = 1
    sflow: SflowExport | None = None

    @property
    def all_overrides(self) -> list[str]:
        """Settings, overrides and seed as text; the last counts."""
        seed = [f"seed={self.seed}"] if self.seed is not None else []
        return [*(setting(key, value) for key, value in self.settings.items()), *self.overrides, *seed]


@dataclass(frozen=True)
class Prepared:
    """A run that can start: checked, with all that it depends on."""

    experiment: Experiment
    config: RunConfig
    engine: Engine
    guest: Guest
    order: Order
    draws: bool = True


def prepare(spec: RunSpec, command: Sequence[str]) -> Prepared:
    """Check a run before anything is started. Raises ConfigError or UsageError with every reason why it cannot be."""
    engine = engines.engine_named(spec.engine)
    overrides = spec.all_overrides
    with files_noted() as files:
        experiment, config, raw = resolve(spec.experiment, overrides)
        if spec.rate is not None:
            if spec.rate == CALIBRATED and engine.is_exact:
                raise UsageError(f"--rate calibrated: {engine.clock} carries any rate; omit it")
            overrides = [*overrides, *rate_settings(spec.rate, config.topology, overrides)]
            experiment, config, raw = resolve(spec.experiment, overrides)
    lossless.require(engine, *config.queueings_played)
    red.require(engine, config.queues, *config.queueings_played)
    congestion_control.require(engine, config.controls_played)
    require_engine_for_jitter(engine, config.queues)
    directory = choose_directory(spec.directory, experiment.name)
    fabric = config.fabric()
    require_captures(fabric, spec.captures, engine)
    if spec.sflow is not None:
        require_sflow(spec.sflow, engine)
    words = [
        *spec.captures,
        *([spec.sflow.file] if spec.sflow else ()),
        *config.commands,
        *overrides,
        *_texts(raw),
        *_texts(_written(spec.experiment)),
    ]
    keep = (directory.parent, experiment.folder, *directories_of(files), *directories_named(words))
    if spec.guests != 1:
        require_several_guests(spec, engine, config)
    lookahead_ns = partition(fabric, spec.guests).lookahead_ns if spec.guests > 1 else 0
    wanted = Guest(config.seed, keep, spec.memory_bytes, spec.guests, lookahead_ns)
    guest = engine.guest_for(wanted, -(-needed_bytes(fabric) // spec.guests), described(fabric))
    order = Order(
        spec.experiment, tuple(overrides), str(directory), tuple(spec.captures), tuple(command), sflow=spec.sflow
    )
    return Prepared(experiment, config, engine, guest, order, spec.draws)


def require_several_guests(spec: RunSpec, engine: Engine, config: RunConfig) -> None:
    """Raise UsageError naming what of a run several guests cannot do together."""
    if not 1 <= spec.guests <= MOST_GUESTS:
        raise UsageError(f"--guests {spec.guests}: must be 1 to {MOST_GUESTS}")
    if not engine.has_own_kernel:
        raise UsageError(f"--guests {spec.guests}: the engine {engine} has no guests; use --engine virtual")
    if spec.guests > (cores := len(os.sched_getaffinity(0))):
        raise UsageError(f"--guests {spec.guests}: each has a core to itself, and there are {cores}; use fewer")
    unable = {
        "--capture": bool(spec.captures),
        "--sflow": spec.sflow is not None,
        f"routing {config.routing.policy}": config.routing.policy.moves,
        "commands of the config's own": bool(config.commands),
        "failures of links": config.cuts_links,
    }
    if found := [what for what, asked in unable.items() if asked]:
        raise UsageError(f"--guests {spec.guests}: not with {found[0]}, which one guest can do only; omit --guests")


def _written(experiment: str) -> dict[str, Any]:
    """Return what the file of an experiment says, whatever settings have in its place; nothing if it is no file."""
    path = Path(experiment)
    return read_yaml(path) if path.is_file() else {}


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a config's values, which may name files that its experiment reads in the guest."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def choose_directory(wanted: Path | None, experiment: str) -> Path:
    """Return the absolute path of a run's directory, which must be new. Raises UsageError."""
    directory = (wanted or new_directory(Path("results"), experiment)).absolute()
    if directory.exists():
        raise UsageError(f"--out {directory}: already exists, and results are never overwritten; give a new name")
    if directory.is_relative_to("/run"):
        raise UsageError(f"--out {directory}: /run is private to a run and removed with it; give a path elsewhere")
    return directory
