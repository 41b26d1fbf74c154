"""Requests to a server of a language model: read from Mooncake's traces (FAST '25), or generated like them.

A line of a trace is a JSON object: ``timestamp`` in ms since the start, ``input_length`` and ``output_length`` in
tokens, and ``hash_ids``, one for each 512 tokens of the input, of which the last may be fewer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from fabric.config import Strict, note_file
from fabric.errors import ConfigError

BLOCK_TOKENS = 512
TRACES = Path(__file__).parent / "traces"
"""The first 300 requests of two of Mooncake's traces; README.md there says what they come to."""
MOST_REQUESTS = 5_000_000
_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
_MOST_FAULTS = 20


class Request(NamedTuple):
    """A request: when it comes, its tokens in and out, and the ids of the blocks of its input."""

    at_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]

    def tokens_of(self, blocks: int) -> int:
        """Return how many tokens of the input the first ``blocks`` of its blocks have; the last may be short."""
        return min(blocks * BLOCK_TOKENS, self.input_tokens)

    @property
    def line(self) -> str:
        """The request as a line of a trace."""
        values = (round(self.at_s * 1000), self.input_tokens, self.output_tokens, list(self.blocks))
        return json.dumps(dict(zip(_KEYS, values, strict=True)))


def path_of(trace: str) -> Path:
    """Return the file of one of the traces that are here, by its name without ``.jsonl``; of any other its path."""
    here = TRACES / f"{trace}.jsonl"
    return here if here.is_file() else Path(trace)


def read_trace(path: Path) -> list[Request]:
    """Return the requests of a file. Raises ConfigError, naming file and lines, if it is not a trace."""
    note_file(path)
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_trace(lines, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"cannot be read: {error}; name a file of JSON lines"]) from error


def parse_trace(lines: Iterable[str], source: str) -> list[Request]:
    """Return the requests of lines, of which empty ones are passed over. Raises ConfigError."""
    requests: list[Request] = []
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(faults) == _MOST_FAULTS or len(requests) == MOST_REQUESTS:
            break
        try:
            requests.append(_parse(line, requests[-1].at_s if requests else 0.0))
        except ValueError as fault:
            faults.append(f"line {number}: {fault}")
    if len(requests) == MOST_REQUESTS:
        faults.append(f"it has more than {MOST_REQUESTS:,} requests; take a part of it")
    if not requests and not faults:
        faults.append("it has no request; name a file with one JSON object a line")
    if faults:
        raise ConfigError(source, faults)
    return requests


def _parse(line: str, not_before_s: float) -> Request:
    """Return the request of a line. Raises ValueError."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"a JSON object is expected, here is {line.strip()[:40]}")
    if missing := [key for key in _KEYS if key not in found]:
        raise ValueError(f"{', '.join(missing)} missing; each request has {', '.join(_KEYS)}")
    at_ms, read, written, blocks = (found[key] for key in _KEYS)
    for key, value, least in zip(_KEYS, (at_ms, read, written), (0, 1, 0), strict=False):
        kinds = (int, float) if key == "timestamp" else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= 10**12:
            raise ValueError(f"{key} {value!r} is not a number from {least} to 10^12")
    if not isinstance(blocks, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in blocks):
        raise ValueError("hash_ids is not a list of integers")
    if len(blocks) != -(-read // BLOCK_TOKENS):
        raise ValueError(
            f"{len(blocks)} hash_ids for input_length {read}; there must be one for each {BLOCK_TOKENS} tokens, rounded"
            " up"
        )
    if at_ms / 1000 < not_before_s:
        raise ValueError(f"timestamp {at_ms} is before that of the line above, {not_before_s * 1000:g}; sort the lines")
    return Request(at_ms / 1000, read, written, tuple(blocks))


Tokens = Annotated[int, Field(ge=1, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]


class TraceConfig(Strict):
    """Requests like those of conversations: some go on with an earlier one, others begin with a common prompt."""

    requests: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=1000, description="How many requests come.")
    rate: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=3.0, description="Requests per second; they come as a Poisson process."
    )
    mean_input: Tokens = Field(
        default=6000, description="Mean number of tokens that a request adds to what it goes on with (exponential)."
    )
    mean_output: Tokens = Field(default=350, description="Mean number of tokens of an answer (exponential).")
    continuing: Share = Field(
        default=0.3, description="Fraction of the requests that go on with an earlier one: its input, its answer, more."
    )
    recent: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=200, description="How many of the last conversations one that goes on is chosen from."
    )
    prompts: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=4, description="How many common prompts there are, one of which starts each new conversation."
    )
    prompt_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=512, description="Length of a common prompt; the part that fills whole blocks is found again."
    )
    most_input: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=128_000, description="Tokens of a request at most: the context of the model. A longer one begins anew."
    )


def generate(config: TraceConfig, seed: int) -> Iterator[Request]:
    """Yield requests in the order of their times.

    The ids of blocks are counted from 0, in the order in which they first come. A request that goes on has the whole
    blocks of what it goes on with: its last one, if short, is another now.
    """
    rng = random.Random(f"kv_cache/{seed}")
    fresh = iter(range(2**62))
    prompts: list[tuple[int, ...]] = [() for _ in range(config.prompts)]
    recent: list[Request] = []
    at_s = 0.0
    for _ in range(config.requests):
        at_s += rng.expovariate(config.rate)
        added, answer = (1 + int(rng.expovariate(1 / mean)) for mean in (config.mean_input, config.mean_output))
        before = rng.choice(recent) if recent and rng.random() < config.continuing else None
        tokens = before.input_tokens + before.output_tokens + added if before else 0
        if before is None or tokens > config.most_input:
            number = rng.randrange(config.prompts)
            whole = config.prompt_tokens // BLOCK_TOKENS
            prompts[number] = prompts[number] or tuple(next(fresh) for _ in range(whole))
            known, tokens = prompts[number], config.prompt_tokens + added
            tokens = min(tokens, config.most_input)
        else:
            known = before.blocks[: before.input_tokens // BLOCK_TOKENS]
        known = known[: tokens // BLOCK_TOKENS]
        blocks = (*known, *(next(fresh) for _ in range(-(-tokens // BLOCK_TOKENS) - len(known))))
        request = Request(round(at_s, 3), tokens, answer, blocks)
        recent = [one for one in recent if one is not before][-config.recent + 1 :] if config.recent > 1 else []
        recent.append(request)
        yield request
