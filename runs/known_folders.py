"""The folders whose experiments a user has run: only their code is loaded to read a result.

A result's manifest names its experiment's folder, and the result may be anybody's, from an archive. Owners say little
there: what a user unpacks is the user's own. So a run keeps its experiment's folder in the cache of this machine, in a
file per folder, under its user; what is not kept there is loaded only if it is named on the command.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from fabric.errors import UsageError
from fabric.world import cache
from runs.handover import calling_user

_DIRECTORY = "experiment-folders"
_REMEDY = "name it with --experiment-folder DIR (load(directory, DIR) in Python), if you trust its code"


def keep(folder: Path) -> str | None:
    """Keep that the user ran the experiment of a folder; return why it could not be kept."""
    try:
        place = cache.own() / _DIRECTORY
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", prefix=".", dir=place, delete=False) as file:
            file.write(_entry(folder))
        partial = Path(file.name)
        partial.chmod(0o644)  # What root ran by sudo is read by the user who called it.
        partial.replace(place / _name(folder))
    except UsageError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
    else:
        return None
    return f"{folder}: could not be kept among the experiments of yours ({reason}); to read the result, {_REMEDY}"


def why_not(folder: Path, result: Path) -> str | None:
    """Return why the code of a folder, which the manifest of a result's directory names, is not run to read it; None:
    it is."""
    if not folder.is_absolute() or folder != Path(os.path.realpath(folder)):
        return f"{folder} is not an absolute path without links, as a run writes; {_REMEDY}"
    if folder.is_relative_to(os.path.realpath(result)):
        return f"{folder} is in the result's own directory, and its code would be run; {_REMEDY}"
    try:
        is_kept = any(_is_kept(folder, place) for place in cache.places())
    except UsageError as error:
        return f"{folder} would be looked up in the cache, and {error}"
    if not is_kept:
        return f"{folder} is not an experiment that you have run on this machine, and its code would be run; {_REMEDY}"
    return _who_else_may_change(folder)


def _is_kept(folder: Path, place: Path) -> bool:
    try:
        return (place / _DIRECTORY / _name(folder)).read_text() == _entry(folder)
    except OSError:
        return False


def _who_else_may_change(folder: Path) -> str | None:
    """Return who but this user and root could change what would be loaded."""
    caller = calling_user()
    users = {0, os.geteuid(), *(caller[:1] if caller else ())}
    groups = {0, os.getegid(), *(caller[1:] if caller else ())}
    inside = [Path(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files)]
    for path in sorted(inside):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder):
            return f"{path} leads out of the folder, and the code there would be run; {_REMEDY}"
    if fault := cache.who_may_change((*sorted(inside), folder, *folder.parents), users, groups):
        return f"{fault}, and its code would be run; {_REMEDY}"
    return None


def _user() -> int:
    caller = calling_user()
    return os.geteuid() if caller is None else caller[0]


def _entry(folder: Path) -> str:
    return json.dumps({"user": _user(), "folder": str(folder)}) + "\n"


def _name(folder: Path) -> str:
    return hashlib.sha256(_entry(folder).encode()).hexdigest()
