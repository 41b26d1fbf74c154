"""What ``fabric validate`` is asked for, checked before a world is made; the tests themselves take long to load."""

from __future__ import annotations

import argparse

from app.validation.injection import read_faults
from fabric.errors import UsageError
from fabric.measure.linktest import link_test_plan
from fabric.model.lanes import Acknowledgements, LanePlan, QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.world.engines import ENGINES
from runs.config import queues_of

_QUEUES = QueueConfig(acknowledgements=Acknowledgements.CONTROL)
"""Behind the data of another pair, acknowledgements would keep a pair from filling links that are in order."""


def check_options(fabric: Fabric, options: argparse.Namespace) -> None:
    """Raise UsageError or ConfigError for what cannot be asked of a fabric, before a world is made."""
    read_faults(options.fault, fabric)
    link_test_plan(fabric, ENGINES[options.engine])
    lanes_asked(options)
    if options.pairs < 1:
        raise UsageError(f"--pairs {options.pairs}: must be 1 or more")


def lanes_asked(options: argparse.Namespace) -> LanePlan:
    """Return the lanes of the fabric that is tested. Raises ConfigError for settings that cannot be."""
    return plan_lanes(queues_of(options.overrides, _QUEUES), Queueing(options.queueing))
