"""Writes a rank's operations one after the other: computing in as few pieces as its communications allow."""

from __future__ import annotations

from dataclasses import replace

from traffic.work.generators.costs import Costs
from traffic.work.graph import RankWork
from traffic.work.operations import Compute, Operation


class RankWriter:
    """``chain``: the places of what the next piece of computing waits for."""

    def __init__(self, costs: Costs) -> None:
        self.work = RankWork()
        self.costs = costs
        self.chain: tuple[int, ...] = ()
        self._flops = 0.0
        self._name = ""

    def compute(self, flops: float, name: str) -> None:
        """Compute next. Pieces of one name become one operation if nothing comes between them."""
        if self._name and name != self._name:
            self.settle()
        self._flops += flops
        self._name = name

    def settle(self) -> tuple[int, ...]:
        """Write the computing that is left, and return what waits for it has to wait for."""
        if self._flops:
            self.chain = (self.work.add(self.costs.operation(self._flops, self._name, self.chain)),)
        self._flops, self._name = 0.0, ""
        return self.chain

    def then(self, operation: Operation) -> int:
        """Write an operation that waits for all before it, and for which all computing behind it waits."""
        place = self.beside(operation)
        self.chain = (place,)
        return place

    def beside(self, operation: Operation) -> int:
        """Write an operation that waits for the computing before it, while computing goes on."""
        return self.work.add(replace(operation, after=self.settle()))

    def wait_for(self, *places: int) -> None:
        """Let computing wait for operations."""
        self.settle()
        self.chain = (*self.chain, *(place for place in places if place not in self.chain))

    def pause(self, flops: float, name: str) -> None:
        """Compute nothing for as long as so many FLOPs take."""
        self.settle()
        self.chain = (self.work.add(self.costs.operation(flops, name, self.chain)),)

    def update(self, after: tuple[int, ...]) -> int:
        """Write the optimizer's piece of computing."""
        operation = Compute(duration_s=self.costs.update_s, name="update", after=after, stream="compute")
        place = self.work.add(operation)
        self.chain = (place,)
        return place
