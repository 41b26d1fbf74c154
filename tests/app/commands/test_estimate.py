"""``fabric estimate`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.commands.estimate import NOTE

SMALL = "fat_tree_k4"
PLAYED = ("--pattern", "permutation")
JOB = {"pattern": "ring", "size": "1 MiB"}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["estimate", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return why; argparse ends the process, and others return 2."""
    try:
        code = main(["estimate", *words])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    return " ".join(capsys.readouterr().err.split())


def jobs_file(folder: Path, *jobs: dict[str, Any]) -> str:
    path = folder / "jobs.yaml"
    path.write_text(yaml.safe_dump(list(jobs)))
    return str(path)


def test_tables_say_that_they_are_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(said(capsys, SMALL, *PLAYED).split())
    assert "Estimate of completion times: fat_tree_k4, static routes, lanes" in text
    assert "Estimate of the 10 busiest of 90 ports in use" in text
    assert text.count("(estimate)") == 5
    assert "an estimate without packets" in NOTE
    assert text.endswith(f" {NOTE}")


def test_json_has_the_numbers_of_jobs_and_ports(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, SMALL, "--pattern", "incast", "--size", "2MB", "--level", "storage", "--json"))
    assert found["kind"] == "estimate"
    assert "no verdict" in found["note"]
    kept = ("topology", "hosts", "routing", "queueing", "seed")
    assert [found[key] for key in kept] == [SMALL, 16, "static", "lanes", 1]
    (job,) = found["jobs"]
    assert set(job) == {
        "name", "plays", "service_level", "lane", "flows", "estimated_median_s", "estimated_slowest_s",
        "estimated_all_ended_s", "slowest",
    }  # fmt: skip
    assert (job["flows"], job["lane"]) == (15, "storage")
    assert job["estimated_slowest_s"] == pytest.approx(15 * 2e6 * 8 / 100e9, rel=0.05)
    assert job["slowest"]["destination"] == "z0h000"
    assert len(found["busiest_ports"]) == 10
    busiest = found["busiest_ports"][0]
    assert busiest == {
        "port": "z0l00:1", "to": "z0h000:0", "rate_bps": 10**11, "flows": 15,
        "estimated_utilisation_fraction": pytest.approx(1.0),
    }  # fmt: skip


def test_jobs_of_a_file_play_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = {"name": "train", **JOB, "hosts": 8, "service_level": "nccl"}
    read = {"name": "read", "pattern": "incast", "size": "4 MiB", "hosts": 8, "first": 8, "service_level": "storage"}
    found = json.loads(said(capsys, SMALL, "--jobs", jobs_file(tmp_path, train, read), "--json"))
    assert [(job["name"], job["flows"], job["lane"]) for job in found["jobs"]] == [
        ("train", 8, "nccl"),
        ("read", 7, "storage"),
    ]
    assert found["jobs"][1]["slowest"]["destination"] == "z0h008"


