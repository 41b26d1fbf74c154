"""Numbers hang on what they must and on nothing else: with half a link, a share or a limit, those that it sets move by
as much as closed forms say, and the others stay. A test for each experiment; for ``hfreduce_vs_nccl``, which runs on
the limits of nodes, in test_nodes.py."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from runs.registry import EXPERIMENTS
from tests.guest_scripts import run_module
from tests.virtual.sensitivity import WORLDS

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
Metrics = dict[str, dict[str, float]]
VICTIM, SENDERS = "victim", ("sender beside the victim", "second sender", "third sender")
FLOWS = (VICTIM, *SENDERS)
QUEUEINGS = ("lossless", "lossless_lanes")
NEAR = 0.03
BESIDE_OTHERS = 0.1
"""Of programs that wait for one another, in phases of tenths of a second."""
IN_ONE_QUEUE = 0.3
"""Of programs in one queue for a second: how TCP's flows share it hangs on each packet."""
IN_READS = 0.13
"""Of a phase with 24 reads: three of them."""


def seen(directory: Path, world: str) -> Metrics:
    report = directory / "report.json"
    run_module("tests.virtual.sensitivity", str(report), world, keep=[directory])
    found: Metrics = json.loads(report.read_text())
    return found


@pytest.fixture(scope="module")
def head_of_line(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Experiments of single flows, at 1 Gbit/s."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "head_of_line")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Experiments of jobs beside each other and of failures, at 20 Mbit/s."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "tiny")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Experiments of incasts and of congestion controls, at 200 Gbit/s."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "storage")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Experiments of a cluster's scheduler, minutes of virtual time each."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "cluster")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Experiments of hosts with several NICs, in four planes at 10 Mbit/s."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "planes")


def ratio(found: Metrics, experiment: str, change: str, metric: str, changed_metric: str | None = None) -> float:
    """Return a number after a change over that before; ``changed_metric``: its name after, if that is another."""
    return found[f"{experiment} {change}"][changed_metric or metric] / found[experiment][metric]


def ratios(found: Metrics, experiment: str, change: str, prefix: str) -> dict[str, float]:
    """Return the same of all that begin so, are not 0 and are known in both: of a full lane a percentile may only be
    known to be at least something."""
    changed = found[f"{experiment} {change}"]
    names = [name for name, value in found[experiment].items() if name.startswith(prefix) and value and name in changed]
    assert names, prefix
    return {name.removeprefix(prefix): ratio(found, experiment, change, name) for name in names}


def of_flows(found: Metrics, change: str, queueing: str) -> dict[str, float]:
    return {flow: ratio(found, "head_of_line", change, f"{queueing}_1.{flow}_bps") for flow in FLOWS}


# Single flows --------------------------------------------------------------------------------------------------------


def test_half_the_full_link_halves_all_that_share_a_lane_with_it(head_of_line: Metrics) -> None:
    """One lane: all four have a third of that link, the victim, which does not use it, too."""
    assert of_flows(head_of_line, "half link", "lossless") == pytest.approx(dict.fromkeys(FLOWS, 0.5), rel=NEAR)


def test_half_the_full_link_leaves_a_victim_in_its_own_lane_alone(head_of_line: Metrics) -> None:
    found = of_flows(head_of_line, "half link", "lossless_lanes")
    assert found.pop(VICTIM) == pytest.approx(1, rel=NEAR)
    assert found == pytest.approx(dict.fromkeys(SENDERS, 0.5), rel=NEAR)


def test_twice_the_buffers_are_filled_and_move_no_rate(head_of_line: Metrics) -> None:
    for queueing in QUEUEINGS:
        found = of_flows(head_of_line, "twice the buffer", queueing)
        assert found == pytest.approx(dict.fromkeys(FLOWS, 1.0), rel=NEAR)
        before, after = (
            head_of_line[play][f"{queueing}_1.most_buffered_bytes"]
            for play in ("head_of_line", "head_of_line twice the buffer")
        )
        assert 55_000 < before <= 64 * 1024
        assert 2 * 55_000 < after <= 128 * 1024


