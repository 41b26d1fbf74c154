"""What ranks of a platform must know of the fabric beneath them to play graphs: a file that the platform leaves in its
logs, and a variable in the environment of ranks with its path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import ConfigError
from fabric.model.encoding import fabric_from_json, fabric_to_json
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from traffic.job import Stage

VARIABLE = "FABRIC_STAGE"
FILE = "stage.json"


@dataclass(frozen=True)
class RanksStage:
    """The stage as a rank has it, which starts no programs, and the address of each node of the platform."""

    stage: Stage
    addresses: Mapping[str, str]


def write_stage(folder: Path, stage: Stage, addresses: Mapping[str, str]) -> None:
    """Leave what ranks need in a folder. ``addresses``: of the platform's nodes, by their names."""
    levels = [[level.label, level.dscp, name] for level, name in stage.congestion_control.items()]
    values = {
        "fabric": fabric_to_json(stage.fabric),
        "seed": stage.seed,
        "congestion_control": levels,
        "receive_window_bytes": stage.receive_window_bytes,
        "addresses": dict(addresses),
    }
    new = folder / f"{FILE}.new"
    new.write_text(json.dumps(values))
    new.replace(folder / FILE)


def read_stage() -> RanksStage:
    """Return what the platform has left for this rank. Raises ConfigError if it has not."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        raise ConfigError(VARIABLE, ["is not set: no platform has started this program; submit it as a job of one"])
    try:
        values = json.loads(Path(path).read_text())
        control = {ServiceLevel(label, dscp): name for label, dscp, name in values["congestion_control"]}
        stage = Stage(
            fabric_from_json(values["fabric"], path),
            AgentPool(),
            lambda _: None,
            int(values["seed"]),
            control,
            values["receive_window_bytes"],
        )
        return RanksStage(stage, dict(values["addresses"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(path, [f"says nothing of a fabric ({type(error).__name__}: {error})"]) from error
