"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    ("How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?"),
    "StorageThroughputConfig",
)
