"""What every experiment's config has, and how names, files and settings become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from runs.config import RunConfig, split_topology_setting, with_whole_topology
from runs.registry import EXPERIMENTS, resolve
from tests.fakes import AT_20_MBIT
from topologies.load import fabric_of, read_topology
from topologies.rates import at_nic_rate

SMALL = read_topology("fire_flyer_2_small")
ISOLATION = EXPERIMENTS["isolation"].file


def faults_of(**data: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        checked(RunConfig, {"experiment": "isolation", "topology": SMALL, **data}, "test")
    return list(refused.value.faults)


# Every experiment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"seed": -1}, "seed: Input should be greater than or equal to 0 (got -1)"),
        ({"seed": 2**32}, "seed: Input should be less than 4294967296 (got 4294967296)"),
        ({"seed": "one"}, "seed: Input should be a valid integer (got 'one')"),
        ({"sample_period": "0 s"}, "sample_period: Input should be greater than 0 (got '0 s')"),
        ({"sample_period": "1 s"}, "sample_period: Input should be less than or equal to 0.05 (got '1 s')"),
        ({"sead": 1}, "sead: unknown key; did you mean 'seed'?"),
        (
            {"congestion_control": {"hfreduc": "bbr"}},
            "congestion_control: hfreduc: unknown key; did you mean 'hfreduce'?",
        ),
        (
            {"congestion_control": {"zzz": "bbr"}},
            "congestion_control: zzz: unknown key; valid here: hfreduce, nccl, other, storage",
        ),
        (
            {"queues": {"lanes": {"a": {"share": 2, "service_levels": []}}}},
            "queues.lanes.a.share: Input should be less than or equal to 1 (got 2)",
        ),
    ],
)
def test_a_fault_of_a_config_is_told_with_its_path(data: dict[str, Any], fault: str) -> None:
    assert faults_of(**data) == [fault]


def test_a_receive_window_that_cannot_fill_a_link_is_refused() -> None:
    topology = read_topology("fire_flyer_2_small", AT_20_MBIT)
    small = checked(RunConfig, {"experiment": "isolation", "topology": topology, "receive_window": "32 KiB"}, "test")
    (fault,) = small.faults(small.fabric())
    assert fault == (
        "receive_window: 32768 B is less than what a NIC sends in a round trip of 13.5 ms, 33712 B; raise it"
    )
    enough = small.model_copy(update={"receive_window": 64 * 1024})
    assert list(enough.faults(enough.fabric())) == []


def test_congestion_control_is_cubic_for_all_data_unless_set() -> None:
    config = checked(RunConfig, {"experiment": "isolation", "topology": SMALL}, "test")
    assert config.congestion_controls() == dict.fromkeys(DATA_LEVELS, "cubic")


def test_congestion_control_is_set_by_kind_of_traffic() -> None:
    data = {"experiment": "isolation", "topology": SMALL, "congestion_control": {"storage": "bbr", "nccl": "dctcp"}}
    assert checked(RunConfig, data, "test").congestion_controls() == {
        ServiceLevel.STORAGE: "bbr",
        ServiceLevel.NCCL: "dctcp",
    }


def test_a_topologys_name_is_replaced_by_what_its_file_says() -> None:
    assert with_whole_topology({"seed": 1, "topology": "fire_flyer_2_small"}, "test") == {"seed": 1, "topology": SMALL}


def test_a_topology_that_is_there_already_stays() -> None:
    assert with_whole_topology({"topology": {"name": "mine"}}, "test") == {"topology": {"name": "mine"}}


@pytest.mark.parametrize("topology", [None, 5, ["fire_flyer_2"]])
def test_a_topology_that_is_neither_is_refused(topology: object) -> None:
    with pytest.raises(ConfigError) as refused:
        with_whole_topology({"topology": topology}, "test.yaml")
    words = f"topology: {topology!r} is neither a topology's name, a path nor a mapping"
    assert str(refused.value) == f"test.yaml: {words}"


def test_the_setting_of_the_whole_topology_comes_before_those_of_its_keys() -> None:
    texts = ["topology.mtu=1500", "seed=3", "topology=fire_flyer_2", "topology.name=x"]
    assert split_topology_setting(texts) == (
        ["topology=fire_flyer_2"],
        ["topology.mtu=1500", "seed=3", "topology.name=x"],
    )


# From a name or a file to a config ------------------------------------------------------------------------------------


def write(path: Path, **data: Any) -> str:
    path.write_text(yaml.safe_dump({**yaml.safe_load(ISOLATION.read_text()), **data}))
    return str(path)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_has_a_file_of_defaults_that_is_good(name: str) -> None:
    experiment, config, *_ = resolve(name, [])
    assert experiment.name == config.experiment == name
    assert isinstance(config, experiment.load_config())
    assert config.fabric().hosts
    assert experiment.question.endswith("?")


def test_settings_reach_the_config_and_its_topology() -> None:
    settings = [
        "seed=7",
        "topology.compute=8",
        "nccl_nodes=4",
        "hfreduce.chunk=8 KiB",
        "queues.lanes.nccl.limit=64 KiB",
        "alone_time=1 s",
    ]
    config = resolve("isolation", settings).config
    found: Any = config
    assert (config.seed, found.alone_time, found.hfreduce.chunk) == (7, 1.0, 8192)
    assert config.queues.lanes["nccl"].limit == 64 * 1024
    assert len(config.fabric().computes) == 8


def test_another_topology_can_be_set_and_its_keys_too() -> None:
    config = resolve("isolation", ["topology.storage=90", "topology=fire_flyer_2"]).config
    assert config.fabric().name == "fire_flyer_2"
    assert len(config.fabric().storages) == 90


def test_a_topology_can_be_set_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "name": "tiny", "compute": 4}))
    config = resolve("isolation", [f"topology={path}", "nccl_nodes=2"]).config
    assert (config.fabric().name, len(config.fabric().computes)) == ("tiny", 4)


def test_a_resolved_config_can_be_run_again(tmp_path: Path) -> None:
    settings = ["seed=9", "topology.compute=8", "nccl_nodes=4", "queues.shared_limit=1 MiB"]
    _, config, resolved, _ = resolve("isolation", settings)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(resolved, sort_keys=False))
    _, again, resolved_again, _ = resolve(str(path), [])
    assert again == config
    assert resolved_again == resolved
    assert list(again.queues.lanes) == list(config.queues.lanes), "lanes are numbered as they are listed"


def test_what_does_not_fit_the_fabric_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("isolation", ["nccl_nodes=13", "queues.lanes.nccl.limit=4000", "topology.storage=0"])
    assert refused.value.faults == (
        "queues.lanes.nccl.limit: 4000 B is less than a full frame of 4214 B, which could never be sent; raise it",
        "nccl_nodes: 13 exceeds the 12 compute nodes of zone 0; only HFReduce crosses zones",
        "topology.storage: 0 storage nodes, but the experiment isolates storage; add some",
    )


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["hfreduce.chnk=1"], "hfreduce.chunk"),
        (["topology.leafs_per_zone=3"], "leaves_per_zone"),
        (["queues.lane=1"], "queues.lanes"),
    ],
)
def test_a_wrong_setting_names_the_nearest_key(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("isolation", overrides)
    (found,) = refused.value.faults
    assert found.endswith(f"unknown key; did you mean {fault!r}?")


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("isolatoin", [])
    others = "(fabric list shows all; a YAML file or the folder of an experiment will do, too)"
    assert str(refused.value) == f"unknown experiment 'isolatoin': did you mean 'isolation'? {others}"


@pytest.mark.parametrize("experiment", [None, "isolatoin", 3, ["isolation"]])
def test_a_file_of_no_known_experiment_is_refused(tmp_path: Path, experiment: object) -> None:
    path = write(tmp_path / "a.yaml", experiment=experiment)
    with pytest.raises(ConfigError) as refused:
        resolve(path, [])
    known = ", ".join(EXPERIMENTS)
    assert str(refused.value) == f"{path}: experiment: {experiment!r} does not exist; use one of {known}"


def test_faults_of_the_experiment_and_of_its_topology_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", seed=-1, topology={**SMALL, "compute": -4, "leafs_per_zone": 1})
    with pytest.raises(ConfigError) as refused:
        resolve(path, [])
    assert str(refused.value).splitlines() == [
        f"{path}: seed: Input should be greater than or equal to 0 (got -1)",
        f"{path}: topology: compute: Input should be greater than or equal to 0 (got -4)",
        f"{path}: topology: leafs_per_zone: unknown key; did you mean 'leaves_per_zone'?",
    ]


def test_a_topology_that_cannot_be_wired_is_told_before_anything_runs() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("isolation", ["topology.compute=100"])
    words = (
        "topology: zone 0: 50 compute, 4 storage NICs and 4 inter-zone links need 58 leaf ports, has 20; "
        "use fewer, or more leaves or switch_ports"
    )
    assert str(refused.value) == f"--set topology.compute=100: {words}"


def test_failures_are_checked_against_the_fabric_and_come_back_as_they_were_written() -> None:
    lines = "[{link: z0l00-z0s01, at: 1 s, for: 200 ms}, {switch: z0s09, at: 1}, {host: z0h000, at: 2, rate: 0.5}]"
    with pytest.raises(ConfigError, match=r"failures\.1\.switch: no switch 'z0s09'; they run from z0l00 to ix1"):
        resolve("isolation", [f"failures={lines}"])
    _, config, resolved, _ = resolve("isolation", [f"failures={lines.replace('z0s09', 'z0s02')}"])
    assert resolved["failures"][0]["for"] == 0.2
    schedule = config.failure_schedule(config.fabric())
    assert schedule is not None
    assert len(schedule.links) == 1 + 4 + 1
    without = resolve("isolation", []).config
    assert without.failure_schedule(without.fabric()) is None


def test_what_is_started_again_is_a_storage_service_that_somebody_lets_back() -> None:
    def faults(host: str, *settings: str) -> str:
        try:
            resolve("isolation", [f"failures=[{{process: {host}, at: 1, for: 1, effect: restart}}]", *settings])
        except ConfigError as error:
            return str(error)
        return ""

    assert "effect restart: nobody would let its service back; set cluster_manager" in faults("st001")
    managed = "storage.cluster_manager={heartbeat: 0.1, failed_after: 1}"
    assert faults("st001", managed) == ""
    assert "effect restart: the cluster manager is on st003, too, and is not started again" in faults("st003", managed)
    assert "effect restart: on z0h000 is no storage service, and only such are started again" in faults(
        "z0h000", managed
    )


@pytest.mark.parametrize(
    ("experiment", "settings"),
    [("isolation", ["routing.repair=fast_failover"]), ("link_flap", []), ("flash_cut_year", []), ("lossless_soak", [])],
)
def test_a_repair_that_is_not_made_for_a_topology_is_told_before_anything_runs(
    experiment: str, settings: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"routing\.repair: fast_failover: .* is not a zoned fat-tree"):
        resolve(experiment, ["topology=three_layer_1600_small", *settings])


def test_rates_that_the_kernel_has_no_class_for_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("isolation", ["topology.uplink_rate=1 bit/s"])
    assert "uplink_rate: 1 bit/s is less than 8 kbit/s, at which a frame takes a second; raise it" in str(caught.value)
    data = read_topology("fire_flyer_2_small")
    with pytest.raises(ConfigError, match=r"nic_rate: 7\.9 kbit/s is less than 8 kbit/s"):
        fabric_of(at_nic_rate(data, 7900), "test")
    lanes = "queues.lanes.storage.share"
    words = r"share: 1e-12 of the slowest link, .* is less than a byte per second; raise it to .* or more"
    with pytest.raises(ConfigError, match=rf"queues\.lanes\.storage\.{words}"):
        resolve("isolation", [f"{lanes}=1e-12"])
    assert resolve("isolation", [f"{lanes}=1e-12", "queueings=[shared]"])[1].queues.lanes["storage"].share == 1e-12


def test_a_failure_after_the_end_of_all_phases_is_refused() -> None:
    line = "failures=[{switch: z1l00, at: 400 s, for: 8 s}]"
    with pytest.raises(ConfigError, match=r"failures\.0\.at: 400 s is after the end of all phases") as caught:
        resolve("isolation", [line])
    assert "lower it, or raise together_time (16 s)" in str(caught.value)
    assert resolve("isolation", [line, "together_time=500 s"])[1].failures
    training = str(Path(__file__).parents[2] / "experiments" / "shared_cluster" / "training_on_storage.yaml")
    assert resolve(training, [line])[1].failures, "the platform's jobs have an end, which may be later"
    with pytest.raises(ConfigError, match=r"or raise phase_time"):
        resolve("protection", [line])


def test_a_pause_is_refused_where_queues_drop() -> None:
    pause = "failures=[{nic: 'z0h000:0', at: 0, for: 0.001, pause: true}]"
    with pytest.raises(
        ConfigError, match=r"failures\.0\.pause: queues of lanes drop, .* play lossless or lossless_lan"
    ):
        resolve("head_of_line", ["queueings=[lossless, lanes]", pause])
    resolve("head_of_line", ["queueings=[lossless]", pause])
