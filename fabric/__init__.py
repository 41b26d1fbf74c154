"""The fabric as a value, and its emulation: model, engines, queues, measurement, verdict, results."""

# A package of ai-fabric-emulator (app/whose_packages.py).
