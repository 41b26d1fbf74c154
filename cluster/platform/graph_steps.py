"""A user's program whose steps are a training graph, or collectives: ``python3 -m cluster.platform.graph_steps JOB``.

JOB is YAML, or the path of a file of it, with ``graph:`` or ``collective:``, as in the config of a platform's job
(:mod:`cluster.platform.graph_jobs`). Each node plays its ranks of the graph: what they send each other crosses the
fabric in the job's lane, and whoever receives it checks every byte. Then all nodes add up a vector, which says that the
step is made, and is what a checkpoint has. All else is as of :mod:`cluster.platform.training_steps`: what is printed of
a step, checkpoints, the suspend command, exit codes. Without ``FABRIC_STAGE``, which a platform sets, it ends with 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.platform.gang import Place, gathered
from cluster.platform.training_steps import (
    USAGE_CODE,
    Trainer,
    Training,
    by_the_runs_python,
    code_of,
    saves_of,
    trained,
)

if TYPE_CHECKING:  # What graphs need is not there in any Python.
    from cluster.platform.graph_jobs import SteppedGraph
    from cluster.platform.stage_file import RanksStage

_NAME = "graph_steps"


def main(words: Sequence[str] | None = None) -> int:
    """Play; return the exit code."""
    given = sys.argv[1:] if words is None else list(words)
    if len(given) != 1:
        print(
            f"{_NAME}: {len(given)} words; give one: a file with graph: or collective:, or such YAML", file=sys.stderr
        )
        return USAGE_CODE
    by_the_runs_python(_NAME)
    try:
        from cluster.platform.graph_jobs import SAMPLES, graph_job_of
        from cluster.platform.stage_file import read_stage
    except ImportError as error:
        print(f"{_NAME}: needs the Python that has this package (FABRIC_PYTHON): {error}", file=sys.stderr)
        return USAGE_CODE
    from fabric.errors import ConfigError

    try:
        place, host = Place.of_environment(), os.environ["FABRIC_HOST"]
    except (KeyError, ValueError) as error:
        print(f"{_NAME}: {error} is not set; start it as a job of the platform", file=sys.stderr)
        return USAGE_CODE
    try:
        job, stage = graph_job_of(given[0]), read_stage()
        if place.world > SAMPLES:
            raise ConfigError("nodes", [f"{place.world}, and a step has {SAMPLES} samples; ask for fewer"])
        place = replace(place, tos=job.level.tos)
        return code_of(_NAME, lambda: _run(job, stage, place, host))
    except ConfigError as error:
        print(f"{_NAME}: {error}", file=sys.stderr)
        return USAGE_CODE


def _run(job: SteppedGraph, stage: RanksStage, place: Place, host: str) -> int:
    from cluster.platform.graph_jobs import SAMPLES
    from cluster.platform.graph_play import ranks_playing

    training = Training(job.steps, 0.0, job.values, job.every, job.every_time, job.synchronous, SAMPLES)
    saving = saves_of(place, job.files, job.path, job.keep, job.model)
    with (
        saving as saves,
        gathered(place, job.gather, job.silent) as gang,
        ranks_playing(job, gang, stage, host) as play,
    ):
        return trained(Trainer(training, gang, saves, play))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Threads of ranks, and the mount's, may still wait for others that are gone.
