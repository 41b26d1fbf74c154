"""What ``traffic_patterns`` plays: patterns by the routes that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from controllers.planning.policies import Policy
from experiments.traffic_patterns.config import Pattern
from runs.cases import Case, axis

MEASURED, THEORY = "measured", "in theory"


@dataclass(frozen=True)
class Variant(Case, name="{pattern}_{policy}", title="{pattern}, {policy}"):
    """A pattern, and the routes that it takes; its draws are phases."""

    pattern: Pattern = axis("patterns")
    policy: Policy = axis("policies", words=str)

    def rows(self, table: Callable[[str], pd.DataFrame], name: str) -> pd.DataFrame:
        """Return its rows of a table, of all draws."""
        rows = table(name)
        return rows[(rows["pattern"] == self.pattern.value) & (rows["policy"] == self.policy.name)]
