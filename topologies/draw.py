"""A picture of a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fabric.model.encoding import fabric_as_json
from fabric.model.network import Fabric
from fabric.report.figures import draw_topology


def draw(fabric: Fabric, path: Path, utilisation: Mapping[str, float] | None = None) -> None:
    """Write a picture of ``fabric`` to ``path`` (.svg, .png or .pdf).

    ``utilisation`` maps sending ports (``z0l03:7``) to fractions of their link, and colours the links by it.
    Raises UsageError for another suffix.
    """
    draw_topology(fabric_as_json(fabric), path, utilisation)
