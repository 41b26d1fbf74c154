"""A permutation and all-to-all over any fabric, by routes of each policy: the question, its config, its summary."""
