"""What a run in a guest sees of the host's files, and what several guests can play."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from app.commands.run import spec_of
from app.commands.top_parser import parser_for
from fabric.emulation.sflow import SflowExport
from fabric.errors import ConfigError, UsageError
from fabric.world.engines import engine_named
from fabric.world.programs import verbs
from runs.launching.order import Order
from runs.launching.spec import RunSpec, prepare, require_several_guests
from runs.registry import EXPERIMENTS, resolve, restored

pytestmark = pytest.mark.usefixtures("two_cores")
FOLDER = Path(__file__).parents[3] / "experiments" / "isolation"
TOPOLOGIES = Path(__file__).parents[3] / "topologies"


@pytest.fixture
def hidden() -> Iterator[Path]:
    """Yield a directory in ``/tmp``, of which a guest has its own."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


def test_a_config_and_the_topology_that_it_names_need_not_be_there_in_the_guest(hidden: Path, tmp_path: Path) -> None:
    """The guest is given what they say."""
    for name in ("configs", "topologies", "others"):
        (hidden / name).mkdir()
    config, named, set_ = hidden / "configs/mine.yaml", hidden / "topologies/mine.yaml", hidden / "others/mine.yaml"
    for topology in (named, set_):
        shutil.copyfile(TOPOLOGIES / "fire_flyer_2_small.yaml", topology)
    text = (FOLDER / "isolation.yaml").read_text()
    config.write_text(text.replace("topology: fire_flyer_2_small", f"topology: {named}"))
    asked = RunSpec(str(config), engine="virtual", overrides=[f"topology={set_}"], directory=tmp_path / "result")
    prepared = prepare(asked, [])
    assert not {config.parent, named.parent, set_.parent} & set(prepared.guest.keep)
    shutil.rmtree(hidden / "configs")
    shutil.rmtree(hidden / "topologies")
    shutil.rmtree(hidden / "others")
    order = Order.decoded(prepared.order.encoded())
    assert restored(order.experiment, None, order.config).fabric == prepared.resolved.fabric


POINTS = str(Path(__file__).parents[3] / "experiments" / "hfreduce_vs_nccl" / "points.yaml")
CUT = "failures=[{at: 1 ms, switch: z0s00, for: 1 ms}]"


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


def test_two_guests_have_half_of_the_memory_each_and_the_delay_between_zones(tmp_path: Path) -> None:
    spec = RunSpec(POINTS, engine="virtual", guests=2, directory=tmp_path / "result")
    guest = prepare(spec, []).guest
    assert (guest.count, guest.lookahead_ns) == (2, 1000)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"guests": 0}, r"--guests 0: must be 1 to 8"),
        ({"guests": 9}, r"--guests 9: must be 1 to 8"),
        ({"guests": 2, "engine": "namespace", "experiment": "isolation"}, r"--guests 2: the engine namespace has no"),
        ({"guests": 2, "experiment": "isolation"}, r"--guests 2: the link .* has no delay.* topology.link_delay"),
        ({"guests": 2, "captures": ("z0l00:1=a.pcap",)}, r"--guests 2: not with --capture; omit one of the two"),
        ({"guests": 2, "overrides": ["routing.policy=adaptive"]}, r"--guests 2: not with routing adaptive"),
        ({"guests": 2, "overrides": [CUT]}, r"--guests 2: not with failures"),
    ],
)
def test_what_several_guests_cannot_play_is_refused_before_anything_starts(
    asked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"experiment": POINTS, "engine": "virtual", "directory": tmp_path / "result"}
    with pytest.raises(UsageError, match=words):
        prepare(RunSpec(**settings | asked), [])


