"""Has pytest rewrite each test file's assertions once for all workers of a session: they collect at the same time, and
each would do so for all files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_own_part(config: pytest.Config) -> None:
    """Leave, where pytest looks for them, a worker's part of the files that it is about to collect."""
    worker: dict[str, str | int] | None = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    number, workers = int(str(worker["workerid"]).removeprefix("gw")), int(worker["workercount"])
    for file in sorted(_test_files(config.args))[number::workers]:
        _rewrite(file, config)


def _test_files(arguments: Iterable[str]) -> set[Path]:
    places = {Path(argument.partition("::")[0]).resolve() for argument in arguments}
    return {file for place in places for file in (place.rglob("test_*.py") if place.is_dir() else [place])}


def _rewrite(file: Path, config: pytest.Config) -> None:
    directory = rewrite.get_cache_dir(file)
    kept = directory / f"{file.stem}{rewrite.PYC_TAIL}"
    if kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime:
        return
    if rewrite.try_makedirs(directory):
        status, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, kept)