def test_half_the_payload_halves_waits_but_for_headers(head_of_line: Metrics) -> None:
    """Waits grow with the time of a frame; headers stay. These arrivals, drawn by the seed, are explained exactly."""
    found = ratios(head_of_line, "random_arrivals", "half payload", "load_0p6.")
    assert found["theory_wait_s"] == pytest.approx(found["explained_wait_s"], rel=0.001)
    assert found["mean_wait_s"] == pytest.approx(found["theory_wait_s"], rel=NEAR)
    for play in ("random_arrivals", "random_arrivals half payload"):
        assert head_of_line[play]["load_0p6.most_off_s"] < 1.1e-9, "a packet is off by what the clock resolves"


def test_half_the_load_shortens_waits_as_theory_says(head_of_line: Metrics) -> None:
    """At 60 % of a link a packet waits 0.6 / (1 - 0.6) / 2 frames' times, at 30 % 0.3 / (1 - 0.3) / 2."""
    found = ratio(head_of_line, "random_arrivals", "half load", "load_0p6.mean_wait_s", "load_0p3.mean_wait_s")
    assert found == pytest.approx((0.3 / 0.7) / (0.6 / 0.4), rel=0.1)


def test_half_a_link_doubles_the_time_of_the_flow_over_it_and_of_no_other(head_of_line: Metrics) -> None:
    assert ratio(head_of_line, "replay", "half link", "replay.line_3_fct_s") == pytest.approx(2, rel=NEAR)
    assert ratio(head_of_line, "replay", "half link", "replay.line_4_fct_s") == pytest.approx(1, rel=0.001)


def test_half_a_link_halves_the_busbw_of_a_ring_over_it(tiny: Metrics) -> None:
    found = ratio(tiny, "collectives", "half link", "allreduce_ring_n4.size_65536.busbw_Bps")
    assert found == pytest.approx(0.5, rel=NEAR)


def test_half_a_link_doubles_the_time_of_a_message_over_it(tiny: Metrics) -> None:
    assert ratio(tiny, "trace_replay", "half link", "replay.message.step_s") == pytest.approx(2, rel=NEAR)


# Jobs beside each other -----------------------------------------------------------------------------------------------


def test_half_of_storages_share_halves_storage_in_lanes_and_nothing_else(tiny: Metrics) -> None:
    """The other half goes to other traffic, so HFReduce, whose share stays, keeps what it had."""
    found = ratios(tiny, "isolation", "half share", "lanes.")
    for operation in ("read", "write"):
        assert 0.45 < found[f"{operation}.bandwidth_Bps"] < 0.65, "lent bandwidth comes on top of the share"
    assert found["hfreduce.algbw_Bps"] == pytest.approx(1, rel=BESIDE_OTHERS)
    assert found["flow.bandwidth_Bps"] > 2, "other traffic has the rest"
    for phase in ("hfreduce_alone.", "nccl_alone.", "storage_alone."):
        same = ratios(tiny, "isolation", "half share", phase)
        near = BESIDE_OTHERS if phase == "storage_alone." else 0.01  # Its programs wait for one another.
        assert same == pytest.approx(dict.fromkeys(same, 1.0), rel=near), phase
    shared = ratios(tiny, "isolation", "half share", "shared.")
    for name in ("hfreduce.algbw_Bps", "nccl.algbw_Bps", "read.bandwidth_Bps", "flow.bandwidth_Bps"):
        assert shared[name] == pytest.approx(1, rel=IN_ONE_QUEUE), name


