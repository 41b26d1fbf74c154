"""A controller's task as a file: the fabric, and how to route in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from controllers.routing import Routing
from fabric.config import checked
from fabric.errors import ControllerError
from fabric.model.encoding import fabric_from_json, fabric_to_json
from fabric.model.network import Fabric


@dataclass(frozen=True)
class Task:
    """A fabric and its routing."""

    fabric: Fabric
    routing: Routing

    def save(self, path: Path) -> None:
        """Write the task to a file. Raises ControllerError if it cannot be written."""
        data = {"fabric": fabric_to_json(self.fabric), "routing": self.routing.model_dump(mode="json")}
        try:
            path.write_text(json.dumps(data, separators=(",", ":")) + "\n")
        except OSError as error:
            raise ControllerError(f"task {path}: cannot be written: {error.strerror}; choose another file") from error

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read the task that :meth:`save` wrote. Raises ControllerError or ConfigError, naming the file."""
        source = f"task {path}"
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise ControllerError(f"{source}: cannot be read: {error.strerror}; give a saved task") from error
        except ValueError as error:
            raise ControllerError(f"{source}: is not JSON ({error}); save it again") from error
        if not isinstance(data, dict) or not {"fabric", "routing"} <= set(data):
            raise ControllerError(f"{source}: holds no fabric and routing; save it again")
        return cls(fabric_from_json(data["fabric"], source), checked(Routing, data["routing"], source))
