"""Contracts that others implement show how: each has an example that works, and says why its line is drawn there."""

from __future__ import annotations

import inspect
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from controllers.planning.planner import plan_routes
from controllers.planning.policies import AtSwitch, Chosen, Policy
from controllers.planning.policies import policy as policy_module
from controllers.routing import Repair, Routing
from fabric.config import Strict, TimeS, checked
from fabric.failures.injection import Effects, ThreadInjector
from fabric.failures.schedule import Failure, FailureSchedule, State
from fabric.model.identity import Role
from fabric.model.lanes import ServiceLevel
from runs.definition import Experiment
from runs.job_config import config_of
from tests.traffic.collectives.test_collectives import carried_out, inputs_of, schedule_of
from tests.waiting import until
from topologies.load import load_fabric
from traffic.collectives.collective import Collective, Expected
from traffic.collectives.elements import Elements
from traffic.collectives.exchange import Block, exchange_algorithm
from traffic.collectives.operations.send_receive import SEND_RECEIVE
from traffic.job import Job, Records
from traffic.job_kind import JobKind, Measures
from traffic.transport.connection import Endpoint, SocketOptions, Transport
from traffic.transport.tcp import TcpTransport

Names = dict[str, Any]
JOBS = {"Records": Records, "time": time}
KINDS = {
    **JOBS, "Field": Field, "JobKind": JobKind, "Measures": Measures, "ServiceLevel": ServiceLevel, "Strict": Strict,
    "TimeS": TimeS,
}  # fmt: skip
FABRIC = load_fabric("fat_tree_k4")


@dataclass(frozen=True)
class Fan:
    switch: str


@dataclass(frozen=True)
class FanState(State):
    turns: bool = True

    @classmethod
    def composed(cls, states: Any) -> FanState:
        return cls(all(state.turns for state in states))


def example_of(contract: object, names: Names) -> Names:
    """Carry out the example in a contract's docstring; return its names, with ``names`` as what it imports."""
    text = inspect.getdoc(contract) or ""
    assert "The line is drawn" in text, "it says why it is drawn there"
    _, _, rest = text.partition("Example:")
    lines = rest.partition("::\n\n")[2].splitlines()
    code = textwrap.dedent("\n".join(line for line in lines if not line or line.startswith("    ")))
    found = dict(names)
    exec(compile(code, str(contract), "exec"), found)
    return found


def job(names: Names) -> None:
    made: Job = names["Pauses"](None, None, (), level=ServiceLevel.OTHER, name="p")
    made.start()
    made.play("alone")
    (row,) = made.halt().rows("pauses")
    made.close()
    assert row["phase"] == "alone" and row["began_s"] <= row["ended_s"]


def job_kind(names: Names) -> None:
    config = checked(config_of(names["PAUSES"]), {"name": "p", "kind": "pauses", "nodes": 1, "length": "2 s"}, "test")
    assert config.own().length == 2.0
    assert names["PAUSES"].make(None, config.own(), (), level=ServiceLevel.OTHER, name="p").name == "p"


def policy(names: Names) -> None:
    plan = plan_routes(FABRIC, Routing(policy=names["BY_RATE"], repair=Repair.REROUTE))
    for leaf in FABRIC.with_role(Role.LEAF):
        ups = {port.number for port in FABRIC.uplinks_of(leaf)}
        given = Counter(rule.outputs[0] for rule in plan.rules[leaf.dpid] if rule.outputs and rule.outputs[0] in ups)
        assert len(given) == len(ups), "links of one rate get alike"
        assert max(given.values()) - min(given.values()) <= 1


def transport(names: Names) -> None:
    counted: Transport = names["Counted"](SocketOptions(ServiceLevel.OTHER))
    listener = counted.listen("127.0.0.1")
    endpoint = listener.endpoint
    try:
        connection = counted.connect(endpoint, 5.0)
        connection.close()
    finally:
        listener.close()
    assert vars(counted)["dials"] == [endpoint]


def effects(names: Names) -> None:
    turning: dict[Fan, bool] = {}
    injector = ThreadInjector(names["Fans"](turning))
    fan = Fan("z0s00")
    injector.prepare(FailureSchedule.of([Failure(fan, 0.0, 60.0, FanState(False), (0,))]))
    injector.play(time.monotonic())
    until(lambda: turning.get(fan) is False, "the fan stands still")
    report = injector.restore()
    assert turning[fan] and [change.state for change in report.changes] == [FanState(False), FanState()]


def experiment(names: Names) -> None:
    made = names["EXPERIMENT"]
    assert made.name == "my_question" and made.question.endswith("?")


def collective(names: Names) -> None:
    shift: Collective = names["SHIFT"]
    inputs: list[Elements] = inputs_of(shift, 3, 100)
    outcome = carried_out(shift, schedule_of(shift, "direct", 3, 100), inputs)
    assert outcome.faults == []
    for rank, result in enumerate(outcome.results):
        assert np.array_equal(result, inputs[(rank + 1) % 3])


CONTRACTS: dict[str, tuple[object, Names, Callable[[Names], None]]] = {
    "Job": (Job, JOBS, job),
    "JobKind": (JobKind, KINDS, job_kind),
    "Policy": (policy_module, {"AtSwitch": AtSwitch, "Chosen": Chosen, "Counter": Counter, "Policy": Policy}, policy),
    "Transport": (
        Transport,
        {"Endpoint": Endpoint, "SocketOptions": SocketOptions, "TcpTransport": TcpTransport, "dataclass": dataclass,
         "field": field},
        transport,
    ),
    "Effects": (Effects, {"Effects": Effects, "FanState": FanState}, effects),
    "Experiment": (
        Experiment,
        {"Experiment": Experiment, "Path": Path, "__file__": "/own/my_question/experiment.py"},
        experiment,
    ),
    "Collective": (
        Collective,
        {"Block": Block, "Collective": Collective, "Expected": Expected, "all_elements": SEND_RECEIVE.input,
         "exchange_algorithm": exchange_algorithm, "of_all_data": SEND_RECEIVE.busbw_factor},
        collective,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_example_of_a_contract_works(name: str) -> None:
    contract, names, verify = CONTRACTS[name]
    if name == "JobKind":
        names = {**names, "Pauses": example_of(Job, JOBS)["Pauses"]}
    verify(example_of(contract, names))
