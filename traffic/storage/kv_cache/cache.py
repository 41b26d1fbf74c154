"""Which prefix of a request is in the cache, and what is removed from it.

A request finds the longest prefix of its blocks of which all are there. Then all its blocks are there, the latest used:
those that it found, which it reads, and those that it computes and writes. Blocks are removed if the cache would have
more than its capacity, the least recently used first, or if they were not used for a time to live.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from traffic.storage.kv_cache.trace import Request


class Served(NamedTuple):
    """What a request came to: how many of its blocks it found, as a prefix, and their tokens; the ids of the blocks
    that it wrote; and those removed for room, or before it because their time was over."""

    request: Request
    hit_blocks: int
    hit_tokens: int
    written: tuple[int, ...]
    evicted: tuple[int, ...]
    expired: tuple[int, ...]


class PrefixCache:
    """The blocks that are there, and when each was last used.

    ``capacity``: blocks at most; None: any number. ``ttl_s``: how long a block stays that is not used; None: forever.
    Raises ValueError if one of them is not above 0.
    """

    def __init__(self, capacity: int | None = None, ttl_s: float | None = None) -> None:
        for name, value in (("capacity", capacity), ("ttl_s", ttl_s)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} {value} of a cache of blocks must be above 0; None is without a limit")
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._used_s: OrderedDict[int, float] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._used_s)

    def lookup(self, request: Request) -> int:
        """Return how many of its blocks a request finds, as a prefix. Changes nothing."""
        found = 0
        for block in request.blocks:
            if block not in self._used_s:
                break
            found += 1
        return found

    def serve(self, request: Request) -> Served:
        """Let a request read what it finds and write the rest; requests come in the order of their times."""
        expired = self.expire(request.at_s)
        hits = self.lookup(request)
        # A block behind the first that is missing may be there, too: its bytes are the same, so it is not written anew.
        written = tuple(dict.fromkeys(block for block in request.blocks[hits:] if block not in self._used_s))
        for block in request.blocks:
            self._used_s[block] = request.at_s
            self._used_s.move_to_end(block)
        return Served(request, hits, request.tokens_of(hits), written, tuple(self._evict()), expired)

    def hold(self, block: int, used_s: float) -> None:
        """Have a block from now on that was last used at a time, which is not before that of any that is there."""
        self._used_s[block] = used_s

    def drop(self, block: int) -> None:
        """Have a block no longer, if it is there: it could not be written."""
        self._used_s.pop(block, None)

    def expire(self, now_s: float) -> tuple[int, ...]:
        """Remove the blocks whose time is over, and return them."""
        return tuple(self._expire(now_s))

    def blocks(self) -> Iterator[tuple[int, float]]:
        """Yield the blocks and when each was last used, the least recently used first."""
        yield from self._used_s.items()

    def _expire(self, now_s: float) -> Iterator[int]:
        while self._ttl_s is not None and self._used_s:
            block, used_s = next(iter(self._used_s.items()))
            if used_s + self._ttl_s > now_s:
                return
            del self._used_s[block]
            yield block

    def _evict(self) -> Iterator[int]:
        while self._capacity is not None and len(self._used_s) > self._capacity:
            yield self._used_s.popitem(last=False)[0]


@dataclass(frozen=True)
class CacheTotals:
    """What many requests came to. ``span_s``: from the first to the last."""

    requests: int = 0
    blocks: int = 0
    input_tokens: int = 0
    hit_blocks: int = 0
    hit_tokens: int = 0
    written: int = 0
    evicted: int = 0
    expired: int = 0
    span_s: float = 0.0

    @property
    def hit_share(self) -> float:
        """Which part of the blocks was found."""
        return self.hit_blocks / self.blocks if self.blocks else float("nan")


def totals(served: Iterable[Served]) -> CacheTotals:
    """Return the sums."""
    all_ = list(served)
    if not all_:
        return CacheTotals()
    return CacheTotals(
        requests=len(all_),
        blocks=sum(len(one.request.blocks) for one in all_),
        input_tokens=sum(one.request.input_tokens for one in all_),
        hit_blocks=sum(one.hit_blocks for one in all_),
        hit_tokens=sum(one.hit_tokens for one in all_),
        written=sum(len(one.written) for one in all_),
        evicted=sum(len(one.evicted) for one in all_),
        expired=sum(len(one.expired) for one in all_),
        span_s=all_[-1].request.at_s - all_[0].request.at_s,
    )
