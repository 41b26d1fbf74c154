"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?",
    "IncastConfig",
)
