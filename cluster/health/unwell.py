"""What is wrong with a node, as its agent says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unwell:
    """The faults of a node in words, and the Xids of its GPUs' errors; no words: it is well."""

    words: str = ""
    xids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words)

    def __str__(self) -> str:
        return f"unwell: {self.words}"

    def message(self) -> dict[str, Any]:
        """Return the keys of a message that say it."""
        return {"unwell": self.words, **({"xids": list(self.xids)} if self.xids else {})}

    @classmethod
    def of_message(cls, message: Mapping[str, Any]) -> Unwell:
        """Return the faults in a message. Raises KeyError, TypeError or ValueError for a message without them."""
        return cls(str(message["unwell"]), tuple(map(int, message.get("xids", ()))))
