"""Patches as replacements of text: what they say, where they fit, and what is not a patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.world.virtual.patch_files import Replacement, read_patch

PATCH = """\
Why it is so.

--- a comment may begin like this
--- a/net/one.c
+++ b/net/one.c
@@ -1,2 +1,4 @@ int before(void)
 kept
-gone
+come
+#include "more.c.inc"
+#include <linux/types.h>
@@ -9 +11 @@
-\tlast
+\t-- last
--- a/two.c
+++ b/two.c
@@ -3,1 +2,0 @@
-++ gone
"""


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    (tmp_path / "more.c.inc").write_text("int more;\nint and_more;\n")
    path = tmp_path / "subject.patch"
    path.write_text(PATCH)
    return path


def test_a_patch_says_what_is_in_place_of_what(patch: Path) -> None:
    included = "int more;\nint and_more;\n"
    assert read_patch(patch, patch.parent) == {
        "net/one.c": (
            Replacement("kept\ngone\n", f"kept\ncome\n{included}#include <linux/types.h>\n"),
            Replacement("\tlast\n", "\t-- last\n"),
        ),
        "two.c": (Replacement("++ gone\n", ""),),
    }


def test_a_replacement_fits_whole_lines_that_are_there_once_wherever_that_is() -> None:
    part = Replacement("a\nb\n", "c\n")
    assert part.apply("0\na\nb\n1\n") == "0\nc\n1\n"
    assert [part.fits(text) for text in ("a\nb\n", "0\na\nb\n", "a\nb", "aa\nb\n", "a\nb\na\nb\n", "")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_what_replaces_is_taken_as_it_is() -> None:
    """It is C, with backslashes."""
    assert Replacement("a\n", "\\1 \\n \\g<0>\n").apply("a\n") == "\\1 \\n \\g<0>\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (PATCH.replace("@@ -1,2 +1,4 @@", "@@ -1,2 +1,9 @@"), r"subject\.patch:12: not a line of the hunk of 2 lines"),
        (PATCH.replace(" kept\n", ""), r"subject\.patch:11: not a line of the hunk"),
        (PATCH.replace("@@ -1,2 +1,4 @@", "@@ -1,2 +1,3 @@"), r"subject\.patch:11: neither a hunk nor the next file"),
        (PATCH.removesuffix("-++ gone\n"), "subject.patch: ends within a hunk; complete it"),
        ("Nothing.\n", "subject.patch: changes nothing; give it a hunk"),
        ("+++ b/one.c\n@@ -1,0 +2,1 @@\n+new\n", "subject.patch:3: no line of the hunk is there before"),
    ],
    ids=["too many", "too few", "uncounted", "cut off", "empty", "nowhere"],
)
def test_what_is_no_patch_is_named_with_its_line(patch: Path, text: str, error: str) -> None:
    patch.write_text(text)
    with pytest.raises(ValueError, match=error):
        read_patch(patch, patch.parent)


def test_what_a_patch_includes_must_be_there(patch: Path) -> None:
    (patch.parent / "more.c.inc").unlink()
    with pytest.raises(FileNotFoundError, match=r"more\.c\.inc"):
        read_patch(patch, patch.parent)
