"""Round robin: at each switch the packets to a destination take all live ports in turn."""

from controllers.planning.policies.policy import Policy
from controllers.planning.spraying import spraying_of, too_many_ways
from fabric.model.drawing import Draw

ROUND_ROBIN = Policy("round_robin", "each in turn", hashing=spraying_of, draw=Draw.IN_TURN, faults=too_many_ways)
