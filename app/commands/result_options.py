"""Results that commands read, and whose code they may run for that."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.errors import UsageError

if TYPE_CHECKING:
    from runs.launching.run_result import RunResult

_OPTION = "--experiment-folder"
RESULT = "the directory of a run, which fabric run has named"


def add_experiment_folder_option(parser: argparse.ArgumentParser) -> None:
    """Let a command be told where experiments are that do not come with the program."""
    trust = (
        "where the experiment of a DIR is, whose code is run to read it; needed if it does not come with the program "
        "and you have not run it on this machine; may be repeated"
    )
    parser.add_argument(_OPTION, type=Path, metavar="FOLDER", action="append", default=[], help=trust)


def results_of(directories: Sequence[Path], folders: Sequence[Path]) -> list[RunResult]:
    """Return results, read, each by the folder named for it, if one is. Raises UsageError for a folder of no result."""
    from fabric.results import Result
    from runs.launching.run_result import RunResult

    named: dict[object, Path] = {}
    for folder in (folder.resolve() for folder in folders):
        if not (folder / "experiment.py").is_file():
            raise UsageError(f"{_OPTION} {folder}: has no experiment.py; give the folder of an experiment")
        if named.setdefault(folder.name, folder) != folder:
            raise UsageError(f"{_OPTION} {folder}: and {named[folder.name]} are of one name; give one of them")
    names = [Result(directory).manifest.get("experiment") for directory in directories]
    if unused := [folder for name, folder in named.items() if name not in names]:
        of = ", ".join(sorted({str(name) for name in names}))
        raise UsageError(f"{_OPTION} {unused[0]}: is of no result given, which are of {of}; omit it")
    return [RunResult(directory, named.get(name)) for name, directory in zip(names, directories, strict=True)]
