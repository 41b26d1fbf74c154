"""Programs that tests of groups start."""

from __future__ import annotations

import time

from fabric.errors import TrafficError
from fabric.world.programs.agents import Agent
from traffic.job import Ready
from traffic.program_group import ProgramFailed


def answer(agent: Agent, arguments: object) -> None:
    """Report readiness, then answer orders: ``fail`` and ``follow`` with a failure, ``raise`` and ``sleep`` do it."""
    agent.report(Ready())
    while True:
        order = agent.receive()
        if order == "fail":
            agent.report(ProgramFailed(f"{arguments} fell over", is_consequence=False, is_stall=True))
        elif order == "follow":
            agent.report(ProgramFailed(f"{arguments} lost a peer", is_consequence=True))
        elif order == "raise":
            raise TrafficError(f"{arguments} has had enough")
        elif order == "sleep":
            time.sleep(60)
        else:
            agent.report((arguments, order))
