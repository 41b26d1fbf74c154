"""Costs that were measured with packets on a small fabric, and what they come to on a whole machine.

Times that timers and programs make (detection, stop, start, notice) carry over as they are. What bytes make of time
does not: a storm of reads is measured as the part of the storage NICs' rate that it gets, and a whole machine's takes
its bytes over that part of its own. What no fabric shows is given: how long programs take to initialise, how fast a
node copies its state out of its GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from cluster.simulation.costs import Costs
from fabric.config import RateBps, SizeBytes, Strict, TimeS, checked
from fabric.errors import ConfigError

Time = Annotated[TimeS, Field(ge=0, le=86_400)]
Part = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[RateBps, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=100_000)]


class SpineCost(Strict):
    """What the loss of one of ``spines`` spine switches of a zone costs an allreduce over all nodes."""

    spines: Annotated[int, Field(ge=1, le=10_000)] = Field(description="Spine switches of a zone that was measured.")
    stall: Time = Field(description="How long it stood still until routes avoided the switch, in seconds.")
    slow_communication: Annotated[float, Field(ge=1, le=1000)] = Field(
        description="How many times as long it took without the switch."
    )

    def of(self, spines: int) -> float:
        """Return how many times as long an allreduce takes without one of ``spines`` spines of a zone: what is more
        than 1 is in proportion to the part of the capacity that is lost."""
        return 1 + (self.slow_communication - 1) * self.spines / spines


class SharedCosts(Strict):
    """What it costs that something fails, or is looked at, which all nodes share; by default nothing was measured."""

    storage_lost: Time = Field(
        default=0.0, description="How long steps stood still for a storage node that fell silent, in seconds."
    )
    resync: Time = Field(
        default=0.0, description="How much later steps were for bringing it up to date once it was back, in seconds."
    )
    spine: SpineCost | None = Field(default=None, description="What a spine switch's loss costs.")
    wrong_part: Part = Field(
        default=1.0, description="Part of a restore's time after which it is known that the checkpoint is wrong."
    )
    validation: Time = Field(default=0.0, description="How long the validator had all of a job's nodes, in seconds.")


class MeasuredCosts(SharedCosts):
    """What events cost on the fabric that they were played on: means over all draws."""

    detect_error: Time = Field(description="From a program's kill until its job is asked to stop, in seconds.")
    detect_silent: Time = Field(description="From a host's silence until its job is asked to stop, in seconds.")
    stop: Time = Field(description="From then until no rank is left, in seconds.")
    start: Time = Field(description="From the order to start until all ranks have met, in seconds.")
    answer: Time = Field(description="From the suspend command to the last step, in seconds.")
    suspend_save: Time = Field(description="From there until no rank is left, in seconds.")
    cut: Time = Field(description="How long steps stood still for a link that was cut, in seconds.")
    slow_communication: Annotated[float, Field(ge=1, le=1000)] = Field(
        description="How many times as long an allreduce takes with a slow NIC."
    )
    restore_part: Part = Field(description="Part of the storage NICs' rate that a restore by all nodes gets.")
    write_part: Part = Field(description="Part of that rate that checkpoints of all nodes get, all copies counted.")
    replicas: Annotated[int, Field(ge=1, le=16)] = Field(description="Copies that storage keeps.")


class GivenCosts(Strict):
    """What was not measured: it is computing, which takes no time on the fabric, or a choice."""

    initialise: Time = Field(
        default=30.0,
        description="Programs' start beyond what is measured: loading, opening GPUs, building communicators. MegaScale "
        "(arXiv 2402.15627) says less than 30 s on more than 10,000 GPUs.",
    )
    copy_rate: Rate = Field(
        default=216 * 10**9,
        description="Rate at which a node copies its state to its memory, for an asynchronous checkpoint. "
        "Fire-Flyer 2's nodes: 27 GB/s.",
    )
    exposed_communication: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2, description="Part of a step in which nothing is computed, since it waits for communication."
    )


class MachineFacts(Strict):
    """What a whole machine restores and writes, and how fast its storage's NICs are."""

    checkpoint: Annotated[SizeBytes, Field(ge=1, le=10**18)] = Field(
        description="Bytes of a checkpoint, all nodes' together."
    )
    storage_rate: Rate = Field(description="Rate of the NICs of all its storage nodes, in each direction.")
    storage_nodes: Count = Field(default=0, description="Its storage nodes; 0: not known, and none fails.")
    leaves: Count = Field(default=0, description="Its leaf switches, over which nodes are dealt; likewise.")
    spines: Count = Field(default=0, description="Its spine switches, of all zones; likewise.")
    zones: Annotated[int, Field(ge=1, le=1000)] = Field(default=1, description="Zones over which spines are dealt.")
    said: str = Field(default="", max_length=300, description="Where these are from.")


def costs_of(
    measured: MeasuredCosts,
    given: GivenCosts,
    machine: MachineFacts,
    nodes: int,
    synchronous: bool = False,
) -> Costs:
    """Return the costs of a job on all ``nodes`` of a machine.

    A synchronous checkpoint stalls all nodes for as long as it is written; another one for the copy to their own
    memory, and is written beside the next steps.
    """
    storage_Bps = machine.storage_rate / 8  # noqa: N806 - bytes, not bits
    restore_s = machine.checkpoint / (measured.restore_part * storage_Bps)
    write_s = machine.checkpoint * measured.replicas / (measured.write_part * storage_Bps)
    copy_s = machine.checkpoint / nodes / (given.copy_rate / 8)
    spine = measured.spine
    spine_slow = spine.of(max(1, machine.spines // machine.zones)) if spine is not None and machine.spines else 1.0
    return Costs(
        start=measured.start + given.initialise,
        restore=restore_s,
        save=write_s if synchronous else copy_s,
        durable=0.0 if synchronous else write_s,
        answer=measured.answer,
        suspend_save=measured.suspend_save,
        stop=measured.stop,
        detect_error=measured.detect_error,
        detect_silent=measured.detect_silent,
        cut=measured.cut,
        slowdown=1 + given.exposed_communication * (measured.slow_communication - 1),
        storage=measured.storage_lost + measured.resync,
        spine=0.0 if spine is None else spine.stall,
        spine_slowdown=1 + given.exposed_communication * (spine_slow - 1),
        wrong=measured.wrong_part * restore_s,
    )


class MeasuredResult(Strict):
    """What a result of ``goodput_year`` says for other machines, as its summary has it."""

    measured: MeasuredCosts = Field(description="What was measured.")
    given: GivenCosts = Field(description="What was given.")
    machines: dict[str, MachineFacts] = Field(description="Machines by the names of their fault tables.")


def measured_result(summary: Mapping[str, Any], source: str) -> MeasuredResult:
    """Return the measured costs of a result's summary. Raises ConfigError if it has none, or wrong ones."""
    if "measured_costs" not in summary:
        raise ConfigError(source, ["measured_costs: missing; give a result of goodput_year"])
    return checked(MeasuredResult, summary["measured_costs"], f"{source}: measured_costs")
