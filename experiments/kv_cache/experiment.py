"""The experiment as the command knows it."""

from runs.definition import Experiment

EXPERIMENT = Experiment.of_study(
    __file__,
    "What does a KV cache on storage read, write, remove and save, and what can one client have of it?",
    "KvCacheStudyConfig",
    run="study:run_kv_cache",
    figures="figures",
)
