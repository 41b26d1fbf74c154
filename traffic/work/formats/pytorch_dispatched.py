"""Calls of ``c10d::...``, PyTorch's dispatcher: what an execution trace has of gloo, MPI and whatever else is not NCCL.

NCCL writes ``record_param_comms`` below such a call, which says more and stands for it. What gloo writes below
(``gloo:all_reduce``) is left out: its threads write it below any node, and of a reduce-scatter they write the
allreduces that it is made of. A call does not say its process group, unless the node of a functional collective is
above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traffic.work.formats import names
from traffic.work.formats.pytorch_nodes import (
    Call,
    elements_of,
    in_elements,
    is_tensor,
    parent_of,
    splits_of,
    type_of,
    values_of,
)
from traffic.work.formats.values import shown, whole

COMMUNICATION = "record_param_comms"
_PREFIX, _FUNCTIONAL = "c10d::", ("_c10d_functional::", "c10d_functional::")
_WAIT = "wait_tensor"
BELOW = ("gloo:", "mpi:", "ucc:")
"""How names of what backends write begin, below a call of the dispatcher."""
_DEEPEST = 100
ALONE = "calls of a backend without the c10d:: call that says what they are"


@dataclass(frozen=True)
class _Form:
    """A call: what it does, and the places of its inputs: of the tensors that a rank puts in and of those that it gets,
    of its root or other end, of its tag and of its splits; None of what it has not."""

    collective: str
    into: int | None = None
    out_of: int | None = None
    peer: int | None = None
    tag: int | None = None
    splits: int | None = None


_RESULT_FIRST = {"into": 1, "out_of": 0}
_FORMS = {
    "allreduce_": _Form(names.ALLREDUCE, 0),
    "allreduce_coalesced_": _Form(names.ALLREDUCE, 0),
    "broadcast_": _Form(names.BROADCAST, 0, peer=2),
    "reduce_": _Form(names.REDUCE, 0, peer=3),
    "allgather_": _Form(names.ALL_GATHER, **_RESULT_FIRST),
    "_allgather_base_": _Form(names.ALL_GATHER, **_RESULT_FIRST),
    "allgather_coalesced_": _Form(names.ALL_GATHER, **_RESULT_FIRST),
    "allgather_into_tensor_coalesced_": _Form(names.ALL_GATHER, **_RESULT_FIRST),
    "reduce_scatter_": _Form(names.REDUCE_SCATTER, **_RESULT_FIRST),
    "_reduce_scatter_base_": _Form(names.REDUCE_SCATTER, **_RESULT_FIRST),
    "reduce_scatter_tensor_coalesced_": _Form(names.REDUCE_SCATTER, **_RESULT_FIRST),
    "gather_": _Form(names.GATHER, **_RESULT_FIRST, peer=3),
    "scatter_": _Form(names.SCATTER, **_RESULT_FIRST, peer=3),
    "alltoall_": _Form(names.ALL_TO_ALL, **_RESULT_FIRST),
    "alltoall_base_": _Form(names.ALL_TO_ALL, **_RESULT_FIRST, splits=4),
    "barrier": _Form(names.BARRIER),
    "monitored_barrier_": _Form(names.BARRIER),
    "send": _Form(names.SEND, 0, peer=2, tag=3),
    "recv_": _Form(names.RECEIVE, out_of=0, peer=2, tag=3),
    "recv_any_source_": _Form(names.RECEIVE_ANY, out_of=0, tag=2),
}
"""By the name behind ``c10d::``, as torch/csrc/distributed/c10d/Ops.cpp declares them."""


class Dispatched:
    """The calls of the dispatcher in a file that nothing below them stands for."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        known = [one for one in nodes if isinstance(one, dict) and isinstance(one.get("id"), int | str)]
        self._by_id = {one["id"]: one for one in known}
        called = [one for one in known if _form_of(one) is not None]
        covered = {found for one in known if _name(one) == COMMUNICATION for found in self._caller(one)}
        self.ids = {one["id"] for one in called} - covered
        self._is_alone = not called
        self._request_of = {
            tensor: _request(one["id"])
            for one in called
            if one["id"] in self.ids and (above := self._functional(one))
            for tensor in _tensors(values_of(above, "outputs"))
        }

    def _caller(self, node: Mapping[str, Any]) -> Iterator[object]:
        """Yield the id of the call of the dispatcher that a node is below, if it is below one."""
        for _ in range(_DEEPEST):
            above = parent_of(node)
            found = self._by_id.get(above) if isinstance(above, int | str) else None
            if found is None:
                return
            if _form_of(found) is not None:
                yield found["id"]
                return
            node = found

    def calls(self, node: Mapping[str, Any]) -> list[Call]:
        """Return the calls that a node is; nothing if it is none of these. Raises ValueError."""
        form, name = _form_of(node), _name(node)
        if form is not None and node.get("id") in self.ids:
            return [self._call(node, form)]
        return [*self._waits(node)] if name.startswith(_FUNCTIONAL) and name.endswith(_WAIT) else []

    def is_alone(self, node: Mapping[str, Any]) -> bool:
        """Whether a node is a backend's call in a file that has no calls of the dispatcher."""
        return self._is_alone and _name(node).startswith(BELOW)

    def _call(self, node: Mapping[str, Any], form: _Form) -> Call:
        values, name = values_of(node, "inputs"), _name(node)
        needed = max(place for place in (form.into, form.out_of, form.peer, form.splits, 0) if place is not None)
        if len(values) <= needed:
            raise ValueError(f"{shown(name)}: has {len(values)} inputs, and its input {needed} says what it does")
        tensors = [values[place] if place is not None else [] for place in (form.into, form.out_of)]
        into, out_of = elements_of(tensors[0]), elements_of(tensors[1])
        typed = [type_of(node, place) for place in (form.into, form.out_of) if place is not None]
        dtype = next((one for one in typed if one), None)
        sent = self._sent(form, values, into[0])
        number, above = whole(node.get("id"), "id"), self._functional(node)
        texts = [one for one in values_of(above, "inputs") if isinstance(one, str)] if above else []
        return Call(
            id=number,
            collective=names.ALL_TO_ALL_V if sent else form.collective,
            request=_request(number),
            group=texts[-1] if texts else None,
            peer=whole(values[form.peer], "rank", -(2**31)) if form.peer is not None else -1,
            into=into,
            out_of=out_of,
            sent=sent,
            dtype=dtype[0] if dtype else "",
            tag=whole(values[form.tag], "tag", 0, 2**31 - 1) if form.tag is not None and len(values) > form.tag else 0,
            waits=_is_waited_for(name, values),
        )

    def _sent(self, form: _Form, values: Sequence[Any], elements: int) -> tuple[int, ...]:
        """Return how many elements go to each place, if the call says: it need not, where all get as many."""
        if form.collective != names.ALL_TO_ALL:
            return ()
        if form.splits is not None:
            return in_elements(splits_of(values[form.splits]), elements)
        each = values[form.into or 0]
        return tuple(elements_of(one)[0] for one in each) if isinstance(each, list) else ()

    def _functional(self, node: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the functional collective above a call, whose last input is its group; None if there is none."""
        above = parent_of(node)
        found = self._by_id.get(above) if isinstance(above, int | str) else None
        return found if found is not None and _name(found).startswith(_FUNCTIONAL) else None

    def _waits(self, node: Mapping[str, Any]) -> Iterator[Call]:
        for tensor in _tensors(values_of(node, "inputs")):
            if request := self._request_of.get(tensor):
                yield Call(whole(node.get("id"), "id"), names.WAIT, request, None, -1, (0, 0), (0, 0))


def _request(number: object) -> str:
    return f"{_PREFIX} {number}"


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("name", ""))


def _form_of(node: Mapping[str, Any]) -> _Form | None:
    name = _name(node)
    return _FORMS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def _is_waited_for(name: str, values: Sequence[Any]) -> bool:
    """Whether the host goes on at the end of a call only: newer versions say ``async_op``, the only bool of a call."""
    return name.endswith("monitored_barrier_") or next((not one for one in values if isinstance(one, bool)), False)


def _tensors(values: Any) -> Iterator[tuple[int, ...]]:
    """Yield the ids of tensors in nested lists, each with that of its memory."""
    if is_tensor(values):
        yield tuple(values[:2])
    elif isinstance(values, list):
        for one in values:
            yield from _tensors(one)
