"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How much of their NICs do pairs of hosts get by ECMP, by their queue pairs and the entropy of UDP source ports?",
    "QueuePairsConfig",
)
