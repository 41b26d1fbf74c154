"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What does it buy whom to send the packets of one flow on all paths, beside ECMP and one path?",
    "SprayingConfig",
)
