"""The order in which a stage does forward and backward passes.

1F1B and interleaved are Megatron-LM's (``pipeline_parallel/schedules.py``). The others put off what makes gradients of
weights, for which nobody waits: zb1p is 1F1B so (Qi et al., ICLR'24, ZB-H1), and in dualpipe micro-batches come from
both ends at once, so that each rank has a stage of either direction (deepseek-ai/DualPipe, ``dualpipe.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Schedule = Literal["1f1b", "interleaved", "zb1p", "dualpipe"]
ALL, INPUTS, WEIGHTS = "all", "inputs", "weights"
"""What gradients a backward pass makes."""


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a micro-batch through one chunk of a rank's layers. ``of``: which gradients a
    backward pass makes; those of weights alone have a pass of their own. ``beside_next``: whether a forward pass is
    side by side with the backward pass behind it, so that both begin and end together."""

    backward: bool
    chunk: int
    micro_batch: int
    of: str = ALL
    beside_next: bool = False

    @property
    def name(self) -> str:
        """What its operations are called."""
        what = "weights" if self.of == WEIGHTS else "backward" if self.backward else "forward"
        return f"{what} {self.micro_batch}.{self.chunk}"

    @property
    def name_again(self) -> str:
        """What operations of a forward pass are called that a backward pass makes again."""
        return f"again {self.micro_batch}.{self.chunk}"


def passes_of(
    stage: int, stages: int, chunks: int, micro_batches: int, schedule: Schedule = "1f1b"
) -> tuple[Pass, ...]:
    """Return a stage's passes in order. Interleaved is 1F1B of several chunks; then ``micro_batches`` is a multiple of
    ``stages``. ``stage``: of dualpipe, the place of the rank, which has that stage, and of the other direction as many
    from the end."""
    if schedule == "zb1p":
        return tuple(_zb1p(stage, stages, micro_batches))
    if schedule == "dualpipe":
        return tuple(_DualPipe(stage, stages, micro_batches).passes())
    total = micro_batches * chunks
    warm_up = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm_up = min(total, warm_up)
    forward = [_pass(number, stages, chunks, backward=False) for number in range(total)]
    backward = [_pass(number, stages, chunks, backward=True) for number in range(total)]
    steady = [one for pair in zip(forward[warm_up:], backward, strict=False) for one in pair]
    return (*forward[:warm_up], *steady, *backward[total - warm_up :])


def _pass(number: int, stages: int, chunks: int, *, backward: bool) -> Pass:
    """Return the number-th forward or backward pass: groups of as many micro-batches as there are stages go through one
    chunk after the other."""
    if chunks == 1:
        return Pass(backward, 0, number)
    turn, place = divmod(number, stages * chunks)
    chunk, micro_batch = divmod(place, stages)
    return Pass(backward, chunks - 1 - chunk if backward else chunk, turn * stages + micro_batch)


def _zb1p(stage: int, stages: int, micro_batches: int) -> Iterator[Pass]:
    """Yield 1F1B's passes; gradients of weights are behind by as many micro-batches as the stage's number, so that no
    stage holds activations of more than ``stages`` at once."""
    for one in passes_of(stage, stages, 1, micro_batches):
        yield Pass(one.backward, 0, one.micro_batch, INPUTS if one.backward else ALL)
        if one.backward and one.micro_batch >= stage:
            yield Pass(True, 0, one.micro_batch - stage, WEIGHTS)
    for number in range(max(0, micro_batches - stage), micro_batches):
        yield Pass(True, 0, number, WEIGHTS)


class _DualPipe:
    """Makes the passes of a rank. A phase is a direction as the rank sees it: that from its nearer end is 0."""

    def __init__(self, place: int, stages: int, micro_batches: int) -> None:
        self._half = stages // 2
        self._near = min(place, stages - 1 - place)
        self._is_second = place >= self._half
        self._of_main = micro_batches // 2 - stages + self._near + 1
        self._forwards, self._backwards = [0, micro_batches // 2], [0, micro_batches // 2]
        self._put_off: deque[Pass] = deque()

    def passes(self) -> Iterator[Pass]:
        """Yield them, step by step as ``DualPipe.step`` has them."""
        near, far = self._near, self._half - self._near - 1
        for _ in range(2 * far):
            yield self._forward(0)
        for _ in range(near + 1):
            yield from (self._forward(0), self._forward(1))
        for _ in range(far):
            yield from (self._backward(1, INPUTS), self._weights(), self._forward(1))
        for number in range(self._of_main):
            # The ranks in the middle do the first two one after the other, for a shorter bubble.
            yield from (self._forward(0, beside=far > 0 or number > 0), self._backward(1))
            yield from (self._forward(1, beside=True), self._backward(0))
        for _ in range(far):
            yield from (self._backward(1), self._forward(1, beside=True), self._backward(0))
        puts_off = False
        for number in range(near + 1):
            is_half = number == (near + 1) // 2
            puts_off = puts_off or (is_half and near % 2 == 1)
            yield self._backward(1, INPUTS if puts_off else ALL)
            puts_off = puts_off or is_half
            yield self._backward(0, INPUTS if puts_off else ALL)
        for _ in range(far):
            yield from (self._weights(), self._backward(0, INPUTS))
        while self._put_off:
            yield self._weights()

    def _chunk(self, phase: int) -> int:
        return 1 - phase if self._is_second else phase

    def _forward(self, phase: int, beside: bool = False) -> Pass:
        chunk = self._chunk(phase)
        self._forwards[chunk] += 1
        return Pass(False, chunk, self._forwards[chunk] - 1, beside_next=beside)

    def _backward(self, phase: int, of: str = ALL) -> Pass:
        chunk = self._chunk(phase)
        self._backwards[chunk] += 1
        found = Pass(True, chunk, self._backwards[chunk] - 1, of)
        if of == INPUTS:
            self._put_off.append(Pass(True, chunk, found.micro_batch, WEIGHTS))
        return found

    def _weights(self) -> Pass:
        return self._put_off.popleft()


def bubble_fraction(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the time in which a stage does nothing / that in which it computes: (p - 1) / (v m)."""
    return (stages - 1) / (chunks * micro_batches)


def bubble_s(
    schedule: Schedule, stages: int, forward_s: float, backward_s: float, weights_s: float, chunks: int = 1
) -> float:
    """Return the time in which a rank does nothing, in closed form (deepseek-ai/DualPipe, README). Times of a pass of a
    micro-batch through one stage; ``weights_s``: of a backward pass, what makes gradients of weights. A forward and a
    backward pass side by side take as long as one after the other."""
    both_s = forward_s + backward_s
    if schedule == "zb1p":
        return (stages - 1) * (both_s - 2 * weights_s)
    if schedule == "dualpipe":
        return (stages // 2 - 1) * (both_s + backward_s - 3 * weights_s)
    return (stages - 1) * both_s / chunks
