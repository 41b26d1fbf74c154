"""The tutorials, as a reader follows them: files are saved, commands typed, and what the page promises is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from experiments import load
from tests.virtual.command import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_TIMEOUT_S = 900

pytestmark = pytest.mark.guest


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each code block."""
    for found in FENCE.finditer((TUTORIALS / page).read_text()):
        yield found[1], found[2]


def followed(page: str, here: Path) -> str:
    """Save the page's files and run its commands in their order; return all that they printed."""
    printed = ""
    for language, text in blocks(page):
        name = re.match(r"# ([\w.]+)\n", text)
        if name is not None:
            (here / name[1]).write_text(text)
            if language == "python" and name[1] in RUN_DIRECTLY:
                printed += output([sys.executable, name[1]], here)
        elif language == "sh":
            for line in text.splitlines():
                words = shlex.split(line, comments=True)
                assert words[0] == "fabric", line
                printed += output([sys.executable, "-m", "app.cli", *words[1:], *added_to(line)], here)
    return printed


RUN_DIRECTLY = ("read.py", "steps.py", "study.py")
"""Programs that the reader starts by themselves, not on hosts."""
ADDED = {
    "--out shared": ("--no-figures", "--set", "together_time=4 s"),
    "--out lanes": ("--no-figures",),
    "--out wait": ("--no-figures",),
    "--out repeats": ("--no-figures", "--set", "phase_time=0.5 s", "--set", "topology.compute=4"),
}
"""What makes a command cheaper, by a part of its line. A page's first run is left as it is, and draws its figures; of
repeats nothing is promised but that they run."""


def added_to(line: str) -> tuple[str, ...]:
    return next((words for part, words in ADDED.items() if part in line), ())


def output(command: list[str], here: Path) -> str:
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(Path.home()),
        "FABRIC_ENGINE": "virtual",  # The reader is not root.
    }
    done = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.soak  # Three runs; what it says is tried in parts elsewhere.
def test_own_program(tmp_path: Path) -> None:
    printed = followed("own_program.md", tmp_path)
    (promised,) = [text.strip() for language, text in blocks("own_program.md") if language == "text"]
    assert promised in printed
    assert printed.count("faithful") >= 3, "two runs, and what Python read"
    assert "received" in (tmp_path / "mine" / "logs" / "programs" / "mine-z1h000.log").read_text()
    assert (tmp_path / "mine" / "report.html").exists()


@pytest.mark.soak  # Four runs; shapes and studies are tried by tests of their own.
def test_network_engineer(tmp_path: Path) -> None:
    printed = followed("network_engineer.md", tmp_path)
    assert "pod.yaml: good; 4 hosts, 4 switches" in printed
    assert "time=0.004 ms" in printed
    runs = pd.read_csv(tmp_path / "results" / "uplinks" / "runs.csv")
    assert list(runs["verdict"]) == ["faithful"] * 3
    told = re.findall(r"\| (\d+) Gbit/s \| ([\d.]+) GB/s \|", (TUTORIALS / "network_engineer.md").read_text())
    measured = runs["together.train.algbw_Bps"] / 1e9
    assert [float(speed) for _, speed in told] == pytest.approx(list(measured), abs=0.005)
    assert (tmp_path / "results" / "uplinks" / "figures" / "allreduce.png").exists()


@pytest.mark.soak  # Two runs; jobs of training beside storage are tried by tests of their own.
def test_ml_researcher(tmp_path: Path) -> None:
    printed = followed("ml_researcher.md", tmp_path)
    (promised,) = [text for language, text in blocks("ml_researcher.md") if language == "text"]
    assert promised in printed
    assert (tmp_path / "steps.png").exists()


@pytest.mark.soak  # Two runs; platforms whose nodes are lost are tried by tests of their own.
def test_operator(tmp_path: Path) -> None:
    printed = followed("operator.md", tmp_path)
    (promised,) = [text for language, text in blocks("operator.md") if language == "text"]
    assert " ".join(promised.split()) in " ".join(printed.split())
    assert {load(tmp_path / name).verdict["status"] for name in ("rehearsal", "wait")} == {"faithful"}
    assert (tmp_path / "rehearsal" / "figures" / "platform_day.png").exists()
    assert (tmp_path / "rehearsal" / "view.html").exists()


@pytest.mark.soak  # Five runs; what the page makes is tried in tests/experiments/test_own_experiment.py, too.
def test_own_experiment(tmp_path: Path) -> None:
    printed = followed("own_experiment.md", tmp_path)
    assert printed.count("faithful") >= 5, "two runs, the repeats, and what Python read twice"
    repeats = pd.read_csv(tmp_path / "repeats" / "runs.csv")
    assert list(repeats["seed"]) == [1, 2]
    assert repeats["load_0p5.hfreduce.step_s"].nunique() == 2, "another seed draws other flows"
    slower = {name: slowdown_in(tmp_path / name) for name in ("first", "lanes")}
    assert slower["first"] > 2, "in a shared queue, as the example's answer says"
    assert slower["lanes"] < 1.5, "what the page says of lanes"


def slowdown_in(directory: Path) -> float:
    steps = load(directory).metrics.set_index("phase")["value"]
    return float(steps.drop("load_0").max() / steps["load_0"])
