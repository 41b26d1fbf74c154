"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "Do any of DCQCN's parameters suit HFReduce and storage at once, and do lanes without it?",
    "DcqcnFrontierConfig",
    run="study:run_dcqcn_frontier",
    tables="tables:TABLES",
    earlier="earlier:cases",
)
