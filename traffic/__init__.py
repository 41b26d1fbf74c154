"""Programs that run inside the hosts and load the fabric, with their pure schedules."""

# A package of ai-fabric-emulator (experiments/whose_packages.py).
