"""Which requests a client plays, when they come, and what its part of the cache has when the first one does. Pure.

Copies of a trace (``instances``) have blocks of their own: of block b of copy i of n, the id is b n + i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fabric.errors import ConfigError
from traffic.storage.kv_cache.cache import PrefixCache
from traffic.storage.kv_cache.config import MOST_ARRIVALS, BlocksConfig, RequestsConfig
from traffic.storage.kv_cache.trace import Request


class Arrival(NamedTuple):
    """A request of a client: its copy of the trace, its number in that, when it comes, in seconds of the run from the
    begin, and what it asks for, with times of the trace and ids of its copy."""

    instance: int
    number: int
    after_s: float
    request: Request


@dataclass(frozen=True)
class Window:
    """The requests that a client plays, in the order of their times, and the blocks that are there before, the least
    recently used first: its id, and when it was last used, in the trace's time.

    ``began_s``: the trace's time at its begin; ``round_s``: how long, in the trace's time, until the first request
    comes again; ``left_out``: how many requests were, since they would find too little.
    """

    arrivals: tuple[Arrival, ...]
    present: tuple[tuple[int, float], ...]
    began_s: float
    round_s: float
    left_out: int = 0

    def rounds(self, compression: float, cycle: bool) -> Iterator[Arrival]:
        """Yield the requests; with ``cycle`` forever, round after round."""
        number = 0
        while True:
            later_s = number * self.round_s / compression
            yield from (one._replace(after_s=one.after_s + later_s) for one in self.arrivals)
            number += 1
            if not cycle:
                return


@lru_cache(maxsize=4)
def window_of(config: RequestsConfig, blocks: BlocksConfig, seed: int) -> Window:
    """Return what a client plays. Raises ConfigError if no request is left.

    What was there before are the blocks that requests before the window, and those in it that are left out, left for
    the others; and ``cold`` ones, of negative ids: last used evenly over the time to live before the begin, or before
    all others.
    """
    requests = config.read(seed)
    end = len(requests) if config.count is None else config.first + config.count
    if config.first >= len(requests) or end > len(requests):
        asked = f"requests {config.first} to {max(end, config.first + 1) - 1}"
        fault = f"requests: {asked} of a trace that has 0 to {len(requests) - 1}; lower first or count"
        raise ConfigError("kv_cache", [fault])
    if end * config.instances > MOST_ARRIVALS:
        many = f"{end:,} requests of {config.instances:,} instances"
        raise ConfigError("kv_cache", [f"requests: {many}, more than {MOST_ARRIVALS:,} together; lower one of them"])
    before = _copies(requests[: config.first], 0, config)
    inside = _copies(requests[config.first : end], config.first, config)
    cache = PrefixCache(blocks.capacity, blocks.ttl)
    for one in before:
        cache.serve(one.request)
    held = dict(cache.blocks())
    kept: list[Arrival] = []
    written: set[int] = set()
    for one in inside:
        asked_for, hits = one.request.blocks, cache.serve(one.request).hit_blocks
        if hits >= config.hot * len(asked_for):
            kept.append(one)
            left = [block for block in asked_for[:hits] if block not in written]
            held |= {block: held.get(block, one.request.at_s) for block in left}
            written.update(asked_for)
    if not kept:
        raise ConfigError("kv_cache", [f"requests.hot: no request finds {config.hot:g} of its blocks; lower it"])
    began_s = kept[0].request.at_s
    present = [(block, min(used_s, began_s)) for block, used_s in held.items() if block in written]
    present = sorted([*_cold(blocks, began_s, present), *present], key=lambda one: one[1])
    arrivals = tuple(one._replace(after_s=(one.request.at_s - began_s) / config.compression) for one in kept)
    span_s = kept[-1].request.at_s - began_s
    round_s = span_s + max(span_s / len(kept), 1e-3)
    return Window(arrivals, tuple(present), began_s, round_s, len(inside) - len(kept))


def _copies(requests: Sequence[Request], first: int, config: RequestsConfig) -> list[Arrival]:
    """Return the requests of all copies, in the order of their times."""
    copies = config.instances
    found = [
        Arrival(
            copy,
            first + place,
            0.0,
            request._replace(
                at_s=request.at_s + copy * config.apart, blocks=tuple(block * copies + copy for block in request.blocks)
            ),
        )
        for copy in range(copies)
        for place, request in enumerate(requests)
    ]
    return sorted(found, key=lambda one: (one.request.at_s, one.instance, one.number))


def _cold(blocks: BlocksConfig, began_s: float, present: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    if blocks.ttl is None:
        first_s = min([began_s, *(used_s for _, used_s in present)])
        return [(-1 - place, first_s) for place in range(blocks.cold)]
    return [(-1 - place, began_s - blocks.ttl * (1 - place / blocks.cold)) for place in range(blocks.cold)]
