"""One run of an experiment, whichever: its config, the live fabric, its phases, its result."""

# A package of ai-fabric-emulator (app/whose_packages.py).
