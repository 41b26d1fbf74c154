"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How much of GraySort's half hour on 3FS would the network alone take, and what binds it?",
    "GraySortConfig",
)
