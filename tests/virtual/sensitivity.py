"""Experiments played twice on one fabric, with a link, a share or a limit as it is and half of it: ``sensitivity.py
REPORT WORLD``. Runs in a guest; one fabric carries all plays, for bringing it up costs more than they do."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.metrics import as_metrics, by_path
from fabric.model.lanes import Queueing, plan_lanes
from fabric.world import inside
from fabric.world.programs.agents import AgentPool, fork_server
from runs.live import LiveFabric, bring_up
from runs.preload import PRELOAD
from runs.registry import resolve
from runs.session import Session
from traffic import congestion_control


@dataclass(frozen=True)
class World:
    """A fabric, and what is played on it: per experiment its settings, and what each change adds to them.

    A play's name is the experiment's, with a space and the change's if it is changed.
    """

    topology: Sequence[str]
    played: Mapping[str, Sequence[str]]
    changes: Mapping[str, Mapping[str, Sequence[str]]]

    def plays(self) -> dict[str, tuple[str, list[str]]]:
        """Return each play's experiment and settings by its name."""
        found = {}
        for experiment, settings in self.played.items():
            base = [*self.topology, *settings]
            found[experiment] = experiment, base
            for name, changed in self.changes[experiment].items():
                found[f"{experiment} {name}"] = experiment, [*base, *changed]
        return found


def _shares(**shares: float) -> list[str]:
    return [f"queues.lanes.{lane}.share={share}" for lane, share in shares.items()]


_LANES = ("hfreduce", "storage", "other", "control")
_FLOWS = r"Nodes 6\nConnections 2\n0->2 start 0 size 5000000\n1->3 start 0 size 5000000"
_SMALL_STORAGE = (
    "storage.chunk_size=16 KiB",
    "storage.dataloader.sample_min=4 KiB",
    "storage.dataloader.sample_max=16 KiB",
    "background.size_scale=0.005",
)
_SMALL_HFREDUCE = ("hfreduce.size=32 KiB", "hfreduce.chunk=8 KiB")
_MESSAGE = r"num_ranks 2\nrank 0 {\nsend 1000000b to 1\n}\nrank 1 {\nrecv 1000000b from 0\n}\n"
_LATENT = "{{name: slow, begin_latency: {} ms, read_latency: {} ms, commit_latency: {} ms}}"
_LIST = (
    *("seed=4", "nodes=3", "composed=null", "sample_period=1 s", "job_list.gpus_per_node=512", "job_list.shortest=8 s"),
    *("job_list.longest=20 s", "job_list.count=24", "job_list.load=3", "job_list.given.deaf=0", "program.save=2 s"),
)
_HALF_LINK = "[{host: z0h002, at: 0 s, rate: 0.5}]"

