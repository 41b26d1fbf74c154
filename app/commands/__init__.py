"""What the command ``fabric`` can do besides running experiments."""
