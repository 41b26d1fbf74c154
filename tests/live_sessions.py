"""Sessions on a live fabric, for scripts that run inside namespaces or a guest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fabric.model.lanes import LanePlan, QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.programs.agents import AgentPool, fork_server
from runs.live import LiveFabric, bring_up
from runs.preload import PRELOAD
from runs.session import RunSettings, Session

SETTINGS = RunSettings(QueueConfig(), seed=5, sample_period_s=0.05)


def plain_lanes(queueing: Queueing) -> LanePlan:
    """Return the default lanes of a queueing."""
    return plan_lanes(QueueConfig(), queueing)


def session_on(live: LiveFabric, pool: AgentPool, settings: RunSettings = SETTINGS) -> Session:
    """Return a session that tells nobody how it goes on."""
    return Session(live, pool, settings, tell=lambda text: None, progress=lambda title, done: None)


@contextmanager
def session_live(fabric: Fabric, lanes: LanePlan, settings: RunSettings = SETTINGS) -> Iterator[Session]:
    """Set this world up and bring a fabric up in it, for the time of a block."""
    inside.set_up()
    fork_server(PRELOAD)
    logs = inside.RUN_DIR / "logs"
    logs.mkdir(exist_ok=True)  # It is there if the fabric stands.
    with bring_up(fabric, lanes, logs, lambda text: None) as live:
        pool = AgentPool(PRELOAD)
        try:
            yield session_on(live, pool, settings)
        finally:
            pool.stop()
