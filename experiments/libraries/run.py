"""How fast are the libraries that users deploy, over sizes, beside theory and our own collectives?

Each library has the idle fabric to itself, in a phase that lasts as long as its program. What the program has measured
of itself is what counts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from experiments.libraries.catalogue import ALLREDUCE, OWN, Library
from experiments.libraries.config import LibrariesConfig
from experiments.libraries.summary import Measured, summarize
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from runs.jobs import started
from runs.session import Session
from traffic.collectives.job import StepCounts
from traffic.collectives.nccl import NcclConfig, NcclJob
from traffic.collectives.step_numbers import times_by_size
from traffic.programs.job import EndingProgramJob, ProgramConfig
from traffic.stepped_job import FiniteSteps


def run_libraries(session: Session, config: LibrariesConfig) -> dict[str, Any]:
    """Play all and return the summary."""
    session.use_queueing(config.queueing)
    ranks = session.live.fabric.computes[: config.ranks]
    found = [one for operation in config.operations for one in _own(session, config, operation, ranks)]
    for library in config.chosen:
        session.tell(library.title)
        has_all = ALLREDUCE in library.operations
        found += _of(session, config, library, ranks if has_all else (ranks[0], ranks[-1]))
    return summarize(session, config, ranks, found)


def _own(session: Session, config: LibrariesConfig, operation: str, ranks: Sequence[NodeId]) -> list[Measured]:
    """Play one of our own collectives, and return what each size took."""
    hosts = ranks if operation == ALLREDUCE else (ranks[0], ranks[-1])
    made = NcclConfig(collective=OWN[operation], size=config.end)
    name = f"own_{operation}"
    with closing(NcclJob(session.stage, made, hosts, None)) as job:
        job.start()
        session.warm_up(job)
        counts = StepCounts(config.warm_up, config.steps)
        steps = FiniteSteps(job, lambda phase: job.run_sizes(config.sizes, counts, phase, False))
        session.run_phase(name, f"our own {operation}", [steps], 0.0)
    rows = session.table("steps")
    times_s = times_by_size(rows[rows["phase"] == name])
    return [Measured("", operation, size, time_s, 0) for size, time_s in times_s.items()]


def _of(session: Session, config: LibrariesConfig, library: Library, hosts: Sequence[NodeId]) -> list[Measured]:
    """Play a library, and return what its program has printed. Raises TrafficError if it failed, or said nothing."""
    home = library.home()
    if home is None:
        raise TrafficError(
            f"{library.name}: is not there any more; programs in virtual time see nothing of this machine's /tmp and "
            "/run: install it elsewhere"
        )
    words = library.command(home, config, len(hosts))
    program = ProgramConfig(command=shlex.join(words))
    job = EndingProgramJob(session.stage, program, hosts, ServiceLevel.OTHER, library.name)
    with started(session, [job]):
        session.run_phase(library.name, library.title, [job], 0.0)
    said = "\n".join(job.output_of(host).read_text(errors="replace") for host in hosts)
    found = [Measured(library.name, **values) for values in _lines(said)]
    wanted = sum(operation in library.operations for operation in config.operations) * len(config.sizes)
    if len(found) != wanted:
        raise TrafficError(f"{library.name}: printed {len(found)} of {wanted} figures; it said:\n{said[-2000:]}")
    return found


def _lines(said: str) -> list[dict[str, Any]]:
    """Return the JSON lines in the output of a program and its library."""
    return [json.loads(line) for line in said.splitlines() if line.startswith('{"operation": ')]