def test_shares_of_lanes_are_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A small storage flow beside a long one of NCCL, to one host: the more share, the sooner."""
    to_one = {"pattern": "incast", "size": "1 MiB", "service_level": "storage", "hosts": ["z0h000", "z0h001"]}
    beside = {**to_one, "hosts": ["z0h000", "z0h002"], "service_level": "nccl", "size": "100 MiB"}
    file = jobs_file(tmp_path, to_one, beside)
    settings = ["--set", "queues.lanes.storage.share=0.10", "--set", "queues.lanes.nccl.share=0.40"]
    usual, less = (json.loads(said(capsys, SMALL, "--jobs", file, "--json", *more)) for more in ([], settings))
    took = [found["jobs"][0]["estimated_slowest_s"] for found in (usual, less)]
    assert took[0] == pytest.approx(2**20 * 8 / 100e9 * (0.35 + 0.15) / 0.35, rel=0.1)
    assert took[1] == pytest.approx(2**20 * 8 / 100e9 * (0.10 + 0.40) / 0.10, rel=0.1)


def test_a_topology_may_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    words = [SMALL, *PLAYED, "--set", "topology.nic_rate=10 Gbit/s", "--json"]
    assert json.loads(said(capsys, *words))["busiest_ports"][0]["rate_bps"] == 10**10


def test_collisions_are_counted_without_flows(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, SMALL, "--collisions", "--json"))
    assert found["title"].startswith("fat_tree_k4: estimate by 1250 random permutations")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "one of the arguments --pattern --matrix --jobs --collisions is required"),
        (["--pattern", "perm"], "unknown value 'perm'; did you mean"),
        (["--pattern", "tree"], "choose from permutation, all_to_all, incast, ring"),
        (["--pattern", "ring", "--hosts", "1"], "ring: has 1 host(s), and needs 2"),
        (["--pattern", "ring", "--hosts", "0"], "--hosts 0: must be 1 or more"),
        (["--pattern", "ring", "--hosts", "17"], "hosts: 17 from number 0 on: fat_tree_k4 has 16 compute nodes"),
        ([*PLAYED, "--size", "0B"], "--size 0: must be 1 or more"),
        ([*PLAYED, "--size", "much"], "--size"),
        ([*PLAYED, "--peers", "3"], "peers: 3: is for all_to_all, and this is permutation; omit it"),
        (["--pattern", "all_to_all", "--peers", "16"], "--peers 16: a NIC has 15 others in its network"),
        ([*PLAYED, "--routing", "adaptive"], "unknown value 'adaptive'; choose from static, ecmp"),
        ([*PLAYED, "--level", "mine"], "unknown value 'mine'"),
        ([*PLAYED, "--seed", "-1"], "--seed -1: must be 0 or more"),
        ([*PLAYED, "--set", "queues.lanes.storage.share=2"], "queues.lanes.storage.share=2"),
        (["--matrix", "nowhere.cm"], "nowhere.cm: cannot be read"),
        (["--matrix", "nowhere.cm", "--size", "1MB"], "--size: does not go with --matrix; omit one of the two"),
        (["--jobs", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--jobs", "nowhere.yaml", "--level", "nccl"], "--level: does not go with --jobs"),
        (["--collisions", "--routing", "ecmp"], "--routing: does not go with --collisions"),
    ],
)
def test_what_cannot_be_estimated_is_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why in refused(capsys, SMALL, *words)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"pattern": "ring"}, "size"),
        ({**JOB, "size": 0}, "size: Input should be greater than or equal to 1 (got 0)"),
        ({**JOB, "pattern": "tree"}, "pattern"),
        ({**JOB, "host": 3}, "hosts"),
        ({**JOB, "hosts": ["z0h000", "z0h099"]}, "hosts: z0h099: is not a compute node of fat_tree_k4; they run from"),
        ({**JOB, "hosts": ["z0h000", "z0l00"]}, "hosts: z0l00: is not a compute node"),
        ({**JOB, "hosts": ["z0h000", "z0h000"]}, "hosts: z0h000: is there 2 times; name it once"),
        ({**JOB, "hosts": ["z0h000", "z0h001"], "first": 2}, "first: 2: is for hosts that are a number"),
        ({**JOB, "hosts": 9, "first": 8}, "hosts: 9 from number 8 on: fat_tree_k4 has 16 compute nodes"),
        ({**JOB, "first": 16}, "hosts: 1 from number 16 on: fat_tree_k4 has 16 compute nodes"),
        ({**JOB, "service_level": "gold"}, "service_level: unknown level 'gold'; use other, storage, nccl"),
    ],
)
def test_wrong_jobs_are_refused(
    job: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(capsys, SMALL, "--jobs", jobs_file(tmp_path, job))


def test_wrong_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    for text, option, why in [
        ("pattern: ring", "--jobs", "holds a dict; expected a list of jobs"),
        ("[]", "--jobs", "jobs"),
        ("- {name: a, pattern: ring, size: 1}\n- {name: a, pattern: ring, size: 1}", "--jobs", "2 jobs are called a"),
        (
            "Nodes 99\nConnections 1\n0->98 id 1 start 0 size 5",
            "--matrix",
            "Nodes 99: fat_tree_k4 has 16 compute nodes",
        ),
        ("Nodes 4\nConnections 1\n0->4 id 1 start 0 size 5", "--matrix", "line 3: host 4 does not exist"),
        ("Nodes 4\nConnections 1\n0->3 id 1 start 0 size 0", "--matrix", "size 0: must be a whole number, 1 or more"),
    ]:
        file.write_text(text)
        assert why in refused(capsys, SMALL, option, str(file))
