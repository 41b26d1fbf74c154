"""The kinds of failures, a module for each: its targets and their states, what jobs offer, the keys of a line, and what
carries it out. :mod:`fabric.failures.listing` has the list of them."""
