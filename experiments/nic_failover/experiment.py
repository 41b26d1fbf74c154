"""The experiment as the command knows it."""

from __future__ import annotations

from pathlib import Path

from runs.definition import Experiment

EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="A NIC's link fails: what is left of an allreduce's bandwidth, and how soon?",
    config="experiments.nic_failover.run:NicFailoverConfig",
    run="experiments.nic_failover.run:run_nic_failover",
    measures="experiments.nic_failover.measures:MEASURES",
    figures="experiments.nic_failover.figures",
)
