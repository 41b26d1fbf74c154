"""DCQCN's parameters: named sets with their sources, rules that scale them, and what the kernel module is told.

The reaction point is ``fabric/kernel/dcqcn.h``; its marks come from switches (:class:`fabric.model.marking.Marking`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import Field

from fabric.config import RateBps, SizeBytes, Strict, TimeS
from fabric.model.marking import Marking
from fabric.model.network import Fabric

_ALPHA_ONE, _GAIN_ONE = 1 << 24, 1 << 16
_MOST_STEPS = 1 << 22
"""``DCQCN_MOST_STEPS`` of ``fabric/kernel/dcqcn.h``."""
_LEAST_KMIN_FRAMES = 2
"""Below that a queue is marked that is none: a frame comes while another one is being sent."""


class Scaling(str, Enum):
    """How a set that was made for one network is carried over to another.

    ``published``: as it is at the rate that it was made for. ``rate``: as it is at the rate of the NICs: values that
    the set lists in ``grows`` in proportion to it, all others as they are. ``round_trip``: that of the true rate, made
    slower with the network: times grow with the round trip, all rates with the scale, bytes with the product of both,
    and ``pmax`` such that a flow at full rate is as likely to hear of congestion in ``cnp_interval`` as there.
    """

    PUBLISHED = "published"
    RATE = "rate"
    ROUND_TRIP = "round_trip"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A set of parameters: bit/s, bytes, seconds. ``increase_bytes`` 0: no counter of bytes; ``hyper_step_bps`` 0: no
    hyper increase; ``gain``: how fast alpha follows, 0 to 1; ``lowers_target``: every cut does, not only the first of
    several in a row."""

    marking: Marking
    cnp_interval_s: float
    alpha_period_s: float
    gain: float
    increase_period_s: float
    increase_bytes: int
    fast_stages: int
    additive_step_bps: float
    hyper_step_bps: float
    least_rate_bps: float
    lowers_target: bool


@dataclass(frozen=True)
class Network:
    """What parameters are scaled by: the NICs' rate, an idle network's round trip, the largest frame, and how many
    times as fast the NICs are that these stand for."""

    rate_bps: float
    round_trip_s: float
    frame_bytes: int
    scale: float = 1.0

    @classmethod
    def of(cls, fabric: Fabric) -> Network:
        """Return those of a fabric."""
        return cls(fabric.nic_rate_bps, fabric.round_trip_s, fabric.frame_bytes, fabric.scale)