def test_half_of_hfreduces_share_is_what_protects_it_less(tiny: Metrics) -> None:
    """Lanes in use share a link: HFReduce has 0.4 of 0.9, then 0.2 of 0.7; without others 0.4 of 0.5, 0.2 of 0.3."""
    beside = ratio(tiny, "protection", "half share", "lanes_other_2_depth_2.hfreduce.algbw_Bps")
    assert beside == pytest.approx((0.2 / 0.7) / (0.4 / 0.9), rel=BESIDE_OTHERS)
    without = ratio(tiny, "protection", "half share", "lanes_other_0_depth_2.hfreduce.algbw_Bps")
    assert without == pytest.approx((0.2 / 0.3) / (0.4 / 0.5), rel=BESIDE_OTHERS)
    for name in ("hfreduce_alone.hfreduce.algbw_Bps", "storage_alone.read.bandwidth_Bps"):
        assert ratio(tiny, "protection", "half share", name) == pytest.approx(1, rel=NEAR), name


def test_half_the_link_of_a_host_halves_its_job_and_no_other(tiny: Metrics) -> None:
    for phase in ("a_alone", "together"):
        assert ratio(tiny, "shared_cluster", "half link", f"{phase}.a.algbw_Bps") == pytest.approx(0.5, rel=NEAR)
    for phase in ("b_alone", "together"):
        assert ratio(tiny, "shared_cluster", "half link", f"{phase}.b.algbw_Bps") == pytest.approx(1, rel=NEAR)


def test_half_a_cut_halves_the_blackout_and_not_the_stall_that_tcp_makes_of_it(tiny: Metrics) -> None:
    """TCP tries again after 200 ms at the earliest, so that the step stalls as long after either cut."""
    before, after = "wait.host_link.200ms.", "wait.host_link.100ms."

    def moved(name: str) -> float:
        return ratio(tiny, "link_flap", "half cut", before + name, after + name)

    assert moved("blackout_p50_s") == pytest.approx(0.5, rel=0.001)
    assert moved("stall_p50_s") == pytest.approx(0.9, rel=0.2)
    assert ratio(tiny, "link_flap", "half cut", "undisturbed.step_s") == pytest.approx(1, rel=0.001)


def test_half_as_long_cuts_of_a_year_halve_the_time_that_links_are_down(tiny: Metrics) -> None:
    before, after = "wait.100ms.", "wait.50ms."
    assert ratio(tiny, "flash_cut_year", "half cut", f"{before}blackout_s", f"{after}blackout_s") == pytest.approx(
        0.5, rel=0.1
    )
    assert ratio(tiny, "flash_cut_year", "half cut", f"{before}cuts", f"{after}cuts") == 1
    lost = ratio(
        tiny, "flash_cut_year", "half cut", f"{before}training_lost_fraction", f"{after}training_lost_fraction"
    )
    assert 0.5 < lost < 1.05, "a cut costs its time and what TCP adds, which stays"


@pytest.mark.soak  # Minutes.
def test_half_the_patience_halves_the_detection_of_silence_and_nothing_else(cluster: Metrics) -> None:
    def moved(name: str) -> float:
        return ratio(cluster, "goodput_year", "half patience", name)

    assert moved("failures.silent.detection_mean_s") == pytest.approx(0.5, abs=0.1)
    assert moved("failures.killed.detection_mean_s") == pytest.approx(1, abs=0.5)
    assert moved("failures.cut.stalled_mean_s") == pytest.approx(1, abs=0.01)
    for name in ("restore.restore_fraction", "write.write_fraction", "slow_nic.times_as_long"):
        assert moved(name) == pytest.approx(1, abs=0.01), name


def test_half_the_credits_move_no_load_and_make_no_stall_longer_than_full_buffers_explain(tiny: Metrics) -> None:
    """The longest of a few stalls waits until one to four full buffers have left: with half the size an eighth to twice
    as long. How often it was four hangs on each packet."""
    assert 1 / 8 < ratio(tiny, "lossless_soak", "half credits", "longest_stall_s") < 2
    assert ratio(tiny, "lossless_soak", "half credits", "flows") == 1
    assert ratio(tiny, "lossless_soak", "half credits", "bytes") == pytest.approx(1, rel=BESIDE_OTHERS)
    for play in ("lossless_soak", "lossless_soak half credits"):
        assert tiny[play]["drops"] == tiny[play]["leaked_bytes"] == tiny[play]["unexplained_stalls"] == 0


