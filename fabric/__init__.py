"""The fabric as a value, and its emulation: model, engines, queues, measurement, verdict, results."""

# A package of ai-fabric-emulator (experiments/whose_packages.py).
