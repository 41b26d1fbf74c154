"""What ``fabric exec --files`` may be; that programs mount what comes of it is tried in a guest, beside a load."""

from __future__ import annotations

import argparse

import pytest

from app.commands.exec_files import files_config, require_clients
from fabric.errors import FabricError
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_tiny")


def asked(text: str | None) -> argparse.Namespace:
    return argparse.Namespace(file_system=text)


def test_keys_are_those_of_jobs() -> None:
    assert files_config(asked(None), FABRIC) is None
    config = files_config(asked("{replicas: 1, chunk_size: 1 MiB, metadata: {removal: {delay: 1 s}}}"), FABRIC)
    assert config is not None
    assert (config.replicas, config.chunk_size, config.metadata.removal.delay) == (1, 1 << 20, 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicas", "is not a mapping of keys"),
        ("{replicas: 3", "is not YAML"),
        ("{mdtest: {}}", "leave them out"),
        ("{replica: 3}", "replica"),
        ("{chunk_size: 8 MiB}", "must fit in one request"),
    ],
)
def test_what_cannot_be_is_said(text: str, words: str) -> None:
    with pytest.raises(FabricError, match=words) as refused:
        files_config(asked(text), FABRIC)
    assert refused.value.exit_code == 2


def test_only_compute_nodes_mount_and_only_where_there_is_storage() -> None:
    with pytest.raises(FabricError, match="st000 is not a compute node"):
        require_clients(FABRIC, ["z0h000", "st000"])
    with pytest.raises(FabricError, match="has no storage nodes"):
        files_config(asked("{}"), load_fabric("head_of_line"))
