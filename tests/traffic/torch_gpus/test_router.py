"""Which experts tokens take: by the seed and by the rank that draws, which a forked rank is only once it runs."""

from __future__ import annotations

import pytest

from traffic.torch_gpus.router import Router


def test_ranks_that_share_a_router_draw_experts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    router, found = Router(1, 0.5), []
    for rank in ("0", "1", "0"):
        monkeypatch.setenv("RANK", rank)
        found.append(router.chosen((64, 16), 2).tolist())
    assert found[0] == found[2]
    assert found[0] != found[1]
