"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How long do the steps of recorded or generated jobs take on this fabric, alone or together?",
    config="experiments.trace_replay.config:TraceReplayConfig",
    run="experiments.trace_replay.run:run_trace_replay",
    tables="experiments.trace_replay.tables:TABLES",
    figures="experiments.trace_replay.figures",
    measures="experiments.trace_replay.measures:MEASURES",
)