WORLDS = {
    "head_of_line": World(
        ["topology=head_of_line"],
        {
            "head_of_line": ["queueings=[lossless, lossless_lanes]", "repeats=1", "time_scale=0.1"],
            "random_arrivals": ["loads=[0.6]", "frames=3000"],
            "replay": [f'matrix="{_FLOWS}"', "time_scale=1"],
        },
        {
            "head_of_line": {
                "half link": [f"failures={_HALF_LINK}"],
                "twice the buffer": [
                    "queues.shared_buffer.credits=128 KiB",
                    *(f"queues.lanes.{lane}.credits=128 KiB" for lane in _LANES),
                ],
            },
            "random_arrivals": {"half payload": ["payload=512"], "half load": ["loads=[0.3]"]},
            "replay": {"half link": [f"failures={_HALF_LINK}"]},
        },
    ),
    "tiny": World(
        ["topology=fire_flyer_2_tiny", "topology.compute=4"],
        {
            "isolation": [
                *("queueings=[shared, lanes]", "nccl_nodes=2", "heavy_load=0", "alone_time=0.2", "together_time=0.8"),
                *(*_SMALL_HFREDUCE, *_SMALL_STORAGE, "nccl.size=32 KiB", "nccl.slice=8 KiB"),
                *("storage.checkpoint.size=128 KiB", "background.load=0.6"),
                *_shares(hfreduce=0.4, nccl=0.1, storage=0.4, other=0.05, control=0.05),
            ],
            "protection": [
                *("queueings=[lanes]", "other_loads=[0, 2]", "storage_depths=[]", "warm_up=0.2", "phase_time=0.5"),
                *(*_SMALL_HFREDUCE, *_SMALL_STORAGE),
                *_shares(hfreduce=0.4, nccl=0.05, storage=0.1, other=0.4, control=0.05),
            ],
            "shared_cluster": [
                "jobs=[{name: a, kind: hfreduce, nodes: [z0h000, z1h001], size: 64 KiB, chunk: 8 KiB},"
                " {name: b, kind: hfreduce, nodes: [z0h001, z1h000], size: 64 KiB, chunk: 8 KiB}]",
                *("alone_time=0.3", "together_time=0.5"),
            ],
            "collectives": [
                *("collectives=[allreduce]", "algorithms=[ring]", "ranks=[4]", "begin=64 KiB", "end=64 KiB"),
                *("slice=4 KiB", "in_place=false"),
            ],
            "trace_replay": [f'traces=[{{name: message, text: "{_MESSAGE}"}}]', "placement=[z0h000, z1h001]"],
            "link_flap": [
                *(
                    "policies={wait: {repair: wait}}",
                    "durations=[200 ms]",
                    "places=[host_link]",
                    "targets=1",
                    "flows=1",
                ),
                *("loads=[hfreduce]", "undisturbed_time=0.5", "gap=1", *_SMALL_HFREDUCE),
            ],
            "flash_cut_year": [
                *("policies={wait: {repair: wait}}", "durations=[100 ms]", "year.days=10", "undisturbed_time=0.8"),
                *("jobs_per_zone=1", *_SMALL_HFREDUCE, "storage.chunk_size=16 KiB"),
                *("storage.dataloader.sample_min=4 KiB", "storage.dataloader.sample_max=16 KiB"),
            ],
            "lossless_soak": ["repairs=[wait]", "rounds=1", "round_time=6", "flaps.count=0"],
        },
        {
            "isolation": {"half share": _shares(storage=0.2, other=0.25)},
            "protection": {"half share": _shares(hfreduce=0.2, nccl=0.25)},
            "shared_cluster": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "collectives": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "trace_replay": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "link_flap": {"half cut": ["durations=[100 ms]"]},
            "flash_cut_year": {"half cut": ["durations=[50 ms]"]},
            "lossless_soak": {"half credits": [f"queues.lanes.{lane}.credits=32 KiB" for lane in _LANES]},
        },
    ),
    "cluster": World(
        ["topology=fire_flyer_2_tiny", "topology.compute=4"],
        {
            "goodput_year": [
                *(
                    "events.nodes=[z0h000, z0h001, z1h000, z1h001]",
                    "events.draws={killed: 1, silent: 1, leaf: 0, cut: 1}",
                ),
                *("events.timers={beat: 1 s, failed_after: 16 s}", "events.cut=4 s"),
                "events.program={step: 1 s, interval: 10 s, durable: 1 s}",
                *("slow.time=0.5", "slow.hfreduce={size: 32 KiB, chunk: 8 KiB}", "storms.write_time=5 s"),
                *("storms.storage.replicas=2", "storms.storage.cluster_manager={host: st001, restart: 1 s}"),
                *("storms.storage.stripe=2", "storms.storage.chains_per_target=2"),
                *("leaves=null", "spine=null", "storage_loss=null", "wrong=null", "validation=null"),
                *("year.days=5", "year.seeds=1", "year.intervals=[]", "year.spares=[]", "year.validations=[]"),
            ],
            "time_sharing": [*_LIST, "policies=[hai]"],
        },
        {
            "goodput_year": {"half patience": ["events.timers={beat: 1 s, failed_after: 8 s}"]},
            # By another policy, whose platform has files of its own.
            "time_sharing": {"twice the saving": ["policies=[hai_backfill]", "program.save=4 s"]},
        },
    ),
    "planes": World(
        ["topology=next_generation_32768_small"],
        {
            "nic_failover": [
                *("stall_timeout=400 ms", "cut_at=500 ms", "phase_time=2500 ms", "sample_period=20 ms"),
                "queueing=lanes",
            ],
            "traffic_patterns": [
                *("patterns=[permutation]", "policies=[static]", "draws=1", "warm_up=300 ms", "measured_time=1 s"),
                "sample_period=20 ms",
            ],
        },
        {
            "nic_failover": {"half patience": ["stall_timeout=200 ms"]},
            "traffic_patterns": {"half link": ["failures=[{port: 'z0h000:0', at: 0 s, rate: 0.5}]"]},
        },
    ),
    "storage": World(
        ["topology=storage_zone_200g", "topology.storage=8"],
        {
            "incast": [
                *("servers=[8]", "request_to_send=[4]", "controls=[line]", "queueings=[lossless_lanes]"),
                *("phase_time=1.5 ms", "warm_up=0.5 ms"),
            ],
            "dcqcn_frontier": [
                *("grid.profiles=[paper]", "grid.thresholds=[1]", "grid.increase=[1]", "queueings=[lossless_lanes]"),
                *("others=[line]", "nodes=2", "phase_time=2 ms", "warm_up=0.7 ms"),
            ],
            "routing_incast": [
                *("policies=[static]", "queueings=[lossless]", "phase_time=2 ms", "incast.period=500 us"),
                *("incast.request=256 KiB", "bystanders.request=64 KiB", "bystanders.apart=1", "bystanders.crossing=0"),
                "receive_window=256 KiB",
            ],
            "storage_throughput": [
                *("request_to_send=[8]", "phase_time=1.5 ms", "warm_up=0.5 ms", "sample_period=0.2 ms"),
                *("storage.stripe=8", "storage.dataloader.files=4"),
                "storage.dataloader.file_size=16 MiB",
            ],
            "kv_cache": [
                *("studies=[peak]", "storage_nodes=[8]", "depths=[8]", "phase_time=1.5 ms", "warm_up=0.5 ms"),
                "sample_period=0.2 ms",
            ],
            "data_loader": [
                *("computes=[0 s]", "orders=[shuffled]", "prefetches=[2]", "storage.stripe=8"),
                *("storage.dataloader.files=16", "storage.dataloader.file_size=4 MiB"),
                *("storage.dataloader.sample_min=128 KiB", "storage.dataloader.sample_max=128 KiB"),
            ],
            "checkpoint_restore": [
                *("parts=[own]", "request_to_send=[off]", "queueings=[lossless_lanes]"),
                "storage.restore.size=4 MiB",
            ],
            "graysort": [
                *("exchanges=[storage]", "computing=[none]", "sort.ranks=4", "sort.tasks=2", "sort.part=256 KiB"),
                "sort.files.replicas=1",
            ],
            "checkpoints": [
                *("setups=[]", "queueings=[lossless_lanes]", "checkpoints.restored_by=[2]", "checkpoints.count=1"),
                *("checkpoints.size=4 MiB", "checkpoints.replicas=1", "training_time=2 ms", "beside_time=4 ms"),
            ],
            "mdtest": [
                *("clients=2", "processes=[2]", f"stores=[{_LATENT.format(10, 10, 20)}]"),
                "files.mdtest={files: 8, write: 16384, unique: true}",
            ],
        },
        {
            "incast": {"half limit": ["request_to_send=[2]"]},
            "dcqcn_frontier": {"half share": _shares(hfreduce=0.25, other=0.3)},
            "routing_incast": {"half request": ["incast.request=128 KiB"]},
            "storage_throughput": {"one at a time": ["request_to_send=[1]"]},
            "kv_cache": {"half link": [f"failures={_HALF_LINK.replace('z0h002', 'z0h000')}"]},
            "data_loader": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "checkpoint_restore": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "graysort": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "checkpoints": {"half link": ["failures=[{host: z0h000, at: 0 s, rate: 0.5}]"]},
            "mdtest": {"half latencies": [f"stores=[{_LATENT.format(5, 5, 10)}]"]},
        },
    ),
}


