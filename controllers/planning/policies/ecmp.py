"""Equal-cost multipath: each flow takes one of all live ports by a hash of its 5-tuple."""

from controllers.planning.ecmp import hashing_of
from controllers.planning.policies.policy import Policy

ECMP = Policy("ecmp", "by a hash of its flow", hashing=hashing_of)
