"""The documents: their links lead somewhere, their commands parse, every check of a verdict is described, and they are
short enough to be read."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import cli
from tests.english import not_english

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "generated"
SITE = sorted(path for path in (ROOT / "docs").rglob("*.md") if GENERATED not in path.parents)
NOTES = sorted((ROOT / "design").rglob("*.md"))
"""Design notes and former figures, for who changes the program: not in the site."""
MARKDOWN = sorted([*ROOT.glob("*.md"), *SITE, *NOTES])
MOST_WORDS = 60_000
"""What all pages of the site together may have: what a page gains, another loses. Design notes do not count."""
OUTSIDE = ("http://", "https://", "mailto:")
LINK = re.compile(r"\]\(([^)\s]+)\)")
WITHOUT_TEXT = re.compile(r"(?<!!)\[\s*\](\([^)\s]+\))")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOCTREE_PREFIXES = (":", "generated/")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def id_of(value: Path | str) -> str:
    return name_of(value) if isinstance(value, Path) else value


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a document: its headings as GitHub and MyST make them, and explicit targets."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", text), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def links() -> Iterator[tuple[Path, str]]:
    for path in MARKDOWN:
        for target in LINK.findall(FENCE.sub("", path.read_text())):
            if not target.startswith(OUTSIDE):
                yield path, target


def commands() -> Iterator[tuple[Path, str]]:
    """Yield each ``fabric ...`` line of a code block."""
    for path in MARKDOWN:
        for block in FENCE.findall(path.read_text()):
            for line in block.splitlines():
                command = line.strip().removeprefix("sudo ").removeprefix(".venv/bin/")
                if command.startswith("fabric "):
                    yield path, command


def entries() -> Iterator[tuple[Path, str]]:
    """Yield each page that a table of contents names."""
    for path in MARKDOWN:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
            for line in filter(None, map(str.strip, block.splitlines())):
                if not line.startswith(TOCTREE_PREFIXES):
                    yield path, line


def test_documents_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/verdict.md"} <= {name_of(path) for path in MARKDOWN}
    assert len(list(links())) > 30
    assert len(list(commands())) > 20


@pytest.mark.parametrize(("path", "target"), links(), ids=id_of)
def test_links_lead_somewhere(path: Path, target: str) -> None:
    file, _, anchor = target.partition("#")
    found = (path.parent / file).resolve() if file else path
    assert found.exists(), f"{name_of(path)}: {target}: there is no {found}"
    if anchor:
        assert anchor in anchors_of(found.read_text()), f"{name_of(path)}: {target}: {file} has no heading {anchor}"


def test_links_have_a_text() -> None:
    """Sphinx would fill in the page's title; GitHub shows nothing."""
    without = [
        f"{name_of(path)}: {target}"
        for path in MARKDOWN
        for target in WITHOUT_TEXT.findall(FENCE.sub("", path.read_text()))
    ]
    assert without == []


def test_links_of_the_site_stay_in_it() -> None:
    """Sphinx knows no page outside ``docs``."""
    site = ROOT / "docs"
    outside = [
        f"{name_of(path)}: {target}"
        for path, target in links()
        if path in SITE and not (path.parent / target.partition("#")[0]).resolve().is_relative_to(site)
    ]
    assert outside == []


@pytest.mark.parametrize(("path", "entry"), entries(), ids=id_of)
def test_tables_of_contents_name_pages(path: Path, entry: str) -> None:
    assert (path.parent / f"{entry}.md").is_file()


def test_every_page_is_in_a_table_of_contents() -> None:
    named = {(path.parent / f"{entry}.md").resolve() for path, entry in entries()}
    assert {path for path in SITE if path.name != "index.md"} == named


def test_the_design_notes_are_listed() -> None:
    """Their list, ``design/README.md``, links to each of them."""
    listed = {(path.parent / target.partition("#")[0]).resolve() for path, target in links() if path in NOTES}
    assert set(NOTES) - listed == {ROOT / "design" / "README.md"}


def test_the_site_is_short_enough_to_be_read() -> None:
    words = {name_of(path): len(path.read_text().split()) for path in SITE}
    longest = sorted(words, key=words.__getitem__)[-5:]
    assert sum(words.values()) <= MOST_WORDS, f"longest pages: { {name: words[name] for name in longest} }"


def test_every_image_is_shown() -> None:
    shown = {(path.parent / target).resolve() for path, target in links() if target.endswith(".png")}
    assert shown == set((ROOT / "docs" / "images").iterdir())


def test_the_site_is_written_in_an_engineers_english() -> None:
    faults = [
        f"{name_of(path)}: {fault}"
        for path in [*SITE, ROOT / "README.md"]
        for fault in not_english(" ".join(FENCE.sub("", path.read_text()).split()))
    ]
    assert faults == []


@pytest.mark.parametrize(("path", "command"), commands(), ids=id_of)
def test_commands_parse(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command, comments=True)[1:]
    ours = next((words[:place] for place, word in enumerate(words) if word in ("--", "|")), words)
    try:
        options = cli.parser_for(ours).parse_args(ours)
    except SystemExit:
        pytest.fail(f"{name_of(path)}: {command}: {capsys.readouterr().err}")
    assert callable(options.command)


def names_of_checks() -> set[str]:
    """Return the names of all checks that the code makes."""
    found: set[str] = set()
    for path in [path for name in ("fabric", "runs", "experiments") for path in (ROOT / name).rglob("*.py")]:
        tree = ast.parse(path.read_text())
        constants = dict(pair for node in ast.walk(tree) for pair in _string_constants(node))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Check", "_worst_full")
            ):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
                elif isinstance(first, ast.Name) and first.id in constants:
                    found.add(constants[first.id])
    return found


def _string_constants(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an assignment gives to strings, singly or several at once."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    else:
        pairs = [(target, value)]
    for name, text in pairs:
        if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield name.id, text.value


def test_every_check_of_a_verdict_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "verdict.md").read_text(), re.MULTILINE))
    described |= {"virtual_time"} & set(re.findall(r"`(\w+)`", (ROOT / "docs" / "verdict.md").read_text()))
    statuses = {"faithful", "degraded", "invalid"}
    assert described - statuses == names_of_checks()
