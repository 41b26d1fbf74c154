"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How fast do nodes write checkpoints, what binds, and what do steps of training lose beside them?",
    "CheckpointsRunConfig",
    run="study:run_checkpoints",
    figures="figures",
    see_also="fabric run checkpoint_restore: restores by all nodes at once",
)
