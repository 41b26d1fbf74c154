"""Graphs in files: our own JSON lines (:mod:`traffic.work.graph_lines`), and whatever other formats are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from fabric.errors import ConfigError
from traffic.work.graph import WorkGraph
from traffic.work.graph_lines import MARK, graph_of_lines, is_ours

OtherReader = Callable[[Path], WorkGraph | None]


def _of_trace(path: Path) -> WorkGraph | None:
    from traffic.work.formats.recognise import UnknownFormatError, graph_of_path  # Few jobs need it.

    try:
        return graph_of_path(path)
    except UnknownFormatError:
        return None


OTHER_READERS: list[OtherReader] = [_of_trace]
"""Readers of other formats: each returns a graph, or None if a file is none of its own. They raise ConfigError."""


def load_graph(path: Path) -> WorkGraph:
    """Return the graph of a file, or of a directory of files, of any known format. Raises ConfigError."""
    try:
        changed_s = path.stat().st_mtime
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}; give the path of a graph"]) from error
    return _loaded(path, changed_s)


@lru_cache(maxsize=4)
def _loaded(path: Path, _: float) -> WorkGraph:
    if path.is_file() and is_ours(path):
        with path.open() as file:
            return graph_of_lines(str(path), file)
    for reader in OTHER_READERS:
        if (graph := reader(path)) is not None:
            return graph
    raise ConfigError(str(path), [f'is not a graph: its first line has no "{MARK}", and no other reader knows it'])
