"""Words that an engineer would not write, in docs and in texts of the program."""

from __future__ import annotations

import re

NOT_ENGLISH = {
    r"\bwhoever\b": "name the program or person",
    r"\bfor ever\b": "forever, or: never ends",
    r"\b(?:the|from|until|its|of) begin\b": "the start",
    r"\bBegin of\b": "Start of",
    r"\b(?:all )?of (?:whom|whose)\b": "say it in a clause of its own",
    r"\bcomes? to pass\b": "happens",
    r"\bbeside idle\b": "compared with idle",
    r"\b(?:is|are|was|were) told\b(?! apart)": "gets notice, is reported, is printed",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|worse\b|better\b|[a-z]+er\b)[a-z]+": "is not a",
    r"\bso (?:many|much) of (?:its|their|the)\b": "the given number, that share",
    r"\bhangs? on\b": "depends on",
    r"\b[Tt]hence\b": "from there",
    r"\bit comes to\b": "it adds up to, it results in",
}
"""Words that an engineer would not write, each with what to write instead."""


def not_english(text: str) -> list[str]:
    """Return what of a text is to be written otherwise, and how."""
    return [
        f"{found[0]!r}: {better}" for pattern, better in NOT_ENGLISH.items() for found in re.finditer(pattern, text)
    ]
