"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How much slack does communication of a step with expert parallelism have, and what takes it?",
    "ExpertParallelConfig",
)
