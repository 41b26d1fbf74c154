"""``fabric virtual warm``: guests that have booted and wait for the account's next commands."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.options import time_s
from fabric.world.virtual import forking
from runs.console import tell
from runs.launching.enter import IMPORTS

_ALSO = ("app.commands.top_parser", "app.commands.exec_program", "app.commands.path")
"""What the commands need that are not runs, but bring a fabric up."""


def add(commands: Any) -> None:
    """Define the command among those of ``fabric virtual``."""
    text = "keep guests that have booted, and fabrics that are up, for the next commands of this account"
    how = (
        "Start it beside your work, in the background or in a terminal of its own. Commands in virtual time then start "
        "in a fork of a guest that waits, with the same figures, until Ctrl-C. Guests take 200 MB and more each, ten "
        "at most. After a change of the program's sources, commands boot guests of their own: start it again."
    )
    warm = commands.add_parser("warm", help=text, description=f"{text.capitalize()}. {how}")
    idle = "end once no command has come for so long (default: %(default)s)"
    warm.add_argument("--idle", type=time_s, default="30min", metavar="TIME", help=idle)
    warm.set_defaults(command=keep_warm)


def keep_warm(options: argparse.Namespace, _: list[str]) -> int:
    """Keep guests warm until nobody needs them, or Ctrl-C."""
    forking.warm((*IMPORTS, *_ALSO), options.idle, tell)
    return 0
