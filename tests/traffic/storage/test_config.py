from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.identity import NodeId, Role
from traffic.storage.config import StorageConfig
from traffic.storage.job import chosen


def parsed(text: str) -> StorageConfig:
    return checked(StorageConfig, yaml.safe_load(text) or {}, "storage.yaml")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("off", None), ("'off'", None), ("null", None), ("1", 1), ("16", 16)],
)
def test_request_to_send_is_off_or_a_number(written: str, meant: int | None) -> None:
    assert parsed(f"request_to_send: {written}").request_to_send == meant


def test_quantities_are_written_with_units() -> None:
    config = parsed("{chunk_size: 1 MiB, service: {ssd_read_rate: 1 Gbit/s, ssd_latency: 2 ms}}")
    assert (config.chunk_size, config.service.ssd_read_rate, config.service.ssd_latency) == (1 << 20, 10**9, 2e-3)
    assert parsed("service: {ssd_read_rate: off}").service.ssd_read_rate is None


def test_a_resolved_config_reads_back_as_itself() -> None:
    config = parsed("request_to_send: off")
    assert checked(StorageConfig, yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json"))), "again") == config


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("request_to_send: on", "neither 'off' nor a number"),
        ("request_to_send: 0", "greater than or equal to 1"),
        ("request_to_send: many", "neither 'off' nor a number"),
        ("chunk_sise: 1", "did you mean 'chunk_size'"),
        ("dataloader: {sample_min: 2 MiB}", "sample_min 2 MiB exceeds sample_max 512 KiB"),
        ("dataloader: {file_size: 64 KiB}", "exceeds file_size 64 KiB"),
        ("{chunk_size: 8 MiB}", "chunk_size 8 MiB exceeds client.max_batch_size 4 MiB"),
        ("{dataloader: {share: 0.0}}", "nobody reads or writes"),
        (
            "dataloader: {epochs: {}, pause: 1 ms}",
            "pause is for reads without epochs; leave it out: give epochs.compute",
        ),
        ("dataloader: {epochs: {}, depth: 3}", "depth is for reads without epochs; leave it out: give epochs.prefetch"),
        ("dataloader: {epochs: {}, files_per_client: 1}", "files_per_client is for reads without epochs"),
        (
            "dataloader: {epochs: {prefetch: 4000}, batch: 60}",
            r"240,060 reads .*prefetch \+ 1\) x batch\) exceed 65,536",
        ),
        (
            "dataloader: {epochs: {}, sample_min: 1 B, sample_max: 20 B}",
            "some .* samples together, more than 1,000,000",
        ),
        ("restore: {share: 1.0, size: 1024 GiB}", "restore.size: 1024 GiB are 4,194,304 chunks, more than 1,000,000"),
        ("{dataloader: {share: 1.5}}", "less than or equal to 1"),
        ("{replicas: 0}", "greater than or equal to 1"),
    ],
)
def test_faults_are_named(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "has_end"),
    [
        ("{}", False),
        ("dataloader: {epochs: {}}", False),
        ("dataloader: {epochs: {count: 2}}", True),
        ("{dataloader: {epochs: {count: 2}}, checkpoint: {share: 0.5}}", False),
        ("{dataloader: {share: 0.0}, restore: {share: 1.0}}", True),
        ("{restore: {share: 1.0}}", False),
    ],
)
def test_a_load_has_an_end_if_all_of_it_has(text: str, has_end: bool) -> None:
    config = parsed(text)
    assert config.has_end is has_end
    assert checked(StorageConfig, yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json"))), "again") == config


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.25, 6), (0.3, 7), (0.5, 12), (1.0, 24)])
def test_chosen_clients_are_evenly_spaced(share: float, count: int) -> None:
    clients = [NodeId(Role.COMPUTE, 0, index) for index in range(24)]
    places: list[Any] = [place for place, client in enumerate(clients) if client in chosen(clients, share)]
    assert len(places) == count
    gaps = {after - before for before, after in itertools.pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1
