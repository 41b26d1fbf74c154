"""A fabric that is up: emulated, with its queues in place and its rules installed, warm and ready to carry traffic."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from controllers.client import ControllerProcess
from controllers.planning.plan import RoutePlan
from controllers.routing import Routing
from controllers.task import Task
from fabric.emulation.drawing import Drawing
from fabric.errors import EmulationError, FabricError
from fabric.model.identity import ANY_ADDRESS, CONTROLLER_ADDRESS, NodeId
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric
from fabric.records.calibration import LinkCalibration
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
    """What is up, and how long that took in seconds: until the fabric stood, and until its rules were installed;
    ``wall_s``: of wall time.

    ``plan`` is for the whole fabric: what the controller has made of it since, by failures or by adapting, it says.
    ``task`` is the file that tells the controller what to do, ``logs`` the directory of what programs say.
    ``calibrations``: of each kind of link, by the lanes that were measured.
    """

    emulation: Emulation
    controller: ControllerProcess
    task: Path
    logs: Path
    routing: Routing
    plan: RoutePlan
    built_s: float
    ready_s: float
    wall_s: float = 0.0
    calibrations: dict[LanePlan, list[LinkCalibration]] = field(default_factory=dict)

    @property
    def fabric(self) -> Fabric:
        """The fabric."""
        return self.emulation.fabric

    def calibrate(self, tell: Tell) -> list[LinkCalibration]:
        """Return a calibration of each kind of link under the queues that are in place, which are measured once."""
        plan = self.emulation.lane_plan
        if plan not in self.calibrations:
            tell(f"calibrating every kind of link, {plan.queueing.value} queueing")
            self.calibrations[plan] = self.measure_links()
        return self.calibrations[plan]

    def measure_links(self) -> list[LinkCalibration]:
        """Return a calibration of each kind of link as it is now."""
        from fabric.measure.calibration import calibrate  # Only runs of experiments do.

        current_engine().settle()
        return calibrate(self.emulation)

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


@dataclass(frozen=True)
class Wanted:
    """A fabric that is to be up, its lanes, and how packets are routed; ``wired``: as built, if cables are swapped."""

    fabric: Fabric
    lanes: LanePlan
    routing: Routing
    wired: Fabric | None = None


_LOGS = inside.RUN_DIR / "logs"
_standing: tuple[Wanted, LiveFabric | FabricError] | None = None
"""The fabric that was brought up before the run of this world was known, or why that failed."""


def stand(wanted: Wanted, calibrates: bool) -> None:
    """Bring a fabric up for whatever run comes, which has it by :func:`bring_up`. ``calibrates``: measure its links,
    too. What fails is that run's to report."""
    global _standing
    try:
        _LOGS.mkdir()
        live = _up(wanted, _LOGS, _say, draws=False)
        if calibrates:
            live.calibrate(_say)
        _standing = wanted, live
    except FabricError as error:
        _standing = wanted, error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def bring_up(
    fabric: Fabric,
    lanes: LanePlan,
    log_directory: Path,
    tell: Tell,
    routing: Routing | None = None,
    wired: Fabric | None = None,
) -> Iterator[LiveFabric]:
    """Bring a fabric up in this world for the time of a block, unless it stands already. Raises EmulationError or
    ControllerError.

    By default packets take the static routes, and failures are waited out.

    Routes are planned for ``fabric``; ``wired`` is the fabric as built, if cables are swapped.
    """
    wanted = Wanted(fabric, lanes, routing or Routing(), wired)
    modules_before = modules.loaded()
    try:
        live = _up(wanted, log_directory, tell) if _standing is None else _taken(wanted, log_directory)
        try:
            yield live
        finally:
            live.emulation.stop()
            live.controller.stop()
    finally:
        if not current_engine().has_own_kernel:  # Modules end with it.
            modules.tell_what_stays(modules_before, tell)


def _taken(wanted: Wanted, log_directory: Path) -> LiveFabric:
    """Return the fabric that stands, its logs where they are wanted. Raises what its building has raised."""
    assert _standing is not None
    stands, live = _standing
    if stands != replace(wanted, routing=wanted.routing.undrawn):
        raise EmulationError(
            f"{stands.fabric.name} was brought up for a run that wants {wanted.fabric.name}, or the same otherwise; "
            "nothing but an error of this program does that"
        )
    if log_directory != _LOGS:
        log_directory.rmdir()
        _LOGS.rename(log_directory)
        _LOGS.symlink_to(log_directory)  # Programs know them by that name.
    if isinstance(live, FabricError):
        raise live
    live.logs = log_directory
    live.routing = wanted.routing
    Task(wanted.fabric, wanted.routing).save(live.task)
    current_engine().settle()
    live.emulation.draw_ways(drawing_of(live.routing))
    return live


def _up(wanted: Wanted, logs: Path, tell: Tell, draws: bool = True) -> LiveFabric:
    """Bring a fabric up: warm, with all its rules. ``draws``: ports draw ways for packets, if they are to."""
    fabric, routing, build = wanted.fabric, wanted.routing, _builder()
    engine = current_engine()
    engine.settle()
    began_wall_s, started = engine.wall_s(), time.monotonic()
    datapath = find_datapath()
    tell(
        f"building {fabric.name}: {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, "
        f"{len(fabric.links)} links, {datapath.value} datapath"
    )
    plan = planned(fabric, routing)
    task = inside.RUN_DIR / "task.json"
    Task(fabric, routing).save(task)
    others = guest_calls.others()
    address = ANY_ADDRESS if others else CONTROLLER_ADDRESS
    sockets = build.controller_sockets(1 + len(others))
    with ExitStack() as on_failure:
        controller = ControllerProcess(task, logs / "controller.log", address=address, sockets=sockets)
        on_failure.callback(controller.stop)
        emulation: Emulation = build.emulate(wanted.wired or fabric, wanted.lanes, logs, datapath)
        on_failure.callback(emulation.stop)
        if draws:
            emulation.draw_ways(drawing_of(routing))
        built_s = time.monotonic() - started
        tell(f"installing {plan.rule_count} rules")
        controller.wait_ready(rules_timeout_s(plan), plan)
        ready_s = time.monotonic() - started
        engine.settle()
        emulation.warm_up()
        on_failure.pop_all()
    wall_s = engine.wall_s() - began_wall_s
    return LiveFabric(emulation, controller, task, logs, routing, plan, built_s, ready_s, wall_s)
