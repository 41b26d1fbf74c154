"""Programs that run inside the hosts and load the fabric, with their pure schedules."""

# A package of ai-fabric-emulator (app/whose_packages.py).
