"""What the first pages promise is there: so many questions, and topologies that load as their page writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from controllers.planning.planner import routing_faults
from controllers.routing import Routing
from topologies.load import load_fabric
from topologies.summary import summarize

ROOT = Path(__file__).parents[2]
ONES = ("", *["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50}
NUMBERS = {f"{ten}-{one}" if one else ten: tens + n for ten, tens in TENS.items() for n, one in enumerate(ONES)}
PAGE = (ROOT / "docs" / "topologies.md").read_text()
FILES = [block for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "name:" in block]


def test_the_readme_counts_the_questions_that_are_answered() -> None:
    questions = (ROOT / "docs" / "index.md").read_text().partition("## Questions and answers")[2].partition("\n## ")[0]
    answered = re.findall(r"^\| \[(\w+)\]\(results/(\w+)\.md\) \|", questions, re.MULTILINE)
    assert all(name == page for name, page in answered)
    assert {page for _, page in answered} == {path.stem for path in (ROOT / "docs" / "results").glob("*.md")}
    (said,) = re.findall(r"\[([\w-]+) questions and answers\]", (ROOT / "README.md").read_text())
    assert NUMBERS[said] == len(answered)


@pytest.mark.parametrize("text", FILES, ids=[yaml.safe_load(text)["name"] for text in FILES])
def test_each_file_of_the_page_of_topologies_is_complete(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    fabric = load_fabric(str(path))
    assert not list(routing_faults(fabric, Routing()))
    if fabric.name == "three_to_one":
        summary = summarize(fabric)
        assert (summary.oversubscription, summary.bisection_bps) == (3.0, 800e9)
        assert (summary.hosts, summary.leaves) == (48, 4)
    if fabric.name == "clos":
        assert (len(fabric.hosts), len(fabric.switches)) == (2, 3)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/network_engineer.md"])
def test_what_pages_promise_of_topologies_is_on_their_page(page: str) -> None:
    promised = [word for word in ("fat-trees", "containerlab", "htsim") if word in (ROOT / page).read_text()]
    assert promised == ["fat-trees", "containerlab", "htsim"]
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert {"Fat-trees", "containerlab's files", "htsim's topology files"} <= set(headings)
