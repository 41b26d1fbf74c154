"""The ``fabric`` command and what it offers beside a single run: sweeps, exports, validation, reproduction."""

# A package of ai-fabric-emulator (app/whose_packages.py).