MARKING, INCREASE_BYTES = "marking", "increase_bytes"
RATES = frozenset({"additive_step_bps", "hyper_step_bps", "least_rate_bps"})


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A named set, and the network that it was made for.

    ``grows``: the parameters that are in proportion to the rate of the link, by name (of ``marking`` the thresholds);
    all others are the same at every rate. Where the source has one rate only, that they grow is ours.
    """

    parameters: Parameters
    network: Network
    grows: frozenset[str]
    source: str

    def growth(self, name: str, times: float) -> float:
        """Return what a parameter is multiplied by on a link that is so many times as fast."""
        return times if name in self.grows else 1.0


PROFILES = {
    "paper": Profile(
        parameters=Parameters(
            marking=Marking(kmin=5_000, kmax=200_000, pmax=0.01),
            cnp_interval_s=50e-6,
            alpha_period_s=55e-6,
            gain=1 / 256,
            increase_period_s=55e-6,
            increase_bytes=10_000_000,
            fast_stages=5,
            additive_step_bps=40e6,
            hyper_step_bps=0,
            least_rate_bps=100e6,
            lowers_target=True,
        ),
        network=Network(40e9, 13e-6, 1046),
        grows=RATES | {MARKING, INCREASE_BYTES},
        source="Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, for 40 Gbit/s: that "
        "rates and bytes grow with the link is ours; steps of hyper increase and the least rate are not in it: none, "
        "and that of its authors' simulator (ns3-rdma)",
    ),
    "ns3_rdma": Profile(
        parameters=Parameters(
            marking=Marking(kmin=40_000, kmax=1_000_000, pmax=1.0),
            cnp_interval_s=50e-6,
            alpha_period_s=55e-6,
            gain=1 / 256,
            increase_period_s=60e-6,
            increase_bytes=300_000,
            fast_stages=5,
            additive_step_bps=40e6,
            hyper_step_bps=200e6,
            least_rate_bps=100e6,
            lowers_target=True,
        ),
        network=Network(40e9, 13e-6, 1046),
        grows=RATES | {MARKING, INCREASE_BYTES},
        source="bobzhuyb/ns3-rdma, windows/ns-3-dev/mix/config.txt: the simulator of the paper's authors, for "
        "40 Gbit/s: that rates and bytes grow with the link is ours",
    ),
    "connectx": Profile(
        parameters=Parameters(
            marking=Marking(kmin=100_000, kmax=400_000, pmax=0.2),
            cnp_interval_s=4e-6,
            alpha_period_s=1e-6,
            gain=5 / 1024,
            increase_period_s=300e-6,
            increase_bytes=32_767 * 64,
            fast_stages=1,
            additive_step_bps=5e6,
            hyper_step_bps=50e6,
            least_rate_bps=1e6,
            lowers_target=False,
        ),
        network=Network(25e9, 13e-6, 1046),
        grows=frozenset({MARKING}),
        source="defaults of ConnectX firmware (mlxconfig; the same at every rate of the link), its byte counter taken "
        "for units of 64 B; marking is the switch's: that of the set hpcc, which grows with the link",
    ),
    "hpcc": Profile(
        parameters=Parameters(
            marking=Marking(kmin=100_000, kmax=400_000, pmax=0.2),
            cnp_interval_s=4e-6,
            alpha_period_s=1e-6,
            gain=1 / 256,
            increase_period_s=300e-6,
            increase_bytes=0,
            fast_stages=1,
            additive_step_bps=5e6,
            hyper_step_bps=50e6,
            least_rate_bps=1e9,
            lowers_target=False,
        ),
        network=Network(25e9, 13e-6, 1046),
        grows=frozenset({MARKING, "additive_step_bps", "hyper_step_bps"}),
        source="alibaba-edu/High-Precision-Congestion-Control, simulation/run.py: production at Alibaba; thresholds "
        "and steps are for each 25 Gbit/s of a link, MIN_RATE is 1000 Mb/s at every rate",
    ),
}
"""The frames are RoCE's of 1,024 B; round trips are those of the networks that HPCC's sets were made for."""


class DcqcnConfig(Strict):
    """Parameters of DCQCN: a named set, a rule that carries it over to this fabric, and keys for what is to be
    otherwise, which are not scaled."""

    profile: str = Field(default="paper", description="Named set of parameters: paper, ns3_rdma, connectx or hpcc.")
    scaling: Annotated[Scaling, Field(strict=False)] | None = Field(
        default=None,
        description=(
            "How the set is carried over to this fabric. Without it, `rate` at the true scale and `round_trip` "
            "for scaled rates."
        ),
    )
    cnp_interval: Annotated[TimeS, Field(ge=0, le=1)] | None = Field(
        default=None, description="At most one congestion notification per flow in this time."
    )
    alpha_period: Annotated[TimeS, Field(ge=1e-9, le=1)] | None = Field(
        default=None,
        description="After this time without a notification, the estimate of congestion (alpha) falls by `gain`.",
    )
    gain: Annotated[float, Field(ge=1 / _GAIN_ONE, le=1)] | None = Field(
        default=None, description="Fraction by which alpha moves per update (g). Lower reacts more slowly."
    )
    increase_period: Annotated[TimeS, Field(ge=1e-9, le=1)] | None = Field(
        default=None,
        description="Time that a stage of rate increase takes. Shorter recovers faster, and oscillates more.",
    )
    increase_bytes: Annotated[SizeBytes, Field(ge=0, le=2**40)] | None = Field(
        default=None, description="Bytes after which a stage of rate increase ends, too; 0: only time counts."
    )
    fast_stages: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="Stages of fast recovery before the additive increase."
    )
    additive_step: Annotated[RateBps, Field(gt=0)] | None = Field(
        default=None, description="Rate added per stage of additive increase (R_AI)."
    )
    hyper_step: Annotated[RateBps, Field(ge=0)] | None = Field(
        default=None, description="Rate added per stage of hyper increase (R_HAI); 0: none."
    )
    least_rate: Annotated[RateBps, Field(gt=0)] | None = Field(
        default=None, description="Rate below which no flow is cut."
    )

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what of it cannot be on a fabric."""
        if self.profile not in PROFILES:
            yield f"dcqcn.profile: {self.profile!r} does not exist; use one of {', '.join(PROFILES)}"
        for name in ("additive_step", "hyper_step", "least_rate"):
            value = getattr(self, name)
            if value is not None and value > fabric.nic_rate_bps:
                yield f"dcqcn.{name}: {value} bit/s exceeds the {fabric.nic_rate_bps} bit/s of the NICs; lower it"
        if self.additive_step is not None and self.additive_step * _MOST_STEPS < fabric.nic_rate_bps:
            yield (
                f"dcqcn.additive_step: {self.additive_step} bit/s is less than 2^-22 of the {fabric.nic_rate_bps} "
                "bit/s of the NICs; raise it"
            )

    def scaling_on(self, fabric: Fabric) -> Scaling:
        """Return the rule that carries the set over to a fabric."""
        return self.scaling or (Scaling.RATE if fabric.scale <= 1 else Scaling.ROUND_TRIP)

    def parameters(self, fabric: Fabric) -> Parameters:
        """Return the parameters on a fabric."""
        chosen: dict[str, Any] = {
            "cnp_interval_s": self.cnp_interval,
            "alpha_period_s": self.alpha_period,
            "gain": self.gain,
            "increase_period_s": self.increase_period,
            "increase_bytes": self.increase_bytes,
            "fast_stages": self.fast_stages,
            "additive_step_bps": self.additive_step,
            "hyper_step_bps": self.hyper_step,
            "least_rate_bps": self.least_rate,
        }
        found = scaled(PROFILES[self.profile], self.scaling_on(fabric), Network.of(fabric))
        own = {name: value for name, value in chosen.items() if value is not None}
        return Parameters(**{**_members(found), **own})


