"""Push and pull: workers push gradients to parameter servers, which add them up, and pull the sums (BytePS' name).

Of the ranks the last are servers, without data of their own, as many as the run says; without any, each worker serves a
share. A collective of its own, and no algorithm of the allreduce, since not all ranks have data. See
:mod:`traffic.collectives.parameter_server`.
"""

from __future__ import annotations

from dataclasses import replace

from traffic.collectives.collective import (
    Collective,
    CollectiveAlgorithm,
    ExpectedOf,
    all_elements,
    of_all_data,
    sum_everywhere,
)
from traffic.collectives.parameter_server import WorkersGet, WorkersHave, sharded, shared
from traffic.collectives.program_schedule import program_algorithm


def _algorithms(expected: ExpectedOf) -> dict[str, CollectiveAlgorithm]:
    return {"sharded": program_algorithm(sharded, expected), "byteps": program_algorithm(shared, expected)}


def with_servers(servers: int) -> Collective:
    """Return it over ranks of which so many of the last are servers."""
    gets = WorkersGet(servers)
    return replace(PUSH_PULL, input=WorkersHave(servers), expected=gets, algorithms=_algorithms(gets), serving=None)


PUSH_PULL = Collective(
    name="push_pull",
    size="what each worker has, before and after",
    input=all_elements,
    expected=sum_everywhere,
    busbw_factor=of_all_data,
    algorithms=_algorithms(sum_everywhere),
    serving=with_servers,
)
