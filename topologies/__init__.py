"""Topologies: pure builders from a YAML file to a frozen fabric."""
