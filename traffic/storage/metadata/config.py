"""Config of metadata servers and of clients' part in files; the defaults are 3FS's timers, or state why not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fabric.config import Strict, TimeS
from traffic.storage.config import Count, Wait
from traffic.storage.metadata import collection, owners, sessions


class StoreConfig(Strict):
    """The store of keys and values. Its transactions take what the fabric takes, and this beside it: FoundationDB's own
    documentation has 0.3 to 1 ms to begin, 0.1 to 1 ms for a read, 1.5 to 2.5 ms for a commit, below 75 % load."""

    host: str | None = Field(default=None, description="The host that it is on. Without it, the last storage node.")
    begin_latency: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time that a transaction takes to get its version, beside the fabric's."
    )
    read_latency: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="Likewise each read.")
    commit_latency: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="Likewise each commit that writes.")
    call_timeout: Wait = Field(default=5.0, description="How long a server waits for an answer of the store.")


class SessionsConfig(Strict):
    """Sessions of clients that have files open for writing."""

    every: Wait = Field(
        default=sessions.SCANNED_EVERY_S, description="How often sessions of clients that are gone are looked for."
    )
    silent_for: Wait = Field(
        default=sessions.SILENT_FOR_S, description="After what silence a client's sessions may be ended."
    )
    heard_every: Wait = Field(default=10.0, description="How often a client says that it lives.")
    synced_every: Wait = Field(
        default=30.0,
        description=(
            "How often a client reports the lengths of files that it writes (3FS: 30 s as shipped, 5 s in its notes)."
        ),
    )


class RemovalConfig(Strict):
    """What happens to a file once its name is gone."""

    delay: Annotated[TimeS, Field(ge=0)] = Field(
        default=collection.DELAY_S, description="How long a removed file keeps its chunks."
    )
    every: Wait = Field(default=1.0, description="How often a server looks for what to collect.")
    retry: Wait = Field(
        default=collection.RETRIED_AFTER_S, description="After how long a removal that failed is tried again."
    )


class MetadataConfig(Strict):
    """Metadata servers."""

    hosts: Annotated[list[str], Field(max_length=64)] = Field(
        default=[], description="The hosts that they are on. Without any, the first two storage nodes."
    )
    store: StoreConfig = Field(default=StoreConfig(), description="The store of keys and values behind them.")
    alive_every: Wait = Field(
        default=owners.SAID_EVERY_S, description="How often a server says that it lives, and looks at the others."
    )
    dead_after: Wait = Field(
        default=owners.DEAD_AFTER_S, description="How long it may be silent until others own its inodes."
    )
    sessions: SessionsConfig = Field(default=SessionsConfig(), description="Who has files open for writing.")
    removal: RemovalConfig = Field(default=RemovalConfig(), description="How removed files are collected.")
    lookup_caching: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0,
        description=(
            "How long a client goes by attributes and names that it has seen; 30 s in 3FS's FUSE client, whose kernel "
            "has them. 0: it asks each time."
        ),
    )
    call_timeout: Wait = Field(default=5.0, description="How long a client waits for a server before it asks another.")
    operation_timeout: Wait = Field(
        default=60.0, description="How long an operation is tried again before it counts as failed."
    )
    batch: Count = Field(default=32, description="What is said of one file's length that a server merges at once.")