def scaled(profile: Profile, scaling: Scaling, here: Network) -> Parameters:
    """Return a profile's parameters as they are in another network.

    What would be finer than frames is raised: ``kmin`` to two frames, ``kmax`` to a frame more than that, the period of
    alpha to the time of a frame. Rates end at that of the NICs.
    """
    there, known = profile.network, profile.parameters
    slower = here.scale if scaling is Scaling.ROUND_TRIP else 1.0
    time = here.round_trip_s / there.round_trip_s if scaling is Scaling.ROUND_TRIP else 1.0
    faster = 1.0 if scaling is Scaling.PUBLISHED else slower * here.rate_bps / there.rate_bps

    def rate_of(name: str) -> float:
        return min(float(getattr(known, name)) * profile.growth(name, faster) / slower, here.rate_bps)

    def bytes_of(name: str, count: int) -> int:
        return round(count * (profile.growth(name, faster) / slower) * time)

    kmin = max(bytes_of(MARKING, known.marking.kmin), _LEAST_KMIN_FRAMES * here.frame_bytes)
    kmax = max(bytes_of(MARKING, known.marking.kmax), kmin + here.frame_bytes)
    pmax = _pmax(profile, time, here) if scaling is Scaling.ROUND_TRIP else known.marking.pmax
    return Parameters(
        marking=Marking(kmin=kmin, kmax=kmax, pmax=pmax),
        cnp_interval_s=known.cnp_interval_s * time,
        alpha_period_s=max(known.alpha_period_s * time, here.frame_bytes * 8 / here.rate_bps),
        gain=known.gain,
        increase_period_s=known.increase_period_s * time,
        increase_bytes=bytes_of(INCREASE_BYTES, known.increase_bytes),
        fast_stages=known.fast_stages,
        additive_step_bps=rate_of("additive_step_bps"),
        hyper_step_bps=rate_of("hyper_step_bps"),
        least_rate_bps=rate_of("least_rate_bps"),
        lowers_target=known.lowers_target,
    )


def _pmax(profile: Profile, time: float, here: Network) -> float:
    """Return the probability that leaves a flow at full rate as likely to be marked within the CNP interval as in the
    network of the profile: marks are per frame, notifications per interval, and frames per interval differ."""
    interval_s, there = profile.parameters.cnp_interval_s, profile.network
    frames_there = interval_s * there.rate_bps / (8 * there.frame_bytes)
    frames_here = interval_s * time * here.rate_bps / (8 * here.frame_bytes)
    return float(1 - (1 - profile.parameters.marking.pmax) ** (frames_there / frames_here))


def module_parameters(parameters: Parameters, line_rate_bps: int) -> dict[str, int]:
    """Return what the module ``tcp_dcqcn`` is loaded with, on hosts whose NICs have that rate; in the order of
    ``struct dcqcn_parameters``."""
    return {
        "line_rate_bps": line_rate_bps,
        "least_rate_bps": max(1, round(parameters.least_rate_bps)),
        "additive_step_bps": max(1, round(parameters.additive_step_bps)),
        "hyper_step_bps": round(parameters.hyper_step_bps),
        "stage_bytes": parameters.increase_bytes,
        "stage_ns": max(1, round(parameters.increase_period_s * 1e9)),
        "alpha_ns": max(1, round(parameters.alpha_period_s * 1e9)),
        "cnp_ns": round(parameters.cnp_interval_s * 1e9),
        "gain": max(1, round(parameters.gain * _GAIN_ONE)),
        "first_alpha": _ALPHA_ONE,
        "fast_stages": parameters.fast_stages,
        "lowers_target": int(parameters.lowers_target),
    }


def as_json(parameters: Parameters) -> dict[str, object]:
    """Return the parameters of hosts as a result states them; the marking is the queues'."""
    return {name: value for name, value in _members(parameters).items() if name != "marking"}


def _members(parameters: Parameters) -> dict[str, Any]:
    return {name: getattr(parameters, name) for name in parameters.__dataclass_fields__}
