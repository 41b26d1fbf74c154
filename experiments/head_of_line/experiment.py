"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What does a full port do to a flow that does not use it, with and without loss, in one lane and in two?",
    "HeadOfLineConfig",
)
