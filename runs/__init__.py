"""One run of an experiment, whichever: its config, the live fabric, its phases, its result."""

# A package of ai-fabric-emulator (experiments/whose_packages.py).
