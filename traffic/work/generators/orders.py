"""The order in which a stage does forward and backward passes (Megatron-LM, ``pipeline_parallel/schedules.py``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a micro-batch through one chunk of a rank's layers."""

    backward: bool
    chunk: int
    micro_batch: int


def passes_of(stage: int, stages: int, chunks: int, micro_batches: int) -> tuple[Pass, ...]:
    """Return a stage's passes in order: 1F1B, or interleaved if there are several chunks; then ``micro_batches`` is a
    multiple of ``stages``."""
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


def bubble_fraction(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the time in which a stage does nothing / that in which it computes: (p - 1) / (v m)."""
    return (stages - 1) / (chunks * micro_batches)
