"""Config of a KV cache as a load: which requests come, what is kept of them, how it is read, written and removed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from fabric.config import Strict, TimeS, require_none
from traffic.storage.config import Count, StorageConfig
from traffic.storage.kv_cache.models import MODELS, Model, model_named
from traffic.storage.kv_cache.trace import MOST_REQUESTS, Request, TraceConfig, generate, path_of, read_trace

MOST_ARRIVALS = 100_000
"""Requests that a client plays at most: each is in its memory."""
MOST_FLOPS_PER_S = 1e18
_MOST_CHUNKS = 1_000_000
_LOADS = {"dataloader", "checkpoint", "restore", "chunk_io"}
"""What clients of storage play otherwise."""


def _known_or_absolute(trace: str) -> str:
    """Return a name of a trace that is here as it is, and of another the absolute path: the run may play elsewhere."""
    path = path_of(trace)
    return str(path.absolute()) if path == Path(trace) else trace


def _known_model(name: str) -> str:
    if name not in MODELS:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(MODELS)}")
    return name


class RequestsConfig(Strict):
    """Which requests each client plays, and how fast. A production trace at its own speed loads a NIC of 400 Gbit/s to
    2 %, so ``compression``, ``instances`` or a window of requests that find much (``hot``) stand for more users."""

    trace: Annotated[str, Field(min_length=1), AfterValidator(_known_or_absolute)] | None = Field(
        default=None,
        description=(
            "Path of a file of Mooncake's JSON lines, or `conversation_first300` or `synthetic_first300`, excerpts "
            "that are here. Without it, requests of `generate`."
        ),
    )
    generate: TraceConfig = Field(default=TraceConfig(), description="Requests that are generated, without a trace.")
    first: Annotated[int, Field(ge=0, le=MOST_REQUESTS)] = Field(
        default=0, description="The first request of the window that is played; what those before it left is there."
    )
    count: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] | None = Field(
        default=None, description="How many requests the window has. Without it, all that follow."
    )
    hot: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Requests that would find less than this fraction of their blocks are left out."
    )
    compression: Annotated[float, Field(gt=0, le=1e9)] = Field(
        default=1.0, description="Divides the times between requests, and the time to live; computing takes its time."
    )
    instances: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="How many copies of the requests each client plays at once, with blocks of their own."
    )
    apart: Annotated[TimeS, Field(ge=0)] = Field(
        default=1.0, description="How much later each of these copies begins, in the trace's time."
    )
    at_once: Count | None = Field(
        default=None, description="Requests that a client has under way; others wait. Without it, any number."
    )
    cycle: bool = Field(
        default=False, description="Whether the requests come again and again, and then find what they have left."
    )

    def read(self, seed: int) -> list[Request]:
        """Return all requests of the trace, those before the window included. Raises ConfigError."""
        return list(generate(self.generate, seed)) if self.trace is None else read_trace(path_of(self.trace))


class Value(str, Enum):
    """How a number of the cache is kept."""

    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def size_bytes(self) -> int:
        """How many bytes it takes."""
        return 2 if self is Value.BF16 else 1


class ServingConfig(Strict):
    """The model that answers, what a token takes in the cache, and how fast a prefill computes."""

    model: Annotated[str, AfterValidator(_known_model)] = Field(
        default="deepseek_v3",
        description="The model: `deepseek_v3`, `llama_3.1_8b`, `llama_3.1_70b` or `llama_3.1_405b`.",
    )
    value: Annotated[Value, Field(strict=False)] = Field(
        default=Value.BF16, description="How a number is kept: `bf16`, two bytes, or `fp8`, one."
    )
    flops_per_s: Annotated[float, Field(gt=0, le=MOST_FLOPS_PER_S)] = Field(
        default=4e15,
        description=(
            "FLOP/s of a prefill, by default half of what 8 H800 have in bfloat16. Requests do not wait for each "
            "other's computing: a client stands for as many servers as it has prefills under way."
        ),
    )
    scale: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Divides the bytes of a layer, for a fabric whose rates are divided as much."
    )
    outputs: bool = Field(
        default=False,
        description="Whether blocks that an answer fills are written, too; the trace says not who asks for them.",
    )

    @property
    def shape(self) -> Model:
        """The model's shape."""
        return model_named(self.model)

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer of a block, as they are here."""
        return self.shape.layer_bytes(self.value.size_bytes) // self.scale

    @property
    def block_bytes(self) -> int:
        """Bytes of a block, as they are here."""
        return self.layer_bytes * self.shape.layers


class BlocksConfig(Strict):
    """Which blocks a client's part of the cache has, and how they are removed: out of the index at once, their chunks
    later, by the garbage collection that 3FS has (its values are the defaults)."""

    capacity: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="Blocks at most; beyond it the least recently used go. Without it, any number."
    )
    ttl: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="How long a block stays that nobody asks for, in the trace's time."
    )
    cold: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0,
        description="Further blocks that are there at the start and nobody asks for, so that removal has work.",
    )
    collect_after: Annotated[TimeS, Field(ge=0)] = Field(
        default=300.0, description="How long the chunks of a removed block stay, in the run's time."
    )
    collect_every: Annotated[TimeS, Field(gt=0)] = Field(default=1.0, description="How often a client looks for such.")
    collect_files: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=32, description="Files whose chunks are removed at once."
    )
    collect_chunks: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=32, description="Chunks of a file that are removed at once."
    )


class Order(str, Enum):
    """In which order a request reads its blocks."""

    LAYERS = "layers"
    """A layer of all blocks after the other, so that computing goes on beside it."""
    BLOCKS = "blocks"
    """A block after the other, all of them before computing."""


class KvIoConfig(Strict):
    """How blocks are read and written."""

    order: Annotated[Order, Field(strict=False)] = Field(
        default=Order.LAYERS,
        description="`layers`: computing goes on while further layers are read; `blocks`: it waits for all blocks.",
    )
    ahead: Count = Field(default=8, description="Layers, or blocks, whose reads a request has under way at once.")
    writes: bool = Field(default=True, description="Whether blocks that were not found are written after the prefill.")
    write_depth: Count = Field(default=16, description="Chunks that a client writes at once.")


class KvCacheConfig(Strict):
    """A cache of keys and values on storage: requests look up, read, compute, and write what was missing."""

    requests: RequestsConfig = Field(default=RequestsConfig(), description="The requests that each client plays.")
    serving: ServingConfig = Field(default=ServingConfig(), description="The model, its bytes and its computing.")
    blocks: BlocksConfig = Field(default=BlocksConfig(), description="What the cache keeps, and how it is removed.")
    io: KvIoConfig = Field(default=KvIoConfig(), description="How blocks are read and written.")
    storage: StorageConfig = Field(
        default=StorageConfig(), description="The storage service and its clients; these play no other load."
    )

    @model_validator(mode="after")
    def _verify(self) -> KvCacheConfig:
        require_none(self.faults())
        return self

    def faults(self) -> Iterator[str]:
        """Yield what of it does not fit the rest."""
        serving, blocks = self.serving, self.blocks
        if not serving.layer_bytes:
            most = serving.shape.layer_bytes(serving.value.size_bytes)
            yield f"serving.scale: {serving.scale} leaves nothing of a layer of {most} B; lower it"
            return
        of_block = -(-serving.block_bytes // self.storage.chunk_size)
        if blocks.cold * of_block > _MOST_CHUNKS:
            yield f"blocks.cold: {blocks.cold * of_block:,} chunks, more than {_MOST_CHUNKS:,}; lower it"
        if blocks.capacity is not None and blocks.cold > blocks.capacity:
            yield f"blocks.cold: {blocks.cold} exceeds capacity {blocks.capacity}; lower it"
        for name in sorted(_LOADS & StorageConfig.model_fields.keys()):
            default = StorageConfig.model_fields[name].get_default(call_default_factory=True)
            if getattr(self.storage, name) != default:
                yield f"storage.{name}: clients of a KV cache play no such load; leave it out"
        requests = self.requests
        count = requests.count or (requests.generate.requests if requests.trace is None else 1)
        if count * requests.instances > MOST_ARRIVALS:
            words = f"{count * requests.instances:,} requests (count x instances)"
            yield f"requests: {words}, and a client plays {MOST_ARRIVALS:,} at most; lower one"
        if requests.trace is None and requests.first >= requests.generate.requests:
            yield f"requests.first: {requests.first}, and {requests.generate.requests} are generated; lower it"
