"""A kind of job in a folder of its own, as somebody adds one: its programs, its config, its table, and the value."""

from __future__ import annotations

from pathlib import Path

from fabric.world.programs import packages

PROGRAMS = '''
import time
from dataclasses import dataclass

from traffic.job import Halt, Ready, Records


@dataclass(frozen=True)
class Arguments:
    host: str
    config: object


def run_host(agent, arguments):
    """Pulse from each play to the next halt."""
    agent.report(Ready())
    while True:
        play = agent.receive()
        agent.report(Ready())
        rows = []
        while not agent.pipe.poll(arguments.config.period):
            rows.append({"phase": play.phase, "host": arguments.host, "at_s": time.monotonic(),
                         "size_bytes": arguments.config.size})
        assert isinstance(agent.receive(), Halt)
        agent.report(Records(pulses=rows))
'''
KIND = '''
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, Strict, TimeS
from fabric.model.lanes import ServiceLevel
from fabric.tables import Column, Table, common
from own_kind.programs import Arguments, run_host
from traffic.job import Halt, Play, Records
from traffic.job_kind import DataOfJob, JobKind, Measures
from traffic.program_group import ProgramGroup


class PulseConfig(Strict):
    """Pulses."""

    period: Annotated[TimeS, Field(gt=0)] = Field(default=0.01, description="Time between two pulses.")
    size: Annotated[SizeBytes, Field(gt=0)] = Field(default=1000, description="Size of a pulse.")


class PulseJob:
    def __init__(self, stage, config, nodes, level, name):
        self.name, self.level = name, level
        self._config, self._nodes, self._programs = config, nodes, ProgramGroup(stage, name)

    def start(self):
        starts = {node: ("pulse", node, Arguments(node.name, self._config)) for node in self._nodes}
        self._programs.start_all(run_host, starts)
        self._programs.await_ready("readiness", 60.0)

    def play(self, phase):
        self._programs.order(Play(phase))
        self._programs.await_ready("begin of pulses", 30.0)

    def halt(self):
        self._programs.order(Halt())
        records = Records()
        for rows in self._programs.collect("pulses", 30.0).values():
            records.extend(rows)
        return records

    def close(self):
        self._programs.close()


def _faults(config, fabric):
    if config.size > fabric.mtu_bytes:
        yield f"size: {config.size} bytes do not fit a packet of {fabric.name}; lower it"


def _numbers(rows):
    """Count what comes while it plays: until it hears that it is to halt it goes on."""
    pulses = rows.table("pulses")
    size_bytes = sum(pulses["size_bytes"][pulses["at_s"].between(*window)].sum() for window in rows.windows)
    seconds = sum(until - began for began, until in rows.windows)
    return {} if pulses.empty else {"pulses.rate_Bps": float(size_bytes) / seconds}


PULSES = Table(
    "One row per pulse.",
    {**common("phase", "job", "host", "at_s"), "size_bytes": Column("int64", "bytes", "size of the pulse")},
)
PULSE = JobKind(
    name="pulse",
    meaning="Pulses from each of its nodes to the next.",
    config=PulseConfig,
    level=ServiceLevel.OTHER,
    least_nodes=2,
    make=PulseJob,
    measures=Measures(_numbers, speeds=("pulses.rate_Bps",)),
    data=DataOfJob(lambda config, fabric, nodes: [(a, b, 1 / len(nodes)) for a, b in zip(nodes, nodes[1:])]),
    faults=_faults,
    tables={"pulses": PULSES},
    preload=("own_kind.programs",),
)
'''


def write_own_kind(parent: Path) -> Path:
    """Write the package ``own_kind`` into a directory and make it known; return its folder."""
    folder = parent / "own_kind"
    folder.mkdir()
    for name, text in (("__init__", ""), ("programs", PROGRAMS), ("kinds", KIND)):
        (folder / f"{name}.py").write_text(text)
    packages.know_packages({"own_kind": str(folder)})
    return folder
