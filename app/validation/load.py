"""The whole fabric under load: every compute NIC to every other at once, and storage's clients without a pause."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.validation.bench import Bench
from app.validation.blame import links_of
from app.validation.expectations import busiest_flows, fair_goodputs_bps
from app.validation.findings import Fault, FaultKind, TestResult, not_run, tested, undecided
from app.validation.rounds import Path
from fabric.errors import TrafficError
from fabric.measure.census import conservation, lane_counters, take_census
from fabric.measure.fidelity import UNACCOUNTED
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Nic, Port
from fabric.model.patterns import NicPair, all_to_all_in, compute_nics
from fabric.records.conservation import Conservation
from fabric.units import format_rate, format_size
from traffic.flows.pair_streams import Streams
from traffic.storage.client.verification import Verification
from traffic.storage.config import CheckpointConfig, DataloaderConfig, StorageConfig
from traffic.storage.job import StorageJob

ALL_TO_ALL, STORAGE = "all-to-all", "storage stress"
_LEAST_ALL_TO_ALL, _LEAST_STORAGE = 0.5, 0.25
"""What part of its bound a fabric in order reaches at the very least: TCP's losses, and storage's uneven demand, cost
some of it; a link of half the rate is found by other tests."""
_MOST_FLOWS = 2000
_MOST_TURNS = 8
"""What of a large fabric is played in real time: each turn takes some seconds, and has senders from all over it."""
_WINDOW_BYTES = 32 << 10
_STRESS = StorageConfig(
    chunk_size=128 << 10,
    dataloader=DataloaderConfig(share=1.0, depth=2, batch=2, sample_min=16 << 10, sample_max=128 << 10),
    checkpoint=CheckpointConfig(share=1.0, size=1 << 20, depth=2),
)
"""Every client reads and writes at once."""


@dataclass(frozen=True)
class TurnsOfFlows:
    """Flows in turns, all of one at once, and to how many others each NIC sends."""

    turns: Sequence[Sequence[NicPair]]
    each: int


def load_that_fits(
    nics: Sequence[Nic], fabric: Fabric, path_of: Callable[[NicPair], Path], queue_bytes: int, budget: float
) -> TurnsOfFlows:
    """Return flows from every NIC to as many others as can be, so that a port's queue has room for a frame of each
    flow that goes through it in a turn.

    Where more flows share a slow link, most of them wait for timeouts of TCP instead of sending: 200 ms at least, then
    twice as long each time. A fabric in order would seem to be none. ``budget``: as for :func:`in_turns`.
    """
    room = queue_bytes // fabric.frame_bytes
    most = _MOST_FLOWS
    while True:
        flows, each = all_to_all_in(fabric, nics, most)
        turns = in_turns(flows, fabric, path_of, budget)[:_MOST_TURNS]
        busiest = max(busiest_flows([path_of(flow) for flow in turn]) for turn in turns)
        if busiest <= room or each == 1:
            return TurnsOfFlows(turns, each)
        most = len(nics) * max(1, min(each - 1, each * room // busiest))


def in_turns(
    flows: Sequence[NicPair], fabric: Fabric, path_of: Callable[[NicPair], Path], budget: float
) -> list[list[NicPair]]:
    """Return flows in as few turns as can be, by senders, so that no turn has switches pass on more than ``budget``
    frames a second at the fair shares of its flows.

    A sender that alone exceeds the budget has a turn of its own.
    """
    paths = {flow: path_of(flow) for flow in flows}
    senders = list(dict.fromkeys(source for source, _ in flows))
    count = 1
    while True:
        place = {sender: number % count for number, sender in enumerate(senders)}
        turns = [[flow for flow in flows if place[flow[0]] == turn] for turn in range(count)]
        most = max(_frames_per_s(fabric, [paths[flow] for flow in turn]) for turn in turns)
        if most <= budget or count == len(senders):
            return turns
        count = min(len(senders), max(count + 1, int(count * most / budget)))


def _frames_per_s(fabric: Fabric, paths: Sequence[Path]) -> float:
    """Return how many frames a second switches pass on at the fair shares of flows, a third of them
    acknowledgements."""
    shares = zip(fair_goodputs_bps(fabric, paths), paths, strict=True)
    return 1.5 * sum(share / 8 / fabric.frame_bytes * (len(path) - 1) for share, path in shares)


class AllToAllTest:
    """Every compute NIC to every other at once, as far as the machine switches that much; else senders take turns."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self) -> TestResult:
        """Let them send, and hold what they deliver against fair shares of the planned paths."""
        fabric = self._bench.fabric
        nics = compute_nics(fabric)
        if len(nics) < 2:
            return not_run(ALL_TO_ALL, f"{fabric.name} has fewer than two compute NICs")
        load = load_that_fits(nics, fabric, self._bench.path, self._queue_bytes, self._bench.budget)
        turns = load.turns
        paths = [[self._bench.path(flow) for flow in turn] for turn in turns]
        goodput, kept = self._play(turns)
        total_bps = sum(goodput.values()) / len(turns)
        bound_bps = sum(share for turn in paths for share in fair_goodputs_bps(fabric, turn)) / len(turns)
        slowest = min(goodput, key=lambda flow: goodput[flow])
        whole = max(Counter(map(fabric.network_of, nics)).values()) - 1
        others = "every other" if load.each == whole else f"{load.each} others each, evenly spread,"
        lines = [
            f"{len(nics)} compute NICs to {others} at once{_turns_in_words(len(turns))}: {len(goodput)} flows, "
            f"{max(busiest_flows(turn) for turn in paths)} on one link",
            f"{format_rate(total_bps)} of {format_rate(bound_bps)}, the fair shares of planned paths: "
            f"{total_bps / bound_bps:.0%}",
            f"slowest {slowest[0].port} to {slowest[1].port}: {format_rate(goodput[slowest])}",
            f"{kept.dropped_by_queues:,} of {kept.sent_packets:,} packets dropped by queues, "
            f"{kept.unaccounted_packets} lost without a counter{self._explanation(kept)}",
        ]
        figures = {"fraction_of_bound": total_bps / bound_bps, "unaccounted_packets": kept.unaccounted_packets}
        faults = [*self._vanished(kept), *self._too_little(total_bps / bound_bps)]
        return _unless_late(self._bench, tested(ALL_TO_ALL, lines, faults, figures))

    @property
    def _queue_bytes(self) -> int:
        """What may wait at a port, of what these flows send."""
        return self._bench.live.emulation.lane_plan.lane_of(ServiceLevel.NCCL).limit_bytes

    def _play(self, turns: Sequence[Sequence[NicPair]]) -> tuple[dict[NicPair, float], Conservation]:
        bench = self._bench
        goodput: dict[NicPair, float] = {}
        streams = Streams(bench.stage(_WINDOW_BYTES), ServiceLevel.NCCL)
        before = take_census(bench.live.emulation, bench.live.rule_drops)
        streams.start()
        with bench.watched():
            for turn in turns:
                bench.tell(f"all-to-all: {len(turn)} flows at once")
                goodput |= streams.run(turn, bench.times.all_ramp_s, bench.times.all_s)
        streams.close()
        after = take_census(bench.live.emulation, bench.live.rule_drops)
        return goodput, conservation(bench.fabric, before, after)

    def _vanished(self, kept: Conservation) -> Iterator[Fault]:
        explained = self._lossy_places()
        for place, packets in kept.unaccounted.items():
            if place not in explained and abs(packets) > UNACCOUNTED[1] * kept.sent_packets:
                yield Fault(FaultKind.CONSERVATION, (), place, f"{packets} packets", "every packet in a counter")

    def _explanation(self, kept: Conservation) -> str:
        explained = kept.unaccounted and self._lossy_places().issuperset(kept.unaccounted)
        return ", all at links reported above as lossy" if explained else ""

    def _lossy_places(self) -> set[str]:
        """Return the places, as :mod:`fabric.measure.census` names them, where links that are known to be faulty may
        lose frames: in the switch that sends, or on the wire."""
        links = links_of(self._bench.fabric, self._bench.faults)
        wires = {f"wire {port} to {link.other(port)}" for link in links for port in link.ports}
        return wires | {f"switch {port.node}" for link in links for port in link.ports}

    def _too_little(self, reached: float) -> Iterator[Fault]:
        if reached < _LEAST_ALL_TO_ALL and not self._bench.faults:
            expected = f"at least {_LEAST_ALL_TO_ALL:.0%} of it"
            yield Fault(FaultKind.BANDWIDTH, (), ALL_TO_ALL, f"{reached:.0%} of fair shares", expected)


