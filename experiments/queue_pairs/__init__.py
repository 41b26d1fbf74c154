"""How evenly does ECMP spread queue pairs, by how many a pair of hosts has? Its config, its cases, its theory."""
