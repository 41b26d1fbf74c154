"""Spraying: each packet takes any of all live ports, at random, as switches with per-packet random load balancing."""

from controllers.planning.policies.policy import Policy
from controllers.planning.spraying import spraying_of, too_many_ways
from fabric.model.drawing import Draw

SPRAY = Policy("spray", "each at random", hashing=spraying_of, draw=Draw.RANDOM, faults=too_many_ways)
