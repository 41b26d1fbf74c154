"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "Which flows does a NIC that pauses its switch take with it, and what does a watchdog at switches cure?",
    "PfcStormConfig",
)
