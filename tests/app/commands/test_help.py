"""What help says of every command, and what is said to words that are none."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from app import cli
from app.cli import main
from app.commands.catalogue import COMMANDS
from app.commands.parsers import CommandParser, HelpFormatter


def parsers() -> Iterator[CommandParser]:
    """Yield the parsers of all commands, and of theirs."""
    for name in COMMANDS:
        nested = cli.parser_for([name]).nested()
        assert nested is not None
        yield from nested[name].with_nested()


PARSERS = list(parsers())
EXAMPLES = [line for command in COMMANDS.values() for line in command.examples]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Return the usage line and the error with which words end that are wrong."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    usage, _, rest = err.rstrip("\n").rpartition("\n")
    return usage, rest


def test_the_command_alone_shows_its_help_and_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    for words in (["--help"], ["help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert (ended.value.code, capsys.readouterr().out) == (0, err)


def test_help_has_every_command_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    found: dict[str, str] = {}
    group = ""
    for line in capsys.readouterr().out.splitlines():
        if line and not line.startswith(" ") and line.endswith(":"):
            group = line.removesuffix(":")
        words = line.split()
        if line.startswith("  ") and words[0] in COMMANDS:
            assert words[0] not in found
            found[words[0]] = group
    assert found == {name: command.group for name, command in COMMANDS.items()}


def test_help_of_a_command_may_be_asked_for_as_with_git(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "topo", "show"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: fabric topo show ")


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"fabric {version('ai-fabric-emulator')}\n"


def is_free_to_say_nothing(action: argparse.Action) -> bool:
    """Whether an option has no default that could be told: a switch, or one that must be given."""
    return action.nargs == 0 or action.required


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_every_argument_has_help_and_every_option_its_default(parser: CommandParser) -> None:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or action.nargs == argparse.PARSER:
            continue
        assert action.help, f"{parser.prog}: {action.option_strings or action.dest} has no help"
    for action in parser.options():
        if not is_free_to_say_nothing(action):
            shown = HelpFormatter("")._get_help_string(action) or ""
            assert "default" in shown or "may be repeated" in shown, f"{parser.prog} {action.option_strings}: {shown}"


def test_a_default_is_shown_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["shell", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "which of several equal paths packets take (default: static)" in shown
    assert "(default: 4GiB, more for large fabrics)" in shown


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_every_command_has_examples(parser: CommandParser) -> None:
    if parser.prog == "fabric virtual" or parser.nested() is None:
        assert parser.epilog is not None
        assert f"  {parser.prog}" in parser.epilog
    assert parser.description or " " in parser.prog.removeprefix("fabric ")


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_commands(line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "fabric"
    ours = words[1 : words.index("--")] if "--" in words else words[1:]
    assert callable(cli.parser_for(ours).parsed(ours).command)


def test_help_does_not_say_that_virtual_time_needs_root() -> None:
    assert [name for name, command in COMMANDS.items() if "root" in command.help] == ["calibrate"]
    for parser in PARSERS:
        if any("--engine" in action.option_strings for action in parser.options()):
            shown = " ".join(parser.format_help().split())
            assert "namespace: real time, needs root; virtual: exact, in virtual time, without root" in shown
            assert "(root)" not in shown


def test_usage_of_exec_ends_with_the_program() -> None:
    (parser,) = (one for one in PARSERS if one.prog == "fabric exec")
    assert parser.format_usage() == "usage: fabric exec [OPTION ...] TOPOLOGY HOST [HOST ...] -- PROGRAM [ARG ...]\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("rnu", "fabric: error: unknown command fabric rnu; did you mean run?"),
        ("topo shwo", "fabric topo: error: unknown command fabric topo shwo; did you mean show?"),
        ("run isolation --enigne virtual", "fabric run: error: unknown option --enigne; did you mean --engine?"),
        ("run isolation --enigne=virtual", "fabric run: error: unknown option --enigne; did you mean --engine?"),
        ("topo show a --jsno", "fabric topo show: error: unknown option --jsno; did you mean --json?"),
        ("run isolation --zzzz", "fabric run: error: unknown option --zzzz; see fabric run --help"),
        ("topo show a b c", "fabric topo show: error: too many arguments: c; see fabric topo show --help"),
        (
            "run a --engine virtal",
            "fabric run: error: argument --engine: unknown value 'virtal'; did you mean virtual?",
        ),
        (
            "shell a --queueing zzz",
            "fabric shell: error: argument --queueing: unknown value 'zzz'; choose from shared, lanes, lossless, "
            "lossless_lanes, trimmed",
        ),
        ("path T A", "fabric path: error: the following arguments are required: HOST_B"),
    ],
)
def test_wrong_words_are_answered_with_the_nearest_right_one(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, told = said(capsys, *words.split())
    assert told == error
    assert usage.startswith("usage: " + error.partition(":")[0])


def test_a_word_like_no_command_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "zzz")[1]
    assert told.startswith("fabric: error: unknown command fabric zzz; choose from list, keys, run, ")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["topo", "list"]])
def test_quick_answers_load_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\nfrom app.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as ended:\n    code = ended.code\n"
        "assert code == 0\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    heavy = {"numpy", "pandas", "matplotlib", "pyarrow", "mininet", "ryu", "scapy", "runs.registry"}
    light = set() if words == ["topo", "list"] else {"pydantic", "rich", "yaml"}
    assert not set(done.stderr.split()) & (heavy | light)
