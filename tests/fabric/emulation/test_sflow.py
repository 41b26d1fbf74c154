"""What is missing in the datagrams that were recorded is not kept secret."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric.emulation import sflow
from topologies.load import load_fabric


class Recorder:
    """A capture that takes nothing, and says what is missing in its file."""

    missing: str | None = None

    def __init__(self, _prefix: object, _interface: str, path: Path, _expression: str) -> None:
        self._path = path

    def start(self) -> None:
        self._path.write_bytes(b"")

    def stop(self) -> str | None:
        return self.missing


@pytest.mark.parametrize("missing", [None, "out.pcap ends early: No space left on device"])
def test_what_is_missing_in_the_datagrams_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str | None
) -> None:
    monkeypatch.setattr(Recorder, "missing", missing)
    monkeypatch.setattr(sflow, "Capture", Recorder)
    monkeypatch.setattr(sflow, "PORT", 0)
    monkeypatch.setattr(sflow, "_LAST_SAMPLES_S", 0.0)
    emulation: Any = SimpleNamespace(
        fabric=load_fabric("uneven_small"), switches=SimpleNamespace(export_sflow=lambda *_: None)
    )
    said: list[str] = []
    with sflow.exporting(emulation, sflow.SflowExport(str(tmp_path / "out.pcap")), tmp_path, said.append):
        pass
    assert said == ([] if missing is None else [f"sFlow: {missing}"])
