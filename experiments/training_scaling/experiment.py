"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How does training scale with GPUs, and what binds: pipelines, gradients or messages?",
    "TrainingScalingConfig",
    run="study:run_training_scaling",
)