# Several NICs -------------------------------------------------------------------------------------------------------


def test_an_allreduce_goes_on_over_three_of_four_planes(planes: Metrics) -> None:
    assert planes["nic_failover"]["whole.busbw_Bps"] * 8 == pytest.approx(40e6, rel=0.05)
    assert planes["nic_failover"]["cut.left_fraction"] == pytest.approx(0.75, abs=0.03)


def test_half_the_patience_halves_the_time_without_steps_and_moves_no_bandwidth(planes: Metrics) -> None:
    assert ratio(planes, "nic_failover", "half patience", "cut.again_after_s") == pytest.approx(0.5, rel=0.2)
    for name in ("whole.busbw_Bps", "cut.left_fraction"):
        assert ratio(planes, "nic_failover", "half patience", name) == pytest.approx(1, rel=NEAR), name


def test_half_the_link_of_a_nic_halves_the_flows_over_it_and_no_other_of_a_permutation(planes: Metrics) -> None:
    """Each of 16 NICs sends one flow and receives one; the two of this NIC have half."""
    assert planes["traffic_patterns"]["permutation_static.share_least_fraction"] > 0.9
    least, median = (
        ratio(planes, "traffic_patterns", "half link", f"permutation_static.share_{which}_fraction")
        for which in ("least", "p50")
    )
    assert least == pytest.approx(0.5, rel=0.1)
    assert median == pytest.approx(1, rel=NEAR)
    for name in ("uplink_flows_mean", "uplink_flows_most", "uplinks_idle_fraction", "theory_nics_used_fraction"):
        assert ratio(planes, "traffic_patterns", "half link", f"permutation_static.{name}") == 1, name


# Incasts -------------------------------------------------------------------------------------------------------------


def test_half_the_senders_at_a_time_shrink_the_queue_and_no_bandwidth(storage: Metrics) -> None:
    """One of those who send passes at once, the others wait: of two one, of four three. A phase of 1 ms spreads."""
    before, after = (f"lossless_lanes_line_n8_rts_{limit}." for limit in (4, 2))

    def moved(name: str) -> float:
        return ratio(storage, "incast", "half limit", before + name, after + name)

    assert 0.2 < moved("queue_mean_bytes") < 0.75
    assert moved("read.bandwidth_Bps") == pytest.approx(1, rel=IN_READS)
    assert moved("read.p50_s") == pytest.approx(1, rel=2 * IN_READS), "a read waits for leave instead"


def test_one_read_at_a_time_leaves_readers_idle_between_reads(storage: Metrics) -> None:
    """The four readers' NICs are what limits eight servers. One read at a time leaves each idle meanwhile: incasts with
    reads of 256 KiB keep 0.71 of their bandwidth so (docs/results/incast.md), so 4.4 us pass beside the 10.7 us of the
    data. Here samples lie across two chunks as a rule, each read half as much: 5.3 us of 9.7 are left."""
    before, after = (f"lossless_lanes_rts_{limit}." for limit in (8, 1))

    def moved(name: str) -> float:
        return ratio(storage, "storage_throughput", "one at a time", before + name, after + name)

    assert moved("read.bandwidth_Bps") == pytest.approx(5.3 / 9.7, rel=2 * IN_READS)
    assert moved("use.leaf_to_compute_node.mean") == pytest.approx(5.3 / 9.7, rel=2 * IN_READS)
    assert storage["storage_throughput"][before + "use.leaf_to_compute_node.mean"] > 0.9
    assert storage["storage_throughput"][before + "read.readers"] == 4


def test_half_a_clients_link_halves_what_it_reads_of_its_cache(storage: Metrics) -> None:
    name = "peak_8_8.kv_cache.read.share_of_nics"
    assert storage["kv_cache"][name] > 0.9
    assert ratio(storage, "kv_cache", "half link", name) == pytest.approx(0.5, rel=NEAR)


