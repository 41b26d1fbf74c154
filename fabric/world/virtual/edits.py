"""Changes of the guest kernel's source, beyond what kernel options can express: which patches there are, and which fit.

The patches are in ``patches``, one per subject, in a folder named after the kernel that they were made of. Where others
are written otherwise, another folder has the same subject for the files concerned; of its versions exactly one must fit
a file. Whether a source fits is determined from the few files concerned, before anything is built (:func:`misfits`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fabric.world.virtual.patch_files import Replacement, read_patch

HERE = Path(__file__).resolve().parent
PATCHES = HERE / "patches"
FIRST = "6.1"
"""The folder that has every subject."""

Way = tuple[Replacement, ...]
"""One way to write a change: all of its replacements together."""


@dataclass(frozen=True)
class Edit:
    """A change of one file of the kernel's source, in as many ways as there are kernels that differ there."""

    file: str
    ways: tuple[Way, ...]

    def fitting(self, text: str) -> Way | None:
        """Return the way that fits the file's text, None: none does, or more than one."""
        fitting = [way for way in self.ways if all(part.fits(text) for part in way)]
        return fitting[0] if len(fitting) == 1 else None

    def apply(self, text: str) -> str:
        """Return the changed text. Raises ValueError if no way fits."""
        way = self.fitting(text)
        if way is None:
            raise ValueError(f"{self.file} has no place for a change of ours")
        for part in way:
            text = part.apply(text)
        return text


def edits_of(subject: str) -> tuple[Edit, ...]:
    """Return the edits of a subject, a file each, as its patches have them."""
    folders = sorted(PATCHES.iterdir(), key=lambda folder: (folder.name != FIRST, folder.name))
    paths = [path for folder in folders if (path := folder / f"{subject}.patch").is_file()]
    ways: dict[str, list[Way]] = {}
    for path in paths:
        for file, way in read_patch(path, HERE).items():
            ways.setdefault(file, []).append(way)
    return tuple(Edit(file, tuple(found)) for file, found in ways.items())


NEEDED = ("clock", "clock_readings", "syscalls", "faults", "rates", "veth", "netem", "ticks_per_second")
"""Subjects without which there is no guest kernel, in the order in which they are made."""
SAVINGS = ("offloads", "timers", "idle", "young", "copies", "threads", "ticks", "code_model", "memcpy", "memset")
"""Each made where it fits: they change what a guest costs, not what it does."""
OTHERS = (
    "irq_flags",
    "huge_pages",
    "clock_page",
    "counter",
    "spinning",
    "polled_sockets",
    "registers",
    "peers",
    "profile",
    "headers",
    "speed",
    "rdma",
    "rdma_transport",
    "softirqs",
    "random",
    "slack",
    "orphans",
)
"""Each made where all of it fits."""

EDITS = tuple(chain.from_iterable(map(edits_of, NEEDED)))
OPTIONAL = tuple(map(edits_of, (*SAVINGS, *OTHERS)))

PROFILE_FLAGS = "PROFILE_FLAGS"
"""The variable of make that holds the compiler's options for what is profiled."""
PROFILE_LIBRARY = "PROFILE_LIBRARY"
"""And the one that names the compiler's library for profiles, where one is taken."""
COMPILED_BY = "scripts/Makefile.lib"

SAME_AS = {"d7bd145fa7a7": "18c0be69d553"}
"""Of digests, that of earlier edits which made the same kernel: one built with those need not be built anew."""


def files() -> list[str]:
    """Return the files of the kernel's source that are changed, or may be."""
    return list(dict.fromkeys(edit.file for edit in (*EDITS, *chain(*OPTIONAL))))


def changed(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the changed files; ``texts`` holds those of :func:`files`. Raises ValueError if one of EDITS misfits."""
    fitting = [group for group in OPTIONAL if not _misfitting(group, texts)]
    made: dict[str, str] = {}
    for edit in (*EDITS, *chain(*fitting)):
        made[edit.file] = edit.apply(made.get(edit.file, texts.get(edit.file, "")))
    return made


def misfits(texts: Mapping[str, str]) -> list[str]:
    """Return the files that cannot be changed as needed, or are missing; ``texts`` holds those of :func:`files`."""
    return _misfitting(EDITS, texts)


def _misfitting(edits: Iterable[Edit], texts: Mapping[str, str]) -> list[str]:
    unfit = (edit.file for edit in edits if edit.file not in texts or edit.fitting(texts[edit.file]) is None)
    return list(dict.fromkeys(unfit))


def digest() -> str:
    """Return what tells these edits from other ones, and what they include."""
    own = hashlib.sha256(repr((EDITS, OPTIONAL)).encode()).hexdigest()[:12]
    return SAME_AS.get(own, own)
