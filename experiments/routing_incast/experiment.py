"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "Does an incast's congestion spread further with adaptive routing, and whom does it slow?",
    "RoutingIncastConfig",
)