def test_with_half_a_link_its_reader_waits_twice_as_long_and_the_others_as_before(storage: Metrics) -> None:
    """The readers' NICs are what limits eight servers. An epoch is over once the slowest has read it."""
    phase = "lossless_lanes_0us_shuffled_ahead_2.loader"
    for name in ("epoch_s", "worst_waiting_s"):
        assert ratio(storage, "data_loader", "half link", f"{phase}.{name}") == pytest.approx(2, rel=0.15), name
    assert ratio(storage, "data_loader", "half link", f"{phase}.waiting_s") == pytest.approx(5 / 4, rel=0.15)


def test_with_half_a_link_its_node_restores_half_as_fast_and_the_others_as_before(storage: Metrics) -> None:
    phase = "lossless_lanes_own_rts_off.restore"
    assert ratio(storage, "checkpoint_restore", "half link", f"{phase}.all_s") == pytest.approx(2, rel=0.15)
    assert ratio(storage, "checkpoint_restore", "half link", f"{phase}.slowest_Bps") == pytest.approx(0.5, rel=0.15)
    others = ratio(storage, "checkpoint_restore", "half link", f"{phase}.median_s")
    assert others == pytest.approx(1, rel=0.25), "which reads meet is chance"


def test_with_half_a_link_its_node_writes_and_restores_by_that_much_longer(storage: Metrics) -> None:
    """The writers' NICs are the limit; beside that a file is made and closed, which takes no longer."""
    size_bytes, nic_Bps = 4 << 20, 24.6e9  # noqa: N806 - bytes, not bits
    phase = "alone_4_nodes_1_replicas.checkpoints"
    for name, moved in (
        (f"{phase}.checkpoint.slowest_Bps", size_bytes),
        (f"{phase}.restore_2.slowest_Bps", 2 * size_bytes),
    ):
        before_s = moved / storage["checkpoints"][name]
        expected = before_s / (before_s + moved / nic_Bps)
        assert ratio(storage, "checkpoints", "half link", name) == pytest.approx(expected, rel=0.15), name
    assert ratio(storage, "checkpoints", "half link", f"{phase}.checkpoint.node_Bps") == pytest.approx(1, rel=0.15)
    assert ratio(storage, "checkpoints", "half link", "beside_lossless_lanes.training.step_alone_s") > 1.01
    waiting = storage["checkpoints"]
    assert waiting["waiting.training.lost_s"] >= waiting["waiting.checkpoints.checkpoint.complete_s"]


def test_all_nodes_of_a_sort_wait_for_the_one_with_half_a_link(storage: Metrics) -> None:
    """With one replica eight storage nodes are half busy, and nodes' NICs are the limit, in both phases."""
    for name in ("apart_s", "sort_s"):
        assert 1.7 < ratio(storage, "graysort", "half link", f"storage_none.{name}") < 2.3, name


def test_half_of_hfreduces_share_moves_it_and_leaves_the_rest_to_storage(storage: Metrics) -> None:
    """Of two lanes in use HFReduce has 0.5 of 0.9, then 0.25 of 0.65; storage has the rest, and each all alone."""
    found = ratios(storage, "dcqcn_frontier", "half share", "line_lossless_lanes.")
    assert found["hfreduce.algbw_Bps"] == pytest.approx((0.25 / 0.65) / (0.5 / 0.9), rel=0.2)
    assert found["storage.read_Bps"] == pytest.approx((0.4 / 0.65) / (0.4 / 0.9), rel=0.2)
    for alone in ("hfreduce_alone.hfreduce.algbw_Bps", "storage_alone.storage.read_Bps"):
        assert ratio(storage, "dcqcn_frontier", "half share", alone) == pytest.approx(1, rel=BESIDE_OTHERS)


def test_with_dcqcn_half_of_hfreduces_share_moves_it_less(storage: Metrics) -> None:
    """Senders that DCQCN has cut do not fill their lane's share, and the other lane borrows what they leave.

    With seeds 2 to 5 and phases of 4 ms HFReduce moves by 0.74 to 0.79 where shares alone give 0.69, storage by 1.19 to
    1.26 where they give 1.44. The phases of these plays, half as long, spread from 0.59 to 0.79 and from 1.19 to 1.32.
    """
    found = ratios(storage, "dcqcn_frontier", "half share", "dcqcn_paper_t1_i1_lossless_lanes.")
    assert 0.5 < found["hfreduce.algbw_Bps"] < 0.9
    assert 1.1 < found["storage.read_Bps"] < 1.5


