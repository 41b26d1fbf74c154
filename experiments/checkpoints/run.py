"""How fast do nodes write checkpoints, what binds, and what do steps of training lose beside them?

Fire-Flyer 2's checkpoint manager writes every five minutes, more than 10 GiB/s a node, beside training (arXiv
2408.14158, VII-A). Here nodes write real bytes to a file system on the storage nodes: alone, by numbers of writers and
replicas; beside a data-parallel training on the same nodes, in lanes and in one queue. Then the same, half and twice as
many nodes restore them, and compare every byte.
"""

from __future__ import annotations

from typing import Any

from cluster.checkpoints.job import CheckpointsJob
from experiments.checkpoints.config import CheckpointsRunConfig, WriteSetup
from experiments.checkpoints.summary import JOB, TRAINING, WAITING, beside, summarize, trained
from experiments.checkpoints.waiting import StepsWait
from fabric.model.lanes import Queueing, ServiceLevel
from runs.jobs import started
from runs.session import Session
from traffic.work.job import WorkJob


def run_checkpoints(session: Session, config: CheckpointsRunConfig) -> dict[str, Any]:
    """Play all phases and return the summary."""
    session.use_queueing(config.queueings[0])
    for setup in config.all_setups:
        _alone(session, config, setup)
    for queueing in config.queueings:
        _with_training(session, config, queueing)
    return summarize(session, config)


def _alone(session: Session, config: CheckpointsRunConfig, setup: WriteSetup) -> None:
    nodes = session.live.fabric.computes[: config.nodes_of(setup)]
    job = CheckpointsJob(session.stage, config.alone(setup), nodes, level=ServiceLevel.STORAGE, name=JOB)
    replicas = "1 replica" if setup.replicas == 1 else f"{setup.replicas} replicas"
    with started(session, [job]):
        session.run_phase(setup.name, f"{setup.writers} nodes write, {replicas}", [job], 0.0)


def _with_training(session: Session, config: CheckpointsRunConfig, queueing: Queueing) -> None:
    session.use_queueing(queueing)
    nodes = session.live.fabric.computes[: config.training.ranks]
    training = WorkJob(session.stage, config.training, nodes, level=ServiceLevel.NCCL, name=TRAINING)
    with started(session, [training]):
        session.warm_up(training)
        session.run_phase(trained(queueing), f"training alone, {queueing.words}", [training], config.training_time)
        written = CheckpointsJob(session.stage, config.beside(), nodes, level=ServiceLevel.STORAGE, name=JOB)
        with started(session, [written]):
            title = f"training and checkpoints, {queueing.words}"
            session.run_phase(beside(queueing), title, [training, written], config.beside_time)
        if queueing is config.queueings[0]:
            _waiting(session, config, training)


def _waiting(session: Session, config: CheckpointsRunConfig, training: WorkJob) -> None:
    """Let steps wait for each checkpoint."""
    nodes = session.live.fabric.computes[: config.training.ranks]
    written = CheckpointsJob(session.stage, config.one(), nodes, level=ServiceLevel.STORAGE, name=JOB)
    with started(session, [written]):
        count = config.checkpoints.count or 1
        decider = StepsWait(training, written, count, config.beside_time / (2 * count))
        session.run_phase(WAITING, "steps wait for checkpoints", [decider], config.beside_time)
