"""The folder that a user's Python has on its path where GPUs are asked for."""

from pathlib import Path

FOLDER = Path(__file__).parent
