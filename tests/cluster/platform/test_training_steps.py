"""The program that trains: sums over ranks, checkpoints, going on with another number of ranks, mates that are gone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.platform.gang import LANE_BYTES, GangLostError, Place, gathered, of_lanes
from cluster.platform.training_saves import FolderSaves
from cluster.platform.training_steps import MOST_STEPS, SAMPLES, Trainer, Training, factor, main, pattern
from cluster.platform.user import FOLDER, RESTART_CODE, SAVED_FILE, SUSPENDED_CODE
from tests.ports import held_port
from tests.waiting import LIMIT_S

ROOT = Path(__file__).parents[3]


def places(world: int) -> list[Place]:
    master = ("127.0.0.1", held_port())
    return [Place(rank, world, master, job="7") for rank in range(world)]


def test_all_ranks_get_the_sum_of_each_lane() -> None:
    rng = random.Random(1)
    for world, lanes in ((1, 3), (2, 1), (3, 2), (4, 1000), (5, 40_000)):
        given = [[rng.randrange(1 << 60) for _ in range(lanes)] for _ in range(world)]

        def one(place: Place, mine: Sequence[int]) -> int:
            with gathered(place, 10, 10) as gang:
                return gang.allreduce(of_lanes(mine), len(mine))

        with ThreadPoolExecutor(world) as threads:
            found = list(threads.map(one, places(world), given))
        assert found == [of_lanes([sum(column) for column in zip(*given, strict=True)])] * world


def test_a_sum_says_who_is_gone_and_who_is_silent() -> None:
    def ends(place: Place) -> str:
        with gathered(place, 10, 10) as gang:
            if place.rank == 1:
                return ""
            with pytest.raises(GangLostError) as caught:
                gang.sums([1])
            return str(caught.value)

    has_said = threading.Event()

    def is_silent(place: Place) -> str:
        with gathered(place, 10, 0.2) as gang:
            if place.rank == 1:
                assert has_said.wait(30), "waited 30 s for what rank 0 says of its silence"
                return ""
            with pytest.raises(GangLostError) as caught:
                gang.sums([1])
            has_said.set()
            return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        assert next(threads.map(ends, places(2))).startswith(("rank 1 has ended", "a neighbour of rank 0 is gone"))
        assert next(threads.map(is_silent, places(2))) == "nothing comes from rank 1 for 0.2 s"
    for place, words in zip(places(3)[:2], ("not all have come", "cannot be reached"), strict=True):
        with pytest.raises(GangLostError, match=rf"rank {place.rank} of 3: not all ranks within 0.3 s: .*{words}"):
            gathered(place, 0.3, 1)


def state_after(steps: int, values: int) -> int:
    return pattern(values) * sum(factor(step, range(SAMPLES)) for step in range(1, steps + 1))


def train(folder: Path, world: int, steps: int, values: int = 100, nodes: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return step and state of each rank after a training on some nodes, each with a folder."""

    def one(place: Place) -> tuple[int, int]:
        own = folder / f"node{nodes[place.rank] if nodes else place.rank}"
        with FolderSaves(str(own), "7", 2) as saves, gathered(place, 10, 10) as gang:
            trainer = Trainer(Training(steps, 0.0, values, every=4), gang, saves)
            trainer.restore()
            assert trainer.train()
            return trainer.state.step, trainer.state.value

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(one, places(world)))


def test_another_number_of_ranks_goes_on_to_the_same_state(tmp_path: Path) -> None:
    """Of three nodes one is left, which is not rank 0's; its checkpoint is enough."""
    assert train(tmp_path, 3, 9) == [(9, state_after(9, 100))] * 3
    assert sorted(path.name for path in (tmp_path / "node2").iterdir()) == ["8.state", "9.state"]
    (tmp_path / "node2" / "9.state").write_bytes(b"half")
    assert train(tmp_path, 2, 12, nodes=[5, 2]) == [(12, state_after(12, 100))] * 2
    assert train(tmp_path, 5, 15, nodes=[9, 8, 7, 6, 2]) == [(15, state_after(15, 100))] * 5


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Three ranks as the platform starts them, of a training that goes on."""
    port = held_port()
    found = []
    for rank in range(3):
        life = tmp_path / str(rank) / "7-0"
        life.mkdir(parents=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_IP": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PLATFORM_JOB": "7",
            FOLDER: str(life),
        }
        words = ["--steps", "100000", "--step-time", "0.01", "--values", "64", "--silent", "30", "--every", "10"]
        command = [sys.executable, "-m", "cluster.platform.training_steps", *words]
        with (life / "log").open("w") as log:
            found.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True))
    yield found
    for one in found:
        one.kill()
        one.wait()


def log_of(folder: Path, rank: int, until: str, patience_s: float = LIMIT_S) -> str:
    ends_s = time.monotonic() + patience_s
    while until not in (text := (folder / str(rank) / "7-0" / "log").read_text()):
        assert time.monotonic() < ends_s, text
        time.sleep(0.02)
    return text


def test_all_ranks_suspend_at_one_step_that_is_saved(started: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    log_of(tmp_path, 0, "saved step 10")
    (tmp_path / "0" / "7-0" / "suspend").touch()
    assert [one.wait(LIMIT_S) for one in started] == [SUSPENDED_CODE] * 3
    last = {log_of(tmp_path, rank, "suspended").splitlines()[-1] for rank in range(3)}
    (line,) = last
    step = int(line.removeprefix("suspended at step "))
    assert (tmp_path / "0" / "7-0" / SAVED_FILE).read_text().split()[0] == str(step)
    assert (tmp_path / "0" / "7-0" / "answered").exists()
    lines = [log_of(tmp_path, rank, "").splitlines() for rank in range(3)]
    made = [[line for line in one if line.startswith("step ")] for one in lines]
    assert made[0] == made[1] == made[2] and len(made[0]) == step, "the same sums on all ranks, each step once"


def test_who_loses_a_mate_ends_with_the_code_for_that(started: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    log_of(tmp_path, 0, "saved step 10")
    started[0].send_signal(signal.SIGKILL)
    assert [one.wait(LIMIT_S) for one in started[1:]] == [RESTART_CODE] * 2
    assert "gone: " in log_of(tmp_path, 1, "gone: ")


def test_what_is_wrong_with_its_words_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--steps", "0"], "--steps: 0; give 1 to 1e+06"),
        (["--steps", "1", "--values", "3"], "--values: 3"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    told = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_IP": "127.0.0.1", "MASTER_PORT": "9"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert main(["--steps", "1", "--files", "fs"]) == 2
    assert "no file system is there to mount" in capsys.readouterr().out
    monkeypatch.delenv("RANK")
    assert main(["--steps", "1"]) == 2
    assert "'RANK' is not set; start it as a job of the platform" in capsys.readouterr().err


def test_no_lane_overflows_in_the_longest_training() -> None:
    assert MOST_STEPS * SAMPLES * (1 << 16) * (1 << 16) < 1 << (8 * LANE_BYTES)
