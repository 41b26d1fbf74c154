"""How long a job waits at most under HAI's rules, where quotas limit what may come before it.

Without quotas there is no limit: jobs of a higher priority may come for ever. With quotas whose sum over all users and
higher levels leaves the cluster enough nodes for it, a job waits for older ones of its own level only, and for notices.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.simulation.costs import ANSWER_WITHIN_S, SAVE_WITHIN_S
from cluster.tasks import LEVELS, Priority, Users

NOTICE_S = ANSWER_WITHIN_S + SAVE_WITHIN_S


def nodes_before(level: Priority, users: Users, names: Iterable[str], group: str = "training") -> int | None:
    """Return the most nodes that jobs of higher levels can have at once by their users' quotas; None is no limit.

    ABOVE_NORMAL and AUTO are not told apart from the levels whose quotas they use.
    """
    total = 0
    for name in names:
        for one in LEVELS:
            if one > level:
                quota = users.quota((name, one, group))
                if quota is None:
                    return None
                total += quota
    return total


def longest_wait_s(older: int, longest_s: float, interruptions: int, tick_s: float) -> float:
    """Return how long a job waits at most that has room beside all higher levels (:func:`nodes_before`), in one zone.

    ``older``: jobs of its level that were submitted before it and had not ended; ``longest_s``: how long one of them
    has its nodes at most, all its lives together; ``interruptions``: how many lives of higher levels began meanwhile.
    Each of them may take the nodes that others are leaving for it, and it waits for another notice.
    """
    notice_s = NOTICE_S + 2 * tick_s
    return older * (longest_s + notice_s) + (interruptions + 1) * notice_s
