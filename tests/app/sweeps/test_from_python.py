"""A sweep from Python: one long frame of all runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.sweeps.from_python import sweep
from experiments import RunSpec
from fabric.errors import ConfigError, UsageError
from tests.app.sweeps.plain_runs import METRIC, SHARE, InTurn
from tests.app.sweeps.test_study import busy_with_seed_2, fails_with_seed_2

TINY = RunSpec("isolation", {"topology": "fire_flyer_2_tiny", "nccl_nodes": 4}, engine="virtual")


def test_the_frame_has_a_row_per_run_and_metric_with_the_interval_of_its_setting(tmp_path: Path) -> None:
    frame = sweep(TINY, {SHARE: [0.1, 0.3]}, seeds=3, directory=tmp_path, executor=InTurn())
    assert list(frame.columns) == [
        SHARE, "seed", "run", "verdict", "reasons", "metric", "unit", "value", "median", "low", "high", "runs",
    ]  # fmt: skip
    assert frame[[SHARE, "seed", "value", "median", "low", "high", "runs"]].values.tolist() == [
        [share, seed, share * 1000 + seed, share * 1000 + 2, share * 1000 + 1, share * 1000 + 3, 3]
        for share in (0.1, 0.3)
        for seed in (1, 2, 3)
    ]
    assert set(frame["metric"]) == {METRIC}
    assert set(frame["unit"]) == {"B/s"}


def test_only_what_is_missing_is_played(tmp_path: Path) -> None:
    first, second = InTurn(), InTurn()
    sweep(TINY, {SHARE: [0.1]}, seeds=[1, 2], directory=tmp_path, executor=first)
    frame = sweep(TINY, {SHARE: [0.1, 0.3]}, seeds=[1, 2], directory=tmp_path, executor=second)
    assert (len(first.keys), len(second.keys), len(frame)) == (2, 2, 4)


def test_a_run_that_failed_is_in_the_frame_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = sweep(TINY, {SHARE: [0.1]}, seeds=3, directory=tmp_path, executor=InTurn(fails_with_seed_2))
    assert "failed: a rank died" in capsys.readouterr().err
    failed = frame[frame["verdict"] == "failed"]
    assert failed[["seed", "reasons"]].values.tolist() == [[2, "a rank died"]]
    assert failed["metric"].isna().all()
    assert set(frame["runs"].dropna()) == {2}


def test_a_run_that_is_not_believed_is_in_the_frame_and_in_no_median(tmp_path: Path) -> None:
    frame = sweep(TINY, {SHARE: [0.1]}, seeds=3, directory=tmp_path, executor=InTurn(busy_with_seed_2))
    assert frame[["verdict", "value", "median"]].values.tolist() == [
        ["faithful", 101, 102], ["invalid", 102, 102], ["faithful", 103, 102],
    ]  # fmt: skip


def test_an_axis_of_lists_is_text_and_no_axis_is_one_setting(tmp_path: Path) -> None:
    by_queueing = sweep(TINY, {"queueings": [["shared"], ["lanes"]]}, directory=tmp_path / "a", executor=InTurn())
    assert list(by_queueing["queueings"]) == ["shared", "lanes"]
    alone = sweep(TINY, {}, seeds=2, directory=tmp_path / "b", executor=InTurn())
    assert np.allclose(alone["median"], 501.5)


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        (RunSpec("isolation", directory=Path("mine")), {}, "directory mine: is of one run; give sweep"),
        (RunSpec("isolation", seed=3), {}, r"seed 3: give seeds to sweep\(\), e.g. seeds=\[3\]"),
        (TINY, {"workers": 2, "executor": InTurn()}, "workers 2: is for this machine; give it to the executor"),
        (replace(TINY, settings={SHARE: 0.2}), {}, f"{SHARE}: in settings and in grid; keep one"),
        (TINY, {"seeds": 0}, "seeds: .*greater than or equal to 1"),
        (TINY, {"seeds": [1, 1]}, "names a seed twice"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run(
    tmp_path: Path, spec: RunSpec, options: dict[str, object], says: str
) -> None:
    with pytest.raises((UsageError, ConfigError), match=says):
        sweep(spec, {SHARE: [0.1]}, directory=tmp_path, **options)  # type: ignore[arg-type]


def test_it_stands_at_the_users_door() -> None:
    import experiments

    assert experiments.sweep is sweep
    assert "sweep" in dir(experiments)
