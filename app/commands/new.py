"""``fabric new``: a folder with an experiment that runs, to be changed into one's own."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from fabric.errors import UsageError

TEMPLATE = Path(__file__).parent.parent / "template"
"""The files of a new experiment: NAME stands for its name, NAME_CLASS for that of its config."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric new``."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder to make; its name is the experiment's")
    parser.set_defaults(command=new_experiment)


def new_experiment(options: argparse.Namespace, _: list[str]) -> int:
    """Write the folder and say what to do with it."""
    folder: Path = options.folder
    write(folder)
    print(f"{folder}/: an experiment that runs. Its question is in experiment.py, its cases, tables and figures are in")
    print(f"study.py, its keys in config.py, their defaults in {folder.name}.yaml.")
    print(f"  fabric check {folder}")
    print(f"  fabric run {folder}")
    return 0


def write(folder: Path) -> None:
    """Make a folder of a new experiment. Raises UsageError if there is one, or its name is not a Python name."""
    name = folder.name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r}: an experiment's name is small letters, digits and _, as in my_question")
    if folder.exists():
        raise UsageError(f"{folder}: is there already, and nothing in it was changed; choose another name")
    texts = {source.name: source.read_text() for source in sorted(TEMPLATE.glob("*.txt"))}
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror}") from error
    class_name = "".join(word.capitalize() for word in name.split("_"))
    (folder / "__init__.py").write_text(f'"""The experiment {name}."""\n')
    for file, text in texts.items():
        place = folder / file.removesuffix(".txt").replace("NAME", name)
        place.write_text(text.replace("NAME_CLASS", class_name).replace("NAME", name))
