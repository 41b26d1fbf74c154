"""What ``dcqcn_frontier`` plays: HFReduce and reads by what steers them, together and each alone."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from runs.cases import Case, axis
from traffic.congestion_control import DCQCN
from traffic.dcqcn import DcqcnConfig

HFREDUCE, STORAGE = ServiceLevel.HFREDUCE.label, ServiceLevel.STORAGE.label
NO_CONTROL = "line"


@dataclass(frozen=True)
class Setting(Case, name="{control}_{queueing}", title="{control}, {queueing}"):
    """What steers all traffic of a phase, in which queueing."""

    queueing: Queueing = axis("queueings")
    control: str = axis("others")
    profile = ""
    thresholds = 1.0
    increase = 1.0
    programs = (HFREDUCE, STORAGE)

    def dcqcn(self, config: DcqcnFrontierConfig, fabric: Fabric) -> DcqcnConfig:
        """Return DCQCN's parameters, which without DCQCN play no part."""
        return config.dcqcn

    def marking(self, config: DcqcnFrontierConfig, fabric: Fabric) -> Marking | None:
        """Return the thresholds by which switches mark."""
        return config.marking_for(self.control, fabric)


@dataclass(frozen=True)
class Point(
    Setting,
    name="{control}_{profile}_t{thresholds}_i{increase}_{queueing}",
    title="{control} {profile}, thresholds x {thresholds}, increase x {increase}, {queueing}",
):
    """DCQCN, with the parameters of a named set and factors on some of them."""

    control: str = axis(lambda config: [DCQCN])
    profile: str = axis(lambda config: config.grid.profiles)
    thresholds: float = axis(lambda config: config.grid.thresholds)
    increase: float = axis(lambda config: config.grid.increase)

    def _named(self, config: DcqcnFrontierConfig) -> DcqcnConfig:
        return DcqcnConfig(profile=self.profile, scaling=config.dcqcn.scaling)

    def dcqcn(self, config: DcqcnFrontierConfig, fabric: Fabric) -> DcqcnConfig:
        """Return its set, with a rate increase so many times as fast; a step is the rate of the NICs at most."""
        named, times = self._named(config), self.increase
        known = named.parameters(fabric)
        faster = {
            "increase_period": known.increase_period_s / times,
            "increase_bytes": round(known.increase_bytes / times),
            "additive_step": min(known.additive_step_bps * times, fabric.nic_rate_bps),
            "hyper_step": min(known.hyper_step_bps * times, fabric.nic_rate_bps),
        }
        return named if times == 1 else named.model_copy(update=faster)

    def marking(self, config: DcqcnFrontierConfig, fabric: Fabric) -> Marking:
        """Return the marking of its set with other thresholds."""
        return self._named(config).parameters(fabric).marking.scaled(self.thresholds, fabric.frame_bytes)


@dataclass(frozen=True)
class Alone(Setting, name="{program}_alone", title="{program} alone"):
    """One of the two programs without the other."""

    program: str = axis(words=lambda program: "HFReduce" if program == HFREDUCE else program)

    @property
    def programs(self) -> tuple[str, ...]:  # type: ignore[override]
        """It alone."""
        return (self.program,)
