"""The program of a rank that carries out steps as its job orders them (:mod:`traffic.stepped_job`): its orders and its
answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, flow_rows
from traffic.program_group import PeerGoneError, ProgramFailed, StalledError
from traffic.stepped_job import StepOrder
from traffic.transport.connection import UnreachableError
from traffic.transport.sampling import FlowSampler


class Stepper(Protocol):
    """Carries out a rank's steps."""

    def begin(self, phase: str) -> None:
        """Begin a phase, whose rows are yet to come."""

    def step(self, order: StepOrder) -> object:
        """Carry out a step and return what is reported of it. Raises TrafficError."""

    def rows(self) -> Records:
        """Return the rows of the phase, besides those of connections."""


@contextmanager
def failures_reported(agent: Agent) -> Iterator[None]:
    """Report a TrafficError inside instead of raising it: whether it is another's consequence, and whether to begin
    again may help."""
    try:
        yield
    except TrafficError as error:
        is_stall = isinstance(error, StalledError | UnreachableError)
        agent.report(ProgramFailed(str(error), isinstance(error, PeerGoneError), is_stall))


def carry_out_orders(agent: Agent, stepper: Stepper, sampler: FlowSampler, level: ServiceLevel) -> None:
    """Say that the rank is ready, then do what the run orders until it ends, which raises StopRequested, or until an
    order fails. The failure is reported before the rank's connections end: a peer that reports the end of one must not
    be taken for the cause."""
    with failures_reported(agent):
        _carry_out_orders(agent, stepper, sampler, level)


def _carry_out_orders(agent: Agent, stepper: Stepper, sampler: FlowSampler, level: ServiceLevel) -> None:
    phase = ""
    agent.report(Ready())
    while True:
        order = agent.receive()  # Without a timeout: the run decides when, and its end raises StopRequested.
        if isinstance(order, Play):
            phase = order.phase
            stepper.begin(phase)
            sampler.start()
            agent.report(Ready())
        elif isinstance(order, StepOrder):
            agent.report(stepper.step(order))
        elif isinstance(order, Halt):
            records = stepper.rows()
            records.add("flows", flow_rows(sampler.stop(), phase, level, agent.host))
            agent.report(records)
