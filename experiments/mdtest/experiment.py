"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How many files per second does a metadata service make, look at, read and remove, and what limits it?",
    "MdtestExperimentConfig",
)
