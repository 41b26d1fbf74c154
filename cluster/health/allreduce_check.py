"""The check of a node's GPUs and of the links between them: an allreduce in the node, by
:mod:`cluster.health.gpu_allreduce`."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.health.check_program import CheckError, response_of
from cluster.health.checks import Check, CheckResult, Verdict
from cluster.health.config import NodeAllreduce
from cluster.health.gpu_allreduce import Task, TeamTask, words_of
from cluster.health.gpu_teams import GpuParts, Team, TeamSpeed, judged, teams_of
from traffic.transport.connection import Transport

PROGRAM = "cluster.health.gpu_allreduce"
UNIT = "of its links"


@dataclass(frozen=True)
class GpuTest:
    """The test of a node's GPUs: what they are, what is asked, and what carries their data."""

    parts: GpuParts
    config: NodeAllreduce
    transport: Transport

    async def speeds(self, wrong: frozenset[int], timeout_s: float) -> dict[Team, TeamSpeed]:
        """Have the GPUs add up, those of ``wrong`` computing wrong values; return what each team reached. Raises
        CheckError if that has not ended within ``timeout_s``, or could not begin."""
        inside = self.parts.inside
        teams = {team: team.size_bytes(inside, self.config.size) for team in teams_of(inside)}
        if not teams:
            return {}
        tasks = tuple(TeamTask(team.gpus, self.parts.addresses(team), size) for team, size in teams.items())
        task = Task(tasks, self.transport, seed=1, timeout_s=timeout_s / (2 * len(teams)), wrong=wrong)
        answer = await response_of(PROGRAM, [words_of(task)], timeout_s, "its GPUs have not added up")
        return {
            team: TeamSpeed(0.0, one["why"]) if "why" in one else TeamSpeed(team.busbw_Bps(size, one["seconds"]))
            for (team, size), one in zip(teams.items(), answer["teams"], strict=True)
        }


async def allreduce_result(node: str, test: GpuTest, wrong: frozenset[int], timeout_s: float) -> CheckResult:
    """Return what the check finds of a node whose GPUs in ``wrong`` compute wrong values."""
    least = test.config.least
    try:
        found = judged(test.parts.inside, await test.speeds(wrong, timeout_s), least)
    except CheckError as error:
        return CheckResult(node, Check.ALLREDUCE, Verdict.FAILED, 0.0, least, UNIT, str(error))
    verdict = Verdict.FAILED if found.faults else Verdict.PASSED
    return CheckResult(node, Check.ALLREDUCE, verdict, found.fraction, least, UNIT, "; ".join(found.faults))
