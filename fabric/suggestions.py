"""Words that messages offer: what may have been meant by one that nobody knows, and what there is to choose from. It
loads nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return which of the known words is most like a word; None if none is."""
    found = difflib.get_close_matches(word, [*known], n=1, cutoff=0.5)
    return found[0] if found else None


def one_of(words: Iterable[str]) -> str:
    """Return one or more words as a choice: ``static, ecmp or adaptive``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
