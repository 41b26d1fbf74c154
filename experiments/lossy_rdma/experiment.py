"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What do random losses and an incast cost RDMA with go-back-N, with selective repeat and with PFC?",
    "LossyRdmaConfig",
)
