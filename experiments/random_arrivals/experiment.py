"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How long do packets wait that come at random, and is it what queueing theory says?",
    "RandomArrivalsConfig",
    run="study:run_random_arrivals",
)
