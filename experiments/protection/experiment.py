"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "As the traffic of others grows, what is left to HFReduce and to storage, and is it what lanes promise?",
    "ProtectionConfig",
    earlier="earlier:cases",
)
