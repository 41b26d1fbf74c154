"""Completion by Tab: what bash offers after the script that ``fabric completion`` prints; zsh reads its own, too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from app.cli import main
from app.commands.catalogue import COMMANDS
from runs.registry import EXPERIMENTS
from topologies.load import builtin_names

_TRY = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_shtab_fabric fabric "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2> /dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The scripts by shell."""
    directory = tmp_path_factory.mktemp("completion")
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        for shell in ("bash", "zsh"):
            printed: list[str] = []
            patch.setattr("builtins.print", lambda text, printed=printed: printed.append(text))
            assert main(["completion", shell]) == 0
            found[shell] = directory / shell
            found[shell].write_text("".join(printed))
    return found


def offered(script: Path, *words: str, where: Path) -> list[str]:
    """Return what bash offers for the last of some words."""
    command = ["bash", "-c", _TRY, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=120, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["fabric", ""], [*COMMANDS]),
        (["fabric", "topo", ""], ["list", "show", "draw", "loops"]),
        (["fabric", "run", "iso"], ["isolation"]),
        (["fabric", "run", "--eng"], ["--engine"]),
        (["fabric", "run", "isolation", "--engine", ""], ["namespace", "virtual"]),
        (["fabric", "topo", "show", "fire_flyer_2_s"], ["fire_flyer_2_small", "fire_flyer_2_small_200g"]),
        (["fabric", "exec", "uneven"], ["uneven_small"]),
        (["fabric", "replay", "--topology", "fat_tree_k8"], ["fat_tree_k8", "fat_tree_k8_small"]),
        (["fabric", "check", "head"], ["head_of_line", "head_of_line_200g"]),
        (["fabric", "run", "mi"], ["mine.yaml"]),
        (["fabric", "view", "my"], ["my_folder"]),
        (["fabric", "virtual", "fetch", "mi"], ["mine.txt", "mine.yaml"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_completes(scripts: dict[str, Path], tmp_path: Path, words: list[str], found: list[str]) -> None:
    (tmp_path / "my_folder").mkdir()
    for name in ("mine.yaml", "mine.txt"):
        (tmp_path / name).touch()
    assert sorted(offered(scripts["bash"], *words, where=tmp_path)) == sorted(found)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_all_names_are_in_the_script(scripts: dict[str, Path], shell: str) -> None:
    words = set(scripts[shell].read_text().replace("'", " ").replace('"', " ").split())
    assert {*EXPERIMENTS, *builtin_names()} <= words


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_one_of_its_shell(scripts: dict[str, Path], shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n", str(scripts[shell])], check=True, timeout=120)


def test_the_script_is_written_where_it_is_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "new" / "fabric"
    assert main(["completion", "bash", "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"written: {path}; new shells use it\n"
    assert sorted(offered(path, "fabric", "rep", where=tmp_path)) == ["replay", "report", "reproduce"]
    assert main(["completion", "bash", "--out", str(tmp_path)]) == 2
    assert f"{tmp_path}: cannot be written (Is a directory); give another with --out" in capsys.readouterr().err


def test_a_shell_that_is_none_of_these_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "zhs"])
    assert ended.value.code == 2
    assert "argument shell: unknown value 'zhs'; did you mean zsh?" in capsys.readouterr().err
