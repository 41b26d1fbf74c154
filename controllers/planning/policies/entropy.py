"""Entropy of the sender: its NIC puts one of ``routing.entropies`` numbers on each packet, and switches hash the flow
with it, as Ultra Ethernet and MRC do with the UDP source port. So a flow has as many paths as numbers, at most."""

from controllers.planning.policies.policy import Policy
from controllers.planning.spraying import spraying_of, too_many_ways
from fabric.model.drawing import Draw

ENTROPY = Policy(
    "entropy",
    "by its sender's entropy",
    hashing=spraying_of,
    draw=Draw.ENTROPY,
    faults=too_many_ways,
)