def test_half_as_much_of_an_incast_ends_in_half_the_time_and_bystanders_apart_do_not_notice(storage: Metrics) -> None:
    phase = "lossless_static_incast"
    assert ratio(storage, "routing_incast", "half request", f"{phase}.incast.p50_s") == pytest.approx(0.5, rel=0.1)
    for name in (f"{phase}.apart.p50_s", f"{phase}.apart.slowdown", "lossless_static_alone.apart.p50_s"):
        assert ratio(storage, "routing_incast", "half request", name) == pytest.approx(1, rel=0.01), name


# Users' jobs ---------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_twice_the_saving_doubles_what_a_suspend_takes_and_no_start(cluster: Metrics) -> None:
    """A save of 2 s, then one of 4: what comes to that is how soon an agent sees that a rank has ended."""
    base, changed = (cluster[f"time_sharing{name}"] for name in ("", " twice the saving"))
    saves = [found["measured.suspend_save_s"] for found in (base, changed)]
    assert saves == pytest.approx([2, 4], abs=0.2)
    assert saves[1] - saves[0] == pytest.approx(2, abs=0.01)
    assert changed["measured.start_s"] == pytest.approx(base["measured.start_s"], abs=0.01)
    for found, policy in ((base, "hai"), (changed, "hai_backfill")):
        assert found[f"{policy}.suspends"] > 0
        assert found[f"{policy}.composed.same_fraction"] == 1


# Metadata ------------------------------------------------------------------------------------------------------------


def test_half_the_latencies_of_the_store_double_what_metadata_servers_do(storage: Metrics) -> None:
    """A look is a transaction of a version and two reads in turn, of the name and of the inode: 30 ms."""
    for step in ("create", "stat", "read", "remove"):
        name = f"slow_4.files.file_{step}.operations_per_s"
        assert ratio(storage, "mdtest", "half latencies", name) == pytest.approx(2, rel=0.05), step
    looked = storage["mdtest"]["slow_4.files.file_stat.p50_s"]
    assert looked == pytest.approx(0.03, rel=0.05)


# All -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "world", [pytest.param(world, marks=[pytest.mark.soak] if world == "cluster" else []) for world in WORLDS]
)
def test_every_packet_of_every_play_is_accounted_for(world: str, request: pytest.FixtureRequest) -> None:
    found: Metrics = request.getfixturevalue(world)
    assert found.keys() == WORLDS[world].plays().keys()
    assert {play: metrics["unaccounted_packets"] for play, metrics in found.items()} == dict.fromkeys(found, 0)


def test_no_change_of_a_lossless_fabric_drops_a_packet(head_of_line: Metrics) -> None:
    plays = [play for play in head_of_line if play.startswith("head_of_line")]
    for play, queueing in product(plays, QUEUEINGS):
        assert head_of_line[play][f"{queueing}_1.drops_packets"] == 0, play


EXPERIMENTS_ELSEWHERE = {
    "hfreduce_vs_nccl": "test_nodes.py",
    "storage_failure": "test_storage_failure.py",
    "resync": "test_returns.py",
    "fencing": "test_returns.py",
    "training_scaling": "test_training_experiments.py",
    "expert_parallel": "test_training_experiments.py",
    "libraries": "test_libraries.py",
    "spraying": "test_spraying.py",
    "queue_pairs": "test_rdma_recovery.py",
    "lossy_rdma": "test_rdma_recovery.py",
    "pfc_storm": "test_pfc_storm.py",
}


def test_each_experiment_has_such_a_test() -> None:
    played = {experiment for world in WORLDS.values() for experiment in world.played}
    assert played | EXPERIMENTS_ELSEWHERE.keys() == set(EXPERIMENTS)
