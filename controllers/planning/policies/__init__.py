"""Routing policies, a file each, and the list of them: configs, commands and planners know no other."""

from __future__ import annotations

from controllers.planning.policies.adaptive import ADAPTIVE
from controllers.planning.policies.ecmp import ECMP
from controllers.planning.policies.entropy import ENTROPY
from controllers.planning.policies.policy import AtSwitch, BySource, Chosen, Policy
from controllers.planning.policies.round_robin import ROUND_ROBIN
from controllers.planning.policies.spray import SPRAY
from controllers.planning.policies.static import STATIC

__all__ = [
    "ADAPTIVE",
    "ECMP",
    "ENTROPY",
    "POLICIES",
    "ROUND_ROBIN",
    "SPRAY",
    "STATIC",
    "AtSwitch",
    "BySource",
    "Chosen",
    "Policy",
]

POLICIES: tuple[Policy, ...] = (STATIC, ECMP, ADAPTIVE, SPRAY, ROUND_ROBIN, ENTROPY)
