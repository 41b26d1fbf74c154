"""What may have been meant by a word that nobody knows. It loads nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return which of the known words is most like a word; None if none is."""
    found = difflib.get_close_matches(word, [*known], n=1, cutoff=0.5)
    return found[0] if found else None
