"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How long does a restore of a checkpoint by all nodes at once take, and what does request-to-send do?",
    "CheckpointRestoreConfig",
)