@dataclass(frozen=True)
class _Stress:
    """What clients and NICs of storage did: bytes read and written, operations given up, and what part of the NICs'
    rate was used each way."""

    read_bytes: int
    written_bytes: int
    given_up: int
    out: float
    into: float
    verified: Verification


class StorageTest:
    """All compute nodes read and write without a pause."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._nics = [nic.port for node in bench.fabric.storages for nic in bench.fabric.nics_of[node]]

    def run(self) -> TestResult:
        """Let them, then read back all that was acknowledged."""
        fabric = self._bench.fabric
        if not fabric.storages or not fabric.computes:
            return not_run(STORAGE, f"{fabric.name} has no storage nodes or no compute nodes")
        self._bench.tell(f"storage: {len(fabric.computes)} clients read and write")
        # A fabric with one storage node has room for one replica only.
        config = _STRESS.model_copy(update={"replicas": min(_STRESS.replicas, len(fabric.storages))})
        job = StorageJob(self._bench.stage(), config, fabric.computes)
        try:
            job.start()
            found = self._play(job)
        except TrafficError as error:
            words = str(error).strip().splitlines()
            fault = Fault(FaultKind.STORAGE, (), STORAGE, f"{words[0]} {words[-1]}", "correct answers, in time")
            return _unless_late(self._bench, tested(STORAGE, ["ended by an error"], [fault]))
        finally:
            job.close()
        return self._result(found)

    def _play(self, job: StorageJob) -> _Stress:
        with self._bench.watched():
            before, began = self._sent_bytes(), time.monotonic()
            job.play("stress")
            time.sleep(self._bench.times.storage_s)
            after, elapsed_s = self._sent_bytes(), time.monotonic() - began
            rows = job.halt().rows("operations")
        self._bench.tell("storage: reading back what was acknowledged")
        verified = job.verify_acknowledged()
        size = {kind: sum(row["size_bytes"] for row in rows if row["operation"] == kind) for kind in ("read", "write")}
        given_up = sum(row["operation"] in ("read_failed", "write_failed") for row in rows)
        rate_bps = sum(self._bench.fabric.link_at[port].rate_bps for port in self._nics)
        used = [(late - early) * 8 / elapsed_s / rate_bps for early, late in zip(before, after, strict=True)]
        return _Stress(size["read"], size["write"], given_up, used[0], used[1], verified)

    def _sent_bytes(self) -> tuple[int, int]:
        """Return what storage NICs have sent, and what was sent to them."""
        counters = lane_counters(self._bench.live.emulation, "sent_bytes")
        peers: set[Port] = {self._bench.fabric.peer(port) for port in self._nics}
        out = sum(sent for (port, _), sent in counters.items() if port in set(self._nics))
        return out, sum(sent for (port, _), sent in counters.items() if port in peers)

    def _result(self, found: _Stress) -> TestResult:
        clients, verified = len(self._bench.fabric.computes), found.verified
        lines = [
            f"{clients} clients read {format_size(found.read_bytes)}, wrote {format_size(found.written_bytes)}; "
            f"all verified; {found.given_up} operations given up",
            f"storage NICs used: {found.out:.0%} of their rate out, {found.into:.0%} in",
            f"{verified.checked:,} replicas of acknowledged writes read back: {len(verified.lost)} lost, "
            f"{len(verified.out_of_reach)} unreachable",
        ]
        figures = {"fraction_out": found.out, "fraction_in": found.into, "given_up": found.given_up}
        if verified.lost:
            return tested(STORAGE, lines, self._lost(verified), figures)
        return _unless_late(self._bench, tested(STORAGE, lines, self._too_little(found), figures))

    @staticmethod
    def _lost(verified: Verification) -> Iterator[Fault]:
        for line in verified.lost:
            yield Fault(FaultKind.STORAGE, (), STORAGE, f"an acknowledged write was lost: {line}", "none lost")

    def _too_little(self, found: _Stress) -> Iterator[Fault]:
        if self._bench.faults:
            return  # They explain it.
        for line in found.verified.out_of_reach:
            yield Fault(FaultKind.STORAGE, (), STORAGE, f"a replica was unreachable: {line}", "all reachable")
        if found.given_up:
            yield Fault(FaultKind.STORAGE, (), STORAGE, f"{found.given_up} operations given up", "none")
        if max(found.out, found.into) < _LEAST_STORAGE:
            measured = f"storage NICs carry {found.out:.0%} of their rate out, {found.into:.0%} in"
            yield Fault(FaultKind.STORAGE, (), STORAGE, measured, f"at least {_LEAST_STORAGE:.0%} in one direction")


def _turns_in_words(count: int) -> str:
    return "" if count == 1 else f", senders in {count} turns, because this machine cannot switch more at once"


def _unless_late(bench: Bench, result: TestResult) -> TestResult:
    """Return a result without its faults if they may be the machine's."""
    if not result.faults or not bench.late:
        return result
    seeming = [f"seems wrong: {fault}" for fault in result.faults]
    return undecided(result.name, [*result.measured, *seeming], bench.late, dict(result.figures))
