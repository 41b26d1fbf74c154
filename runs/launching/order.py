"""What the process that plays a run is ordered to play."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fabric.emulation.sflow import SflowExport


@dataclass(frozen=True)
class Order:
    """What the process that plays is given: an experiment with its whole config, and where the result goes.

    ``foreign_folder``: the experiment's, if it does not come with the program, else empty. ``config``: as JSON has it,
    with its defaults and its topology, so that no file of the user's is read again. ``command``: by what the run was
    asked for. ``live_file``: where samples go as they are taken, if somebody watches. ``sflow``: what switches export,
    if they do.
    """

    experiment: str
    foreign_folder: str
    config: Mapping[str, Any]
    directory: str
    captures: tuple[str, ...]
    command: tuple[str, ...]
    live_file: str = ""
    sflow: SflowExport | None = None

    def encoded(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, text: bytes) -> Order:
        """Return what :meth:`encoded` made JSON of."""
        values = json.loads(text)
        parts: dict[str, Any] = {name: tuple(values[name]) for name in ("captures", "command")}
        parts["sflow"] = SflowExport(**values["sflow"]) if values["sflow"] else None
        return cls(**values | parts)
