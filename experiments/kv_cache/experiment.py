"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="What does a KV cache on storage read, write, remove and save, and what can one client have of it?",
    config="experiments.kv_cache.config:KvCacheStudyConfig",
    run="experiments.kv_cache.study:run_kv_cache",
    study="experiments.kv_cache.study:STUDY",
    figures="experiments.kv_cache.figures",
)
