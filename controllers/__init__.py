"""Pure route planners and the thin Ryu app that installs their rules; the only package that imports ryu."""

# A package of ai-fabric-emulator (app/whose_packages.py).
