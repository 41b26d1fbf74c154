"""How many flows of a pattern should meet on leaves' uplinks, before it is known which flows those are. Pure."""

from __future__ import annotations

import pandas as pd

from controllers.planning.collisions import Histogram, UplinkTheory, mixture
from controllers.planning.policies import Policy
from controllers.routing import Routing
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from runs.plans import planned


def expected_on_uplinks(fabric: Fabric, policy: Policy, uplinks: pd.DataFrame) -> Histogram:
    """Return the share of leaves' uplinks with each number of flows, given how many leave each leaf in each phase.

    ``uplinks``: rows of ``pattern_uplinks``, of permutations or, with ECMP, of any pattern. Empty if there are none.
    """
    if uplinks.empty:
        return {}
    theory = UplinkTheory(fabric, planned(fabric, Routing(policy=policy)), policy)
    leaves = uplinks["port"].astype(str).str.partition(":")[0]
    return mixture(
        (theory.of_leaf(NodeId.parse(str(leaf)), int(rows["flows_of_leaf"].iloc[0])), len(rows))
        for (_, leaf), rows in uplinks.groupby(["phase", leaves], observed=True)
    )
