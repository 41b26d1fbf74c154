"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "How fast are HFReduce and NCCL over growing numbers of nodes, and what limits them?",
    "HFReduceVsNcclConfig",
    figures="figures",
    tables="runs.node_use:TABLES",
)
