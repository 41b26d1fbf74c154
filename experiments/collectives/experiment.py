"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How fast is each collective by each algorithm over sizes, beside its closed form?",
    "CollectivesConfig",
)
