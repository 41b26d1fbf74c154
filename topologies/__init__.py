"""Topologies: pure builders from a YAML file to a frozen fabric."""

# A package of ai-fabric-emulator (app/whose_packages.py).
