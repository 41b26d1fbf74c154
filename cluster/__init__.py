"""The platform: who gets which nodes and when, what fails, what that costs, what checkpoints hold.

All of it is pure but ``platform/``, and what nodes test in ``health/``: the state goes in as a value, decisions come
out, each with its reason.
``platform/`` has the programs that act on them over the fabric.
"""

# A package of ai-fabric-emulator (app/whose_packages.py).
