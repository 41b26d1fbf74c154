"""What plays in a phase, by which routes and in which queueing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from controllers.planning.policies import Policy
from experiments.routing_incast.config import RoutingIncastConfig
from fabric.model.lanes import Queueing
from runs.case_tables import Column
from runs.cases import Case, axis
from runs.study import Found, Outcome

INCAST = "incast"


class Traffic(Enum):
    """What plays in a phase."""

    ALONE = "alone"
    INCAST = INCAST

    @property
    def words(self) -> str:
        """It in words."""
        return "bystanders alone" if self is Traffic.ALONE else "with the incast"


@dataclass(frozen=True)
class Variant(
    Case,
    name="{queueing}_{policy}_{traffic}",
    title="{policy} routes, {queueing}: {traffic}",
    alone="{queueing}_{policy}_alone",
):
    """A queueing and a routing policy, and what plays."""

    queueing: Queueing = axis("queueings")
    policy: Policy = axis("policies", name=lambda policy: policy.name, words=lambda policy: policy.name)
    traffic: Traffic = axis(lambda _: Traffic)

    @property
    def is_beside(self) -> bool:
        """Whether the incast plays beside its bystanders."""
        return self.traffic is Traffic.INCAST


AnyFound = Found[Variant, RoutingIncastConfig]
OF_CASE = (Column("in", "queueing", is_once=True), Column("routes", "policy", is_once=True))


def beside(found: AnyFound) -> list[Outcome[Variant]]:
    """Return what came of the phases with the incast."""
    return [one for one in found.outcomes if one.case.is_beside]