@pytest.mark.parametrize(
    ("engine", "lacking", "words"),
    [
        ("namespace", None, "verbs: no RDMA devices here: Linux's soft RoCE works in one network namespace"),
        ("virtual", "no kernel", "verbs: no RDMA devices here: no kernel"),
        ("virtual", None, "verbs: no job of this run is a user's program"),
    ],
)
def test_rdma_that_hosts_cannot_have_or_nobody_uses_is_refused_before_anything_starts(
    engine: Any, lacking: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "virtual":
        monkeypatch.setattr(verbs, "why_not", lambda _: lacking)
    with pytest.raises(UsageError, match=words):
        prepare(RunSpec("isolation", {"verbs": True}, engine=engine, directory=tmp_path / "result"), [])


def test_the_files_that_a_fabric_is_built_of_are_there_too_and_those_in_comments_are_not(
    hidden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of node is read again where the fabric is built again, also by a relative path and a link."""
    for name in ("here", "topologies", "nodes", "linked", "unused"):
        (hidden / name).mkdir()
    monkeypatch.chdir(hidden / "here")
    shutil.copyfile(TOPOLOGIES / "nodes/fire_flyer_2.yaml", hidden / "linked/real.yaml")
    (hidden / "nodes/mine.yaml").symlink_to(hidden / "linked/real.yaml")
    written = (TOPOLOGIES / "fire_flyer_2_nodes.yaml").read_text()
    (hidden / "topologies/mine.yaml").write_text(written.replace("node: fire_flyer_2", "node: ../nodes/mine.yaml"))
    config = tmp_path / "mine.yaml"
    config.write_text(f"# as in {hidden}/unused/x.yaml\n" + (FOLDER / "isolation.yaml").read_text())
    overrides = ["topology=../topologies/mine.yaml", "queueings=[lossless]", "receive_window=1MiB"]
    asked = RunSpec(str(config), engine="virtual", overrides=overrides, directory=tmp_path / "result")
    first = prepare(asked, [])
    for prepared in (first, prepare(asked, [], first.resolved.built)):
        keep = {path.resolve() for path in prepared.guest.keep}
        assert {hidden / name for name in ("nodes", "linked")} <= keep
        assert not keep & {hidden, hidden / "unused", hidden / "topologies"}


CUTTING = (
    *("fencing", "flash_cut_year", "goodput_year", "link_flap", "lossless_soak", "nic_failover", "resync"),
    *("lossy_rdma", "pfc_storm", "spraying", "storage_failure"),
)
"""Experiments that cut links by themselves."""


@pytest.mark.parametrize("name", CUTTING)
def test_experiments_that_cut_links_are_refused_to_several_guests(name: str) -> None:
    """A link between guests has no other end that loses its carrier."""
    spec = RunSpec(name, {"topology.link_delay": "1 us"}, engine="virtual", guests=2)
    with pytest.raises(UsageError, match="--guests 2: not with failures of links; omit one of the two"):
        require_several_guests(spec, engine_named("virtual"), resolve(name, spec.all_overrides)[1])


MAKES_FAILURES = re.compile(r"import Failure,|\bfailure_line\(")


def test_every_experiment_that_makes_failures_says_so() -> None:
    makes = {name for name in EXPERIMENTS if any(MAKES_FAILURES.search(text) for text in sources(name))}
    says = {name for name in EXPERIMENTS if resolve(name, [])[1].cuts_links}
    assert makes == says == set(CUTTING)


def sources(name: str) -> list[str]:
    return [path.read_text() for path in EXPERIMENTS[name].folder.glob("*.py")]


EVERY_FIELD = RunSpec(
    "isolation",
    settings={"alone_time": 5e-05},
    overrides=("nccl_nodes=4", "rates_from=a b"),
    seed=7,
    engine="virtual",
    rate="5 Mbit/s",
    memory_bytes=2 << 30,
    directory=Path("/r/mine"),
    captures=("z0l00:1=a.pcap", "z0l01:1=b.pcap"),
    draws=False,
    guests=2,
)


@pytest.mark.parametrize("field", [field.name for field in fields(RunSpec) if field.name != "sflow"])
def test_a_command_line_has_every_field_of_a_run(field: str) -> None:
    """A field that the words lack would be another run on another machine."""
    default = RunSpec("head_of_line", engine="namespace")
    one = replace(default, **{field: getattr(EVERY_FIELD, field)})
    for spec in (one, EVERY_FIELD):
        words = ["run", *spec.words()]
        again = spec_of(spec.experiment, parser_for(words).parse_args(words))
        assert again.all_overrides == spec.all_overrides
        plain: dict[str, Any] = {"settings": {}, "overrides": (), "captures": tuple(again.captures)}
        assert replace(again, **plain) == replace(spec, settings={}, overrides=())
    assert one.words() != default.words()


def test_a_run_whose_switches_export_to_a_file_has_no_command_line() -> None:
    with pytest.raises(UsageError, match=r"^sflow: to a\.pcap, which no command line can name; omit it$"):
        replace(EVERY_FIELD, sflow=SflowExport("a.pcap")).words()


def test_settings_from_python_are_what_they_are() -> None:
    """A time without a point in its number, and characters beyond the first 65,536."""
    spec = RunSpec("isolation", {"alone_time": 5e-05, "rates_from": "\U0001f600", "nccl_nodes": 4})
    config = resolve("isolation", spec.all_overrides)[1]
    assert (config.model_dump()["alone_time"], config.rates_from) == (5e-05, "\U0001f600")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {"nccl_nodes": 99999}}, "isolation: nccl_nodes: Input should be"),
        ({"settings": {"nccl_nodes": 99999}, "overrides": ["alone_time=2s"]}, "isolation: nccl_nodes: Input"),
        ({"settings": {"alone_time": 2}, "overrides": ["nccl_nodes=99999"]}, "--set nccl_nodes=99999: nccl_nodes: In"),
        ({"settings": {"alone_time": 2}, "seed": -1}, "seed -1: seed: Input should be greater"),
    ],
)
def test_a_fault_is_named_by_what_said_it(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        prepare(RunSpec("isolation", engine="virtual", **changes), [])
    assert str(raised.value).startswith(named)
