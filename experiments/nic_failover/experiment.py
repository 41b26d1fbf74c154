"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from experiments.nic_failover.run import QUESTION, NicFailoverConfig, run_nic_failover
from experiments.run.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question=QUESTION,
    config=NicFailoverConfig,
    run=run_nic_failover,
    figures="experiments.nic_failover.figures",
)
