"""Budgets of the qdisc ``vl``: bytes per second that several ports, and programs, share. See :mod:`fabric.queueing.vl`.

A port draws on them by what it is made with (:func:`fabric.queueing.vl.install`), a program by :class:`Reserving`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from fabric.errors import EmulationError
from fabric.queueing import vl_abi
from fabric.queueing.vl_abi import BudgetStats, DrawOptions, Reservation

FILE = Path("/proc", vl_abi.BUDGETS_FILE)


def number_of(name: str) -> int:
    """Return the number by which the kernel knows a budget that is called ``name`` in this run.

    All runs on a machine share its kernel's budgets, so the run's own network namespace is part of the number.
    """
    home = Path("/proc/1/ns/net").stat().st_ino
    return int.from_bytes(hashlib.blake2b(f"{home} {name}".encode(), digest_size=8).digest(), "big")


def draw(budget: int, rate_Bps: int, weight: float = 1.0, input_index: int = 0) -> DrawOptions:  # noqa: N803 - bytes
    """Return what a port draws on: of a budget of so many bytes per second, ``weight`` bytes for each byte sent.

    With ``input_index``, only for frames that came in by the interface of that index.
    """
    return DrawOptions(budget, rate_Bps, input_index, round(weight * vl_abi.WEIGHT_ONE))


def read() -> dict[int, BudgetStats]:
    """Return all budgets of this kernel by their numbers. Raises EmulationError if it has no ``vl``."""
    try:
        data = FILE.read_bytes()
    except OSError as error:
        raise EmulationError(f"{FILE}: {error.strerror}; budgets need the module sch_vl and root") from error
    layout = vl_abi.BUDGET_STATS
    found = [layout.unpack(data, offset) for offset in range(0, len(data), layout.size_bytes)]
    return {one.budget: one for one in found}


class Reserving:
    """How a program takes bytes of a budget: each call returns once these have been given, in turns with ports."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        try:
            self._file = os.open(FILE, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise EmulationError(f"{FILE}: {error.strerror}; budgets need the module sch_vl and root") from error

    def take(self, size_bytes: int) -> None:
        """Wait until so many bytes have been given. Raises EmulationError if no port draws on the budget."""
        try:
            os.write(self._file, vl_abi.RESERVATION.pack(Reservation(self._budget, size_bytes)))
        except OSError as error:
            raise EmulationError(f"budget {self._budget}: {error.strerror}; no port draws on it") from error

    def close(self) -> None:
        """Let go of the kernel's file."""
        os.close(self._file)
