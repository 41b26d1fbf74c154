"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What do training and storage cost each other in one shared queue, and what in lanes?",
    "IsolationConfig",
    see_also=(
        "fabric run protection: what lanes leave to each program as the load of others grows beyond what links carry"
    ),
)
