"""How does training scale with GPUs, and what binds?

Pieces of communication are played in packets, each alone; a schedule on paper puts them together with computing, whose
time is the paper's smallest run less its own communication here. Where a case says so, its pipeline is played in
packets, too, and that step stands beside the schedule's.
"""

from __future__ import annotations

from typing import Any

from experiments.training_scaling.config import TrainingScalingConfig
from experiments.training_scaling.parts import PARTS
from experiments.training_scaling.pipelines import message_bytes, play_messages
from experiments.training_scaling.playing import play_collectives
from experiments.training_scaling.prediction import point_of
from experiments.training_scaling.scaling import SCALING, Run
from experiments.training_scaling.steps import steps_of, with_packets
from runs.session import Session
from runs.study import Study
from traffic.work.composition import COMPOSED, Pieces


def cases(config: TrainingScalingConfig) -> tuple[Run, ...]:
    """Return every case's numbers of GPUs, the smallest first."""
    return tuple(Run(case, one.gpus) for case in config.cases for one in case.points)


def run_training_scaling(session: Session, config: TrainingScalingConfig) -> dict[str, Any]:
    """Play the pieces, put them together, and return the summary."""
    session.use_queueing(config.queueing)
    points = [point_of(one.case, one.gpus, None) for one in cases(config)]
    message, burst = play_messages(session, config, message_bytes(config))
    pieces = Pieces(play_collectives(session, config, points), message, burst)
    steps = []
    for case in config.cases:
        found = steps_of(case, pieces)
        steps += with_packets(session, config, found) if case.in_packets else found
    return STUDY.summarize(session, config, [Run(one.point.case, one.point.gpus, one) for one in steps])


STUDY = Study[Run, TrainingScalingConfig](
    title="Training on growing numbers of GPUs",
    cases=cases,
    measure=lambda played: played.case.played.numbers,
    measures=COMPOSED,
    further=(SCALING, PARTS),
)
