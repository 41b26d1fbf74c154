"""Topologies: pure builders from a YAML file to a frozen fabric."""

# A package of ai-fabric-emulator (experiments/whose_packages.py).
