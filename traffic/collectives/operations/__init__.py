"""Collective operations: a module each. :mod:`traffic.collectives.listing` lists them."""
