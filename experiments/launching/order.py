"""What the process that plays a run is ordered to play."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from fabric.emulation.sflow import SflowExport


@dataclass(frozen=True)
class Order:
    """What the process that plays is given: a file or an experiment's name with settings, and where the result goes.
    ``command``: by what the run was asked for. ``live_file``: where samples go as they are taken, if
    somebody watches. ``sflow``: what switches export, if they do."""

    experiment: str
    overrides: tuple[str, ...]
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
        parts = {name: tuple(values[name]) for name in ("overrides", "captures", "command")}
        directory, live_file = values["directory"], values["live_file"]
        sflow = SflowExport(**values["sflow"]) if values["sflow"] else None
        return cls(experiment=values["experiment"], directory=directory, live_file=live_file, sflow=sflow, **parts)
