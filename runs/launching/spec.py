"""A run as a value: what is asked for, and what that comes to once it is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric.config import SaidElsewhere, setting
from fabric.emulation.sflow import SflowExport, require_sflow
from fabric.errors import UsageError
from fabric.model.partition import partition
from fabric.queueing import lossless, red
from fabric.results import new_directory
from fabric.world import engines
from fabric.world.engine import Engine, Groundwork, Guest
from fabric.world.engines import EngineName
from fabric.world.virtual.guest import directories_named, directories_of
from fabric.world.virtual.joining import MOST_GUESTS
from fabric.world.virtual.memory import described, needed_bytes
from runs.captures import require_captures
from runs.config import RunConfig, require_engine_for_failures, require_engine_for_jitter
from runs.definition import Experiment
from runs.engine_choice import chosen_engine
from runs.groundwork import groundwork_of
from runs.launching.order import Order
from runs.rates import CALIBRATED, rate_settings
from runs.registry import Resolved, resolve
from topologies.load import BuiltFabric
from traffic import congestion_control
from traffic.transport import messages, verbs


@dataclass(frozen=True)
class RunSpec:
    """What a run is to be.

    ``experiment``: the name of one, or the path of a YAML file. ``settings``: values by their place in its config, such
    as ``{"queues.lanes.storage.share": 0.2}``; ``overrides``: the same as text, ``a.b=value`` in YAML. ``seed`` is the
    config's if None. ``engine``: by default what :func:`runs.engine_choice.chosen_engine` says. ``rate``: what NICs
    send at, all other links in proportion, such as ``"15 Mbit/s"``, or ``calibrated``; None: the topology's own.
    ``memory_bytes``: of a guest. ``directory``: where the result will be; None: a new one in ``results``. ``captures``:
    ports and files, such as ``z0l03:7=leaf.pcap``. ``draws``: whether the figure that answers most and the report are
    made at once, which takes seconds; all can be made from the directory at any time. ``guests``: how many guests play
    the run together. ``sflow``: what switches export of packets and counters, and to which
    file.
    """

    experiment: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seed: int | None = None
    engine: EngineName = field(default_factory=chosen_engine)
    rate: str | None = None
    memory_bytes: int | None = None
    directory: Path | None = None
    captures: Sequence[str] = ()
    draws: bool = True
    guests: int = 1
    sflow: SflowExport | None = None

    @property
    def all_overrides(self) -> list[str]:
        """Settings, overrides and seed as text; the last counts. Messages name the first by the experiment."""
        seed = [SaidElsewhere(f"seed={self.seed}", f"seed {self.seed}", "seed")] if self.seed is not None else []
        return [*self._set, *seed]

    @property
    def _set(self) -> list[str]:
        said = (SaidElsewhere(setting(key, value), self.experiment) for key, value in self.settings.items())
        return [*said, *self.overrides]

    def words(self) -> list[str]:
        """Return what follows ``fabric run`` on the command line that asks for this run. Raises UsageError for one
        whose switches export: the command sends on to a collector what this run keeps in a file."""
        if self.sflow is not None:
            raise UsageError(f"sflow: to {self.sflow.file}, which no command line can name; omit it")
        options: dict[str, Sequence[object]] = {
            "--set": self._set,
            "--seed": [] if self.seed is None else [self.seed],
            "--engine": [self.engine],
            "--rate": [self.rate] if self.rate else [],
            "--memory": [f"{self.memory_bytes}B"] if self.memory_bytes else [],
            "--out": [] if self.directory is None else [self.directory],
            "--capture": self.captures,
            "--guests": [] if self.guests == 1 else [self.guests],
        }
        words = [word for name, values in options.items() for value in values for word in (name, str(value))]
        return [self.experiment, *words, *([] if self.draws else ["--no-figures"])]


@dataclass(frozen=True)
class Prepared:
    """A run that can start: checked, with all that it depends on."""

    resolved: Resolved
    engine: Engine
    guest: Guest
    order: Order
    draws: bool = True

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return self.resolved.experiment

    @property
    def config(self) -> RunConfig:
        """Its checked config."""
        return self.resolved.config

    @property
    def groundwork(self) -> Groundwork:
        """What it has in common with others on the same fabric."""
        config = self.config
        first = (config.queues, config.queueings_played[0], config.routings_played[0])
        return groundwork_of(self.resolved.fabric, *first, is_measured=True)


def prepare(spec: RunSpec, command: Sequence[str], before: BuiltFabric | None = None) -> Prepared:
    """Check a run before anything is started; ``before``: a fabric of this process, which is taken if the run has the
    same topology. Raises ConfigError or UsageError with every reason why the run cannot be."""
    engine = engines.engine_named(spec.engine)
    resolved = _resolved(spec, engine, before)
    config, fabric = resolved.config, resolved.fabric
    lossless.require(engine, *config.queueings_played)
    red.require(engine, config.queues, *config.queueings_played)
    congestion_control.require(engine, config.controls_played)
    if config.transport.is_rdma:
        verbs.require(engine)
    if config.transport.kind == "messages":
        messages.built()
    require_engine_for_jitter(engine, config.queues)
    config.require_verbs(engine)
    if config.verbs and not config.commands:
        raise UsageError("verbs: no job of this run is a user's program, and only those use RDMA; leave it out")
    require_engine_for_failures(engine, config.failures)
    require_captures(fabric, spec.captures, engine)
    if spec.sflow is not None:
        require_sflow(spec.sflow, engine)
    if spec.guests != 1:
        require_several_guests(spec, engine, config)
    directory = choose_directory(spec.directory, resolved.experiment.name)
    order = Order(
        resolved.experiment.name,
        str(resolved.experiment.foreign_folder or ""),
        resolved.data,
        str(directory),
        tuple(spec.captures),
        tuple(command),
        sflow=spec.sflow,
    )
    return Prepared(resolved, engine, _guest_for(spec, engine, resolved, directory), order, spec.draws)


def _resolved(spec: RunSpec, engine: Engine, before: BuiltFabric | None) -> Resolved:
    """Return the config that a run asks for, at the rate that it asks for."""
    overrides = spec.all_overrides
    resolved = resolve(spec.experiment, overrides, before)
    if spec.rate is None:
        return resolved
    if spec.rate == CALIBRATED and engine.is_exact:
        raise UsageError(f"--rate calibrated: {engine.clock} carries any rate; omit it")
    rates = rate_settings(spec.rate, resolved.config.topology, overrides)
    said = [SaidElsewhere(one, f"rate {spec.rate}", "rate") for one in rates]
    return resolve(spec.experiment, [*overrides, *said], before)


def _guest_for(spec: RunSpec, engine: Engine, resolved: Resolved, directory: Path) -> Guest:
    """Return the guest of a run: it sees the directories of the files that the run reads or writes while it plays.

    Those are named by values of its config, the only text that says so of experiments which do not come with the
    program. The files that the config was read from are not among them.
    """
    config, built = resolved.config, resolved.built
    files = [*spec.captures, *([spec.sflow.file] if spec.sflow else [])]
    named = directories_named([*files, *config.commands, *texts_in(resolved.data)])
    keep = (directory.parent, resolved.experiment.folder, *directories_of(built.files), *named)
    lookahead_ns = partition(built.fabric, spec.guests).lookahead_ns if spec.guests > 1 else 0
    wanted = Guest(config.seed, keep, spec.memory_bytes, spec.guests, lookahead_ns)
    return engine.guest_for(wanted, -(-needed_bytes(built.fabric) // spec.guests), described(built.fabric))


def require_several_guests(spec: RunSpec, engine: Engine, config: RunConfig) -> None:
    """Raise UsageError naming what of a run several guests cannot do together."""
    if not 1 <= spec.guests <= MOST_GUESTS:
        raise UsageError(f"--guests {spec.guests}: must be 1 to {MOST_GUESTS}")
    if not engine.has_own_kernel:
        raise UsageError(f"--guests {spec.guests}: the engine {engine} has no guests; use --engine virtual")
    unable = {
        "--capture": bool(spec.captures),
        "--sflow": spec.sflow is not None,
        f"routing {config.routing.policy}": config.routing.policy.moves,
        "commands of the config's own": bool(config.commands),
        "failures of programs or disks": any(line.hits_programs_or_disks for line in config.failures),
        "failures of links": config.cuts_links,
    }
    if found := [what for what, asked in unable.items() if asked]:
        raise UsageError(f"--guests {spec.guests}: not with {found[0]}; omit one of the two")


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a config's values, which may name files that its experiment reads in the guest."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts_in(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from texts_in(one)


def choose_directory(wanted: Path | None, experiment: str) -> Path:
    """Return the absolute path of a run's directory, which must be new. Raises UsageError."""
    directory = (wanted or new_directory(Path("results"), experiment)).absolute()
    if directory.exists():
        raise UsageError(f"--out {directory}: already exists, and results are never overwritten; give a new name")
    if directory.is_relative_to("/run"):
        raise UsageError(f"--out {directory}: /run is private to a run and removed with it; give a path elsewhere")
    return directory
