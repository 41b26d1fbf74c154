"""Groups of ranks as Megatron-LM numbers them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from traffic.work.generators.layout import Layout


def test_groups_of_megatrons_own_example() -> None:
    """``initialize_model_parallel``'s docstring: 16 ranks, tensor 2, pipeline 4, data 2."""
    layout = Layout(tensor=2, pipeline=4, data=2)
    assert layout.groups("tp") == tuple((rank, rank + 1) for rank in range(0, 16, 2))
    assert layout.groups("dp") == ((0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15))
    assert layout.groups("pp") == ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))


def test_context_ranks_are_between_tensor_and_data() -> None:
    layout = Layout(tensor=2, context=2, data=2)
    assert layout.groups("cp") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert layout.groups("dp-cp") == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_experts_are_over_neighbours_and_their_copies_further_away() -> None:
    layout = Layout(data=8, pipeline=2, expert=4)
    assert layout.groups("ep")[:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert layout.groups("edp")[:2] == ((0, 4), (1, 5))
    assert layout.expert_data == 2


def test_another_order() -> None:
    layout = Layout(data=2, pipeline=4, order="tp-cp-pp-ep-dp")
    assert layout.groups("pp") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert layout.groups("dp") == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_gpus_of_a_node_are_in_different_data_parallel_ranks() -> None:
    layout = Layout(data=16, pipeline=4)
    for pipeline in layout.groups("pp"):
        assert len({layout.node_of(rank) for rank in pipeline}) == 4
    assert {layout.group_of("dp", rank)[0] for rank in range(8)} == {"dp.0"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"data": 6, "expert": 4}, "expert: 4 does not divide tensor x context x data = 6"),
        ({"order": "tp-dp"}, "is not an order of tp, cp, ep, dp, pp"),
        ({"data": 65_537}, "less than or equal to 65536"),
        ({"data": 4096, "pipeline": 32}, "131,072 ranks, and 65,536 is the most"),
        ({"sequence_parallel": True}, "tensor is 1"),
        ({"data": 4, "expert": 2, "pipeline": 2, "order": "dp-pp-ep-tp-cp"}, "put pp last"),
    ],
)
def test_what_cannot_be(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Layout(**keys)  # type: ignore[arg-type]
