"""Take the pictures of ``fabric view`` in docs/images anew, in headless Chromium.

    fabric run head_of_line --engine virtual --no-figures --out /tmp/h
    fabric run link_flap --engine virtual --no-figures --out /tmp/l
    fabric run isolation --engine virtual --no-figures --out /tmp/i
    fabric run experiments/shared_cluster/cluster_day.yaml --engine virtual --no-figures --out /tmp/c
    .venv/bin/python tools/view_pictures.py /tmp/h /tmp/l /tmp/i /tmp/c

The whole Fire-Flyer 2 has made-up samples, which its picture says in place of a verdict.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments import load  # noqa: E402
from fabric.report.view.document import write_page  # noqa: E402
from fabric.report.view.model import view_of  # noqa: E402
from runs.launching.result_ways import ways_of  # noqa: E402
from tests.browser import Browser, started, tab  # noqa: E402
from tests.full_fabric_result import write_full_result  # noqa: E402

WIDTH, HEIGHT = 1300, 760
DRAWN_S = 1.5
"""After a change, until charts and map are drawn."""
FIRST_ROW_UNDER = (
    "let rest = [...document.querySelectorAll('#panel *')];"
    "for (const words of arguments) rest = rest.slice(rest.findIndex("
    "    one => !one.children.length && one.textContent.includes(words)) + 1);"
    "rest.find(one => one.matches('tr.leads')).click()"
)
"""Click the first row after the first of some words and, after these, the next."""
SAME_PHASE_TWICE = (
    "const of = queueing => `0/${fabricView.runs[0].phases.find(one => one.meta.queueing === queueing).number}`;"
    "fabricView.showMain(of('lossless')).then(() => fabricView.showBeside(of('lossless_lanes')))"
)
FIRST_USERS_JOB = (
    "const found = fabricView.users.all[0], job = found.jobs[0];"
    "return fabricView.moveTo(job.lives[job.lives.length - 1].started_s + 5)"
    ".then(() => fabricView.choose(fabricView.users.choice(found, job)))"
)
"""Choose the job that was submitted first, while its last life plays."""
INTO_THE_CUT_S = 0.3
ZOOM_TO_PHASE = (
    "const page = fabricView, at = page.main.run.phaseAt(page.time);"
    "page.choose(null); page.showMain(`${page.main.run.number}/${at.number}`)"
    ".then(() => page.moveTo(page.time + arguments[0]))"
)
NO_VERDICT = (
    "const badge = document.getElementById('verdict'); badge.textContent = 'made-up samples';"
    "badge.style.background = '#6b6b6b'"
)


def opened(window: Browser, directory: Path, folder: Path, dark: bool = False) -> None:
    """Write the page of a result and open it in the window."""
    result, path = load(directory), folder / f"{directory.name}.html"
    write_page([view_of(result, ways_of(result))], path)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    window.open(path.as_uri())


def save(window: Browser, name: str) -> None:
    """Save what the window shows; end the program if the page reported an error."""
    time.sleep(DRAWN_S)
    window.driver.save_screenshot(str(ROOT / "docs" / "images" / f"view-{name}.png"))
    if errors := window.errors():
        sys.exit(f"view-{name}.png: the page wrote to its console: {errors}")


def main() -> None:
    """Take all six pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("head_of_line", "link_flap", "isolation", "cluster_day"):
        parser.add_argument(name, type=Path, help=f"the result of {name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, started() as chromium, tab(chromium) as window:
        folder = Path(made)
        opened(window, options.head_of_line, folder)
        window.run(FIRST_ROW_UNDER, "Roots of congestion trees")
        save(window, "tree")
        opened(window, options.link_flap, folder)
        window.run(FIRST_ROW_UNDER, "Cuts")
        window.run(ZOOM_TO_PHASE, INTO_THE_CUT_S)
        save(window, "cut")
        opened(window, options.isolation, folder)
        window.run(FIRST_ROW_UNDER, "got least", "all in lanes")
        save(window, "lanes")
        opened(window, options.cluster_day, folder)
        window.run(FIRST_USERS_JOB)
        save(window, "platform")
        opened(window, options.head_of_line, folder, dark=True)
        window.run(SAME_PHASE_TWICE)
        save(window, "beside")
        opened(window, write_full_result(folder / "full"), folder)
        window.run(NO_VERDICT)
        save(window, "full")


if __name__ == "__main__":
    main()
