"""Ranks that are forked: which commands start them, and what of a script's end is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from traffic.torch_gpus.forking import is_launcher, script_words

ROOT = Path(__file__).parents[3]


DRIVER = """
import os, sys, json
from traffic.torch_gpus.forking import RanksParent
parent = RanksParent()
codes = []
for script, *arguments in json.loads(sys.argv[1]):
    with open(script + ".out", "w") as out:
        rank = parent.start([script, *arguments], {**os.environ, "LOCAL_RANK": "3"}, (out, out))
    if arguments == ["until ended"]:
        codes.append(rank.poll())
        rank.terminate()
    codes.append(rank.wait(60))
    assert rank.poll() == codes[-1]
print(json.dumps(codes))
"""
"""Forks ranks, one after another, and prints how they ended."""


def ends(folder: Path, scripts: dict[str, str], **arguments: str) -> list[int | None]:
    """Return how forked ranks ended that ran scripts of such texts; their output is in ``NAME.out``."""
    for name, text in scripts.items():
        (folder / name).write_text(text)
    asked = [[str(folder / name), *([arguments[name]] if name in arguments else [])] for name in scripts]
    words = [sys.executable, "-c", DRIVER, json.dumps(asked)]
    around = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=around, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: list[int | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_launchers_are_known_by_their_words() -> None:
    assert is_launcher(["python3", "/usr/bin/torchrun", "train.py"])
    assert is_launcher(["python3", "-m", "torch.distributed.run", "train.py"])
    assert not is_launcher(["python3", "train.py", "torchrun.txt", "torchrun"])


def test_only_this_pythons_scripts_are_forked() -> None:
    assert script_words([sys.executable, "-u", "train.py", "-x"]) == ["train.py", "-x"]
    assert script_words([sys.executable, "-u", "-m", "train", "-x"]) == ["-m", "train", "-x"]
    assert script_words([sys.executable, "-W", "ignore", "train.py"]) is None
    assert script_words(["/bin/sh", "train.sh"]) is None


def test_a_rank_is_as_a_python_of_its_own(tmp_path: Path) -> None:
    text = (
        "import os, sys, atexit, beside\n"
        "atexit.register(print, 'at exit')\n"
        "print(__name__, sys.argv[1:], os.environ['LOCAL_RANK'], beside.VALUE, os.getsid(0) == os.getpid())\n"
    )
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    assert ends(tmp_path, {"script": text}, script="-x") == [0]
    assert (tmp_path / "script.out").read_text() == "__main__ ['-x'] 3 5 True\nat exit\n"


def test_how_a_rank_ends_is_told(tmp_path: Path) -> None:
    scripts = {
        "number": "raise SystemExit(7)", "text": "raise SystemExit('gone')", "error": "raise ValueError('told')",
        "ended": "import time; time.sleep(600)",
    }  # fmt: skip
    assert ends(tmp_path, scripts, ended="until ended") == [7, 1, 1, None, -15]
    assert (tmp_path / "text.out").read_text() == "gone\n"
    assert "ValueError: told" in (tmp_path / "error.out").read_text()


@pytest.mark.parametrize(
    ("also", "imported_by_ranks"),
    [
        ("", False),
        ("import os\nos.environ.get('LOCAL_RANK', 0)\n", True),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n", True),
        ("raise ImportError('not now')\n", True),
    ],
)
def test_what_scripts_import_is_imported_once_unless_ranks_would_differ(
    tmp_path: Path, also: str, imported_by_ranks: bool
) -> None:
    (tmp_path / "heavy.py").write_text(f"import os\nprint('imported by', os.getpid(), flush=True)\n{also}")
    text = "import os\ntry:\n    import heavy\nexcept ImportError:\n    pass\nprint('rank', os.getpid())\n"
    text = f"import heavy\n{text}" if "raise" not in also else text
    assert ends(tmp_path, {"one": text, "two": text}) == [0, 0]
    for name in ("one", "two"):
        said = (tmp_path / f"{name}.out").read_text().splitlines()
        assert len(said) == (2 if imported_by_ranks else 1), said
        rank = said[-1].split()[-1]
        assert not imported_by_ranks or said[0] == f"imported by {rank}"


def test_what_is_imported_sees_the_arguments_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "arguments.py").write_text("import sys\ndef given(words=sys.argv[1:]):\n    print(words)\n")
    assert ends(tmp_path, {"script": "import arguments\narguments.given()\n"}, script="-x") == [0]
    assert (tmp_path / "script.out").read_text() == "['-x']\n"