def played(live: LiveFabric, pool: AgentPool, experiment: str, settings: list[str]) -> dict[str, float]:
    """Return the metrics of an experiment on a fabric that is up; its links are not measured anew."""
    definition, config, *_ = resolve(experiment, settings)
    parameters = config.dcqcn.parameters(live.fabric)
    congestion_control.provide(config.controls_played.values(), parameters, live.fabric.nic_rate_bps)
    congestion_control.admit(live.emulation.host_namespaces, parameters, live.fabric.nic_rate_bps)
    session = Session.of(config, live, pool, own_tables=definition.load_tables())
    session.calibrations.update({queueing.value: [] for queueing in Queueing})
    summary = definition.load_run()(session, config)
    lost = sum(outcome.conservation.unaccounted_packets for outcome in session.phases)
    found = by_path(as_metrics(summary["metrics"]))
    return {**found, "unaccounted_packets": float(lost)}


def seen(world: World) -> dict[str, dict[str, float]]:
    """Return the metrics of all plays in a world, by their names."""
    inside.set_up()
    fork_server(PRELOAD)
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    plays = world.plays()
    config = resolve(*next(iter(plays.values()))).config
    with bring_up(config.fabric(), plan_lanes(config.queues, config.queueings_played[0]), logs, print) as live:
        pool = AgentPool(PRELOAD)
        try:
            return {name: played(live, pool, *play) for name, play in plays.items()}
        finally:
            pool.stop()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(seen(WORLDS[sys.argv[2]])))
