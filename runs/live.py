"""A fabric that is up: emulated, with its queues in place and its rules installed, warm and ready to carry traffic."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from controllers.client import ControllerProcess
from controllers.planning.plan import RoutePlan
from controllers.routing import Routing
from controllers.task import Task
from fabric.emulation.drawing import Drawing
from fabric.errors import EmulationError
from fabric.model.identity import ANY_ADDRESS, CONTROLLER_ADDRESS, NodeId
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.datapath import find_datapath
from fabric.world.engines import current_engine
from fabric.world.kernel_api import modules
from fabric.world.programs import guest_calls
from runs.plans import planned

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

RULES_TIMEOUT_S, _RULES_PER_S = 120.0, 500.0
"""How long switches may take to have their rules: 168,000 took 18 s on a machine where others computed, too."""
Tell = Callable[[str], None]
"""Reports progress to the user."""


@dataclass
class LiveFabric:
    """What is up, and how long that took in seconds: until the fabric stood, and until its rules were installed.

    ``plan`` is for the whole fabric: what the controller has made of it since, by failures or by adapting, it says.
    ``task`` is the file that tells the controller what to do, ``logs`` the directory of what programs say.
    """

    emulation: Emulation
    controller: ControllerProcess
    task: Path
    logs: Path
    routing: Routing
    plan: RoutePlan
    built_s: float
    ready_s: float

    @property
    def fabric(self) -> Fabric:
        """The fabric."""
        return self.emulation.fabric

    def use_routing(self, routing: Routing) -> None:
        """Route by another policy from now on: the controller starts anew and sends switches what differs.

        Returns once every switch has what the new plan says. Raises ControllerError if that takes too long.
        """
        plan = planned(self.fabric, routing)
        Task(self.fabric, routing).save(self.task)
        self.emulation.draw_ways(drawing_of(routing))
        self.controller.stop()
        self.controller.restart()
        self.controller.wait_ready(rules_timeout_s(plan), plan)
        self.routing, self.plan = routing, plan

    def rule_drops(self) -> Mapping[NodeId, int]:
        """Return the packets that each switch's rules have dropped, up to now."""
        self.emulation.settle_counters()
        counters = self.controller.counters()
        return {switch: counters[switch.name].packets for switch in self.fabric.switches}


def drawing_of(routing: Routing) -> Drawing | None:
    """Return how ports draw ways for a policy that sprays packets."""
    draw = routing.policy.draw
    return None if draw is None else Drawing(draw, routing.hash_seed, routing.entropies)


def rules_timeout_s(plan: RoutePlan) -> float:
    """Return how long all switches together may take to connect and to confirm the rules of a plan."""
    return RULES_TIMEOUT_S + plan.rule_count / _RULES_PER_S


def _builder() -> ModuleType:
    """Return what emulates fabrics. It loads Mininet, which whoever plans or reads a run may lack.

    Raises EmulationError if that cannot be loaded.
    """
    try:
        return importlib.import_module("fabric.emulation.build")
    except ImportError as error:
        raise EmulationError(
            f"a fabric cannot be emulated: {error}; install the distribution's package mininet, let the virtual "
            "environment see it (--system-site-packages), and look at fabric doctor"
        ) from error


@contextmanager
def bring_up(
    fabric: Fabric,
    lanes: LanePlan,
    log_directory: Path,
    tell: Tell,
    routing: Routing | None = None,
    wired: Fabric | None = None,
) -> Iterator[LiveFabric]:
    """Bring a fabric up in this world for the time of a block. Raises EmulationError or ControllerError.

    By default packets take the static routes, and failures are waited out.

    Routes are planned for ``fabric``; ``wired`` is the fabric as built, if cables are swapped.
    """
    routing = routing or Routing()
    build = _builder()
    modules_before = modules.loaded()
    current_engine().settle()
    started = time.monotonic()
    datapath = find_datapath()
    tell(
        f"building {fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, "
        f"{len(fabric.links)} links, {datapath.value} datapath"
    )
    plan = planned(fabric, routing)
    task = inside.RUN_DIR / "task.json"
    Task(fabric, routing).save(task)
    address = ANY_ADDRESS if guest_calls.others() else CONTROLLER_ADDRESS
    with ControllerProcess(task, log_directory / "controller.log", address=address) as controller:
        emulation: Emulation = build.emulate(wired or fabric, lanes, log_directory, datapath)
        try:
            emulation.draw_ways(drawing_of(routing))
            built_s = time.monotonic() - started
            tell(f"installing {plan.rule_count} rules")
            controller.wait_ready(rules_timeout_s(plan), plan)
            ready_s = time.monotonic() - started
            current_engine().settle()
            emulation.warm_up()
            yield LiveFabric(emulation, controller, task, log_directory, routing, plan, built_s, ready_s)
        finally:
            emulation.stop()
            if not current_engine().has_own_kernel:  # Modules end with it.
                modules.tell_what_stays(modules_before, tell)
