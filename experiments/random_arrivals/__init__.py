"""How long packets wait that come at random, beside queueing theory: the question, its config and its summary."""
