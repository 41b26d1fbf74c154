"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How evenly do routes spread a permutation and all-to-all, and what does that leave each flow?",
    "TrafficPatternsConfig",
    earlier="study:earlier_cases",
    tables="tables:TABLES",
)
