"""Routing policies, a file each, and the list of them: configs, commands and planners know no other."""

from __future__ import annotations

from controllers.planning.policies.adaptive import ADAPTIVE
from controllers.planning.policies.ecmp import ECMP
from controllers.planning.policies.policy import AtSwitch, BySource, Chosen, Policy
from controllers.planning.policies.static import STATIC

__all__ = ["ADAPTIVE", "ECMP", "POLICIES", "STATIC", "AtSwitch", "BySource", "Chosen", "Policy"]

POLICIES: tuple[Policy, ...] = (STATIC, ECMP, ADAPTIVE)
