"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How long does computing wait for a data loader's reads, by how far ahead batches are asked for?",
    "DataLoaderConfig",
)
