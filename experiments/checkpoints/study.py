"""How fast do nodes write checkpoints, what binds, and what do steps of training lose beside them?

Fire-Flyer 2's checkpoint manager writes every five minutes, more than 10 GiB/s a node, beside training (arXiv
2408.14158, VII-A). Here nodes write real bytes to a file system on the storage nodes: alone, by numbers of writers and
replicas; beside a data-parallel training on the same nodes, in lanes and in one queue. Then the same, half and twice as
many nodes restore them, and compare every byte.
"""

from __future__ import annotations

from typing import Any

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.job import CheckpointsJob
from experiments.checkpoints.alone import ALONE, JOB, Alone
from experiments.checkpoints.beside import BESIDE, TRAINING, Beside, Trained, Waiting
from experiments.checkpoints.config import CheckpointsRunConfig
from experiments.checkpoints.restores import RESTORES
from experiments.checkpoints.waiting import StepsWait
from fabric.model.lanes import Queueing, ServiceLevel
from runs.cases import Case
from runs.jobs import started
from runs.session import Session
from runs.study import Study, play_case
from traffic.work.job import WorkJob


def cases_of(config: CheckpointsRunConfig) -> tuple[Case, ...]:
    """Return the cases that are measured, checkpoints alone by writers and replicas."""
    alone = sorted(Alone.grid(config), key=lambda case: (case.setup.writers, case.setup.replicas))
    return (*alone, *Beside.grid(config), *Waiting.grid(config))


def run_checkpoints(session: Session, config: CheckpointsRunConfig) -> dict[str, Any]:
    """Play all cases and return the summary."""
    session.use_queueing(config.queueings[0])
    for case in Alone.grid(config):
        play_case(session, case, [_written(session, config.alone(case.setup), config.nodes_of(case.setup))])
    for queueing in config.queueings:
        _play_training(session, config, queueing)
    return STUDY.summarize(session, config, cases_of(config))


def _written(session: Session, config: CheckpointsConfig, nodes: int) -> CheckpointsJob:
    return CheckpointsJob(
        session.stage, config, session.live.fabric.computes[:nodes], level=ServiceLevel.STORAGE, name=JOB
    )


def _play_training(session: Session, config: CheckpointsRunConfig, queueing: Queueing) -> None:
    """Play training alone, beside checkpoints and, in the first queueing, with steps that wait for them."""
    session.use_queueing(queueing)
    ranks, beside_s, trained = config.training.ranks, config.beside_time, Trained(queueing)
    hosts = session.live.fabric.computes[:ranks]
    training = WorkJob(session.stage, config.training, hosts, level=ServiceLevel.NCCL, name=TRAINING)
    with started(session, [training]):
        session.warm_up(training)
        session.run_phase(trained.name, trained.title, [training], config.training_time)
        count = config.checkpoints.count or 1
        for case in (Beside(queueing), *(one for one in Waiting.grid(config) if one.queueing is queueing)):
            written = _written(session, config.one() if isinstance(case, Waiting) else config.beside(), ranks)
            waits = StepsWait(training, written, count, beside_s / (2 * count))
            with started(session, [written]):
                jobs: list[Any] = [waits] if isinstance(case, Waiting) else [training, written]
                session.run_phase(case.name, case.title, jobs, beside_s)


STUDY = Study[Any, CheckpointsRunConfig](title="Checkpoints", cases=cases_of, further=(ALONE, RESTORES, BESIDE))
