"""What users ask a cluster that is up, in another terminal than ``fabric cluster up``, and of one that is down."""

from __future__ import annotations

import argparse
import getpass
import io
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from app.commands.options import add_json_option, time_s
from fabric.errors import TrafficError, UsageError
from runs.console import print_tables, tell

if TYPE_CHECKING:  # What needs nothing of a cluster, such as help, does not wait for it.
    from cluster.platform.client import Gateway
    from cluster.platform.requests import Asked
    from cluster.platform.responses import AboutCluster, JobBrief, LifeOfJob, LogPiece, Response

A = TypeVar("A", bound="Response")
_LOOK_S = 0.5
_AGAIN_S = 60.0
"""How long it is asked for again what is not answered: a scheduler that was killed is there again by then."""
_TOKEN_BYTES = 16
_DOWN_S = 300.0
"""How long a cluster may take to end: what runs saves, switches stop."""
WIDE = 4
_PRIVATE = ("/tmp", "/run", "/dev")


def add_question_options(commands: Any) -> None:
    """Define the commands that ask."""
    _add_submit(commands.add_parser("submit", help="submit a program: it runs on each of its nodes"))
    one = commands.add_parser("describe", help="a job with all its lives: nodes, times, reasons, events")
    _add_job(one)
    add_usual(one, show_description, is_read=True)
    _add_logs(commands.add_parser("logs", help="what a rank of a job printed"))
    one = commands.add_parser("suspend", help="have jobs save and leave their nodes; they wait again, as before")
    _add_job(one, "+")
    add_usual(one, suspend_jobs)
    one = commands.add_parser("hold", help="have jobs wait until they are released; one that runs saves and leaves")
    _add_job(one, "+")
    add_usual(one, hold_jobs)
    one = commands.add_parser("release", help="let jobs start again that are held")
    _add_job(one, "+")
    add_usual(one, release_jobs)
    one = commands.add_parser("stop", aliases=["cancel"], help="end jobs for good")
    _add_job(one, "+")
    add_usual(one, stop_jobs)
    one = commands.add_parser("validate", help="have nodes checked, with packets, once they are idle")
    one.add_argument("nodes", nargs="+", metavar="NODE", help="nodes by their names; those that fail are taken out")
    add_usual(one, validate_nodes)
    one = commands.add_parser("down", help="end a cluster: what runs saves, and waits in its journal")
    add_usual(one, end_cluster)


def add_usual(parser: argparse.ArgumentParser, command: Any, is_read: bool = False) -> None:
    """Define which cluster is asked, and how it is printed. ``is_read``: one that is down answers, too."""
    which = "of one that is down, too" if is_read else "see fabric cluster up --out"
    text = f"the cluster's folder, {which} (default: the only one that is up)"
    parser.add_argument("--in", type=Path, metavar="DIR", dest="folder", help=text)
    add_json_option(parser)
    parser.set_defaults(command=command)


def _add_job(parser: argparse.ArgumentParser, count: str | None = None) -> None:
    text = "the job's number, as fabric cluster list has it"
    parser.add_argument("job", type=int, nargs=count, metavar="JOB", help=text)


def _add_submit(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} [OPTION ...] -- PROGRAM [ARG ...]\n       {parser.prog} [OPTION ...] --graph KEYS|FILE"
    )
    nodes = "how many whole nodes it asks for (default: 1, or as many as its graph takes)"
    parser.add_argument("--nodes", type=int, metavar="N", help=nodes)
    parser.add_argument(
        "--name", metavar="NAME", help="what it is called (default: as the program, model, file or collective)"
    )
    graph = "play a training graph or another one: keys of a job's graph:, as YAML or in a file (default: a program)"
    parser.add_argument("--graph", metavar="KEYS|FILE", help=graph)
    calls = "likewise a collective, e.g. '{begin: 1 MiB, steps: 20}', keys of a job's collective: (default: a program)"
    parser.add_argument("--collective", metavar="KEYS|FILE", help=calls)
    parser.add_argument("--user", metavar="USER", help="whose it is, for quotas and priorities (default: you)")
    levels = "EXTREME_HIGH, VERY_HIGH, HIGH, ABOVE_NORMAL, NORMAL, UNDER_NORMAL or AUTO"
    group = "a group of nodes, as the config's groups have them"
    parser.add_argument("--group", default="training", metavar="NAME", help=group)
    parser.add_argument("--priority", default="NORMAL", metavar="NAME", help=levels)
    limit = "after how long it ends at the latest, e.g. '10 min', which backfilling asks for (default: not known)"
    parser.add_argument("--limit", type=time_s, metavar="TIME", help=limit)
    parser.add_argument("--wait", action="store_true", help="wait until it has ended, and end with its exit code")
    add_usual(parser, submit)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    _add_job(parser)
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="which of its ranks")
    life = "which of its lives, as fabric cluster describe has them (default: the last one that had nodes)"
    parser.add_argument("--life", type=int, metavar="N", help=life)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended, life after life")
    add_usual(parser, show_logs, is_read=True)


# Who is asked --------------------------------------------------------------------------------------------------------


class Answers(Protocol):
    """Who answers."""

    def ask(self, question: Asked, kind: type[A]) -> A:
        """Return the answer. Raises UsageError if the question is refused, TrafficError if nobody answers."""


class _Up:
    """A cluster that is up."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def ask(self, question: Asked, kind: type[A]) -> A:
        """Return what it answers, once its fabric is up."""
        self.gateway.until_up()
        return self.gateway.ask(question, kind)


class _Down:
    """The folder of a cluster that is down, which answers what needs no scheduler."""

    def __init__(self, folder: Path) -> None:
        from app.commands.cluster_config import config_of

        found = config_of(folder)
        self._folder, self._users = folder, found.config.users_of
        self._nodes = found.config.listed(found.fabric)

    def ask(self, question: Asked, kind: type[A]) -> A:
        """Return what follows from its journal."""
        from app.commands.cluster_config import journal_of
        from cluster.platform.client import response_of
        from cluster.platform.queries import Snapshot
        from cluster.platform.requests import REQUESTS, Question
        from cluster.platform.responses import RESPONSES, FailuresListed
        from cluster.platform.scheduler_server import answer_query, unless_faulty

        def answer() -> Response:
            snapshot = Snapshot.read(journal_of(self._folder), self._nodes, self._users)
            if isinstance(question, Question):
                return answer_query(snapshot, question)
            return FailuresListed(snapshot.asked_s)  # All is whole once it is down.

        found = unless_faulty(REQUESTS.kind_of(type(question)), answer)
        return response_of(RESPONSES.to_values(found), kind)


@contextmanager
def asked(options: argparse.Namespace, is_read: bool = False) -> Iterator[Answers]:
    """Yield who answers: the cluster that is up, or, of what is only read, a folder."""
    from cluster.platform.client import Gateway, clusters_up, the_one

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Names of programs and folders need be no UTF-8.
    up = clusters_up()
    if is_read and options.folder is not None and not any(one.folder == options.folder.absolute() for one in up):
        yield _Down(options.folder)
        return
    with Gateway(the_one(up, options.folder).name) as gateway:
        yield _Up(gateway)


def printed(options: argparse.Namespace, answer: Any, words: str) -> int:
    """Print an answer, as JSON or in words, and return the exit code."""
    print(json.dumps(as_json(answer), indent=1) if options.json else words)
    return 0


def as_json(found: Any) -> Any:
    """Return answers, and what holds some, as values of JSON."""
    from cluster.platform.codec import json_values

    if isinstance(found, Mapping):
        return {key: as_json(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return list(map(as_json, found))
    return json_values(found) if is_dataclass(found) else found


# Orders --------------------------------------------------------------------------------------------------------------


def submit(options: argparse.Namespace, _: list[str]) -> int:
    """Submit a program, a graph or a collective; with ``--wait``, wait for its end and return its exit code."""
    from cluster.platform.requests import Who
    from cluster.platform.responses import AboutCluster
    from cluster.tasks import Priority
    from fabric.suggestions import one_of

    levels = [level.name for level in Priority]
    if options.priority not in levels:
        raise UsageError(f"--priority {options.priority}: use {one_of(levels)}")
    what = _what_is_submitted(options)
    with asked(options) as cluster:
        about = cluster.ask(Who(), AboutCluster)
        _require_seen(about, Path.cwd())
        nodes, command = what.on(about, options.nodes)
        spec = {
            "name": options.name or what.name,
            "user": options.user or _user(),
            "nodes": nodes,
            "group": options.group,
            "command": command,
            "priority": Priority[options.priority].value,
            "limit_s": options.limit,
            "directory": str(Path.cwd()),
        }
        number = submitted(cluster, spec)
        if options.wait:
            return _wait(cluster, number, options)
    return printed(options, {"number": number}, f"job {number} is submitted: fabric cluster describe {number}")


def submitted(cluster: Answers, spec: Mapping[str, Any], again_s: float = _AGAIN_S) -> int:
    """Return the number of a job that is submitted once, however often it is asked for: one whose answer was lost with
    the scheduler has a token, by which that knows it. Raises TrafficError if no answer comes for ``again_s``."""
    from cluster.platform.requests import Submit
    from cluster.platform.responses import JobTaken

    question = Submit(spec, secrets.token_hex(_TOKEN_BYTES))
    look = "whether the job was taken is not known: fabric cluster list"
    return answered(cluster, question, JobTaken, again_s, ", for the same job", look).number


def answered(
    cluster: Answers, question: Asked, kind: type[A], again_s: float = _AGAIN_S, how: str = "", else_do: str = ""
) -> A:
    """Return what a cluster answers a question that may be asked again, also if it does not for a while. ``how`` and
    ``else_do``: what is said of the former and the latter. Raises TrafficError if no answer comes for ``again_s``."""
    from cluster.platform.client import UnansweredError

    until_s = time.monotonic() + again_s
    while True:
        try:
            return cluster.ask(question, kind)
        except UnansweredError as error:
            if time.monotonic() >= until_s:
                words = [str(error), f"asked again for {again_s:g} s", *([else_do] if else_do else [])]
                raise TrafficError("; ".join(words)) from error
            tell(f"{error}; asking again{how}")
            time.sleep(_LOOK_S)


class _Program:
    """A program that is submitted."""

    def __init__(self, words: list[str]) -> None:
        if not words:
            raise UsageError("no program; write it after two dashes: fabric cluster submit --nodes 2 -- PROGRAM")
        if shutil.which(words[0]) is None:
            raise UsageError(f"program {words[0]}: not found, or not executable; give its path, or one on your PATH")
        self._words, self.name = words, Path(words[0]).name

    def on(self, about: AboutCluster, nodes: int | None) -> tuple[int, list[str]]:
        """Return how many nodes it asks for, and its words."""
        return 1 if nodes is None else nodes, self._words


class _Graph:
    """A graph or a collective that is submitted. ``given``: its keys as YAML, or the path of a file with them."""

    def __init__(self, kind: str, given: str) -> None:
        from cluster.platform.graph_jobs import GraphFile
        from fabric.config import checked, parse_yaml, read_yaml

        source = f"--{kind}"
        keys = parse_yaml(given, source) if given.lstrip().startswith("{") else read_yaml(Path(given))
        # A file of its own may say which of both it is, as a job of a config does.
        keys = keys[kind] if isinstance(keys, dict) and set(keys) == {kind} else keys
        self._kind, self._job = kind, checked(GraphFile, {kind: keys}, source).one
        self.name = self._job.title

    def on(self, about: AboutCluster, nodes: int | None) -> tuple[int, list[str]]:
        """Return how many nodes it asks for, and what they run. Raises UsageError for what cannot be on the fabric."""
        from app.commands.cluster_config import config_of

        for path in self._job.paths:
            _require_seen(about, path)
        fabric = config_of(Path(about.folder)).fabric
        wanted = nodes
        if wanted is None and (wanted := self._job.nodes_on(fabric)) is None:
            raise UsageError(f"--{self._kind}: is of any number of nodes; say how many: --nodes 4")
        if faults := list(self._job.faults(fabric, wanted)):
            raise UsageError("\n".join(f"--{self._kind}: {fault}" for fault in faults))
        return wanted, list(self._job.command)


def _what_is_submitted(options: argparse.Namespace) -> _Program | _Graph:
    program = list(options.program)
    kinds = {kind: given for kind in ("graph", "collective") if (given := getattr(options, kind)) is not None}
    if len(kinds) + bool(program) > 1:
        told = [*(f"--{kind}" for kind in kinds), *(["a program"] if program else [])]
        raise UsageError(f"{' and '.join(told)}: a job is one of them; leave the others out")
    for kind, given in kinds.items():
        return _Graph(kind, given)
    return _Program(program)


def _require_seen(about: AboutCluster, directory: Path) -> None:
    """Raise UsageError if a guest does not see where the program is to run, or a file that it reads."""
    hidden = any(directory.is_relative_to(one) for one in _PRIVATE)
    if about.sees is None or not hidden or any(directory.is_relative_to(one) for one in about.sees):
        return
    seen = ", ".join(about.sees) or "none"
    raise UsageError(
        f"{directory}: is not seen in the guest, which has a /tmp, a /run and a /dev of its own (it sees of these: "
        f"{seen}); submit from elsewhere, or call fabric cluster up in a directory above"
    )


def _user() -> str:
    return os.environ.get("SUDO_USER") or getpass.getuser()


def _wait(cluster: Answers, number: int, options: argparse.Namespace) -> int:
    tell(f"job {number} is submitted; waiting for its end (Ctrl-C leaves it alone)")
    try:
        while (job := _brief(cluster, number)).ended_s is None:
            time.sleep(_LOOK_S)
    except TrafficError as error:
        raise TrafficError(f"{error}\njob {number} had not ended; its folder's journal has it") from error
    lives = f" in {job.lives} lives" if job.lives > 1 else ""
    why = f": {job.why}" if job.code and job.why else ""
    printed(options, job, f"job {number} ended with code {job.code}{lives}{why}")
    return job.code or 0


def _brief(cluster: Answers, number: int) -> JobBrief:
    from cluster.platform.requests import ListJobs
    from cluster.platform.responses import JobsListed

    (job,) = answered(cluster, ListJobs(number - 1, 1), JobsListed).jobs
    return job


def suspend_jobs(options: argparse.Namespace, _: list[str]) -> int:
    """Suspend jobs."""
    from cluster.platform.requests import SuspendJob

    return _order(options, SuspendJob, "has to save and to leave; it waits again")


def hold_jobs(options: argparse.Namespace, _: list[str]) -> int:
    """Hold jobs."""
    from cluster.platform.requests import HoldJob

    return _order(options, HoldJob, "is held until it is released")


def release_jobs(options: argparse.Namespace, _: list[str]) -> int:
    """Release jobs."""
    from cluster.platform.requests import ReleaseJob

    return _order(options, ReleaseJob, "may start again")


def stop_jobs(options: argparse.Namespace, _: list[str]) -> int:
    """End jobs."""
    from cluster.platform.requests import CancelJob

    return _order(options, CancelJob, "is stopped")


def _order(options: argparse.Namespace, order: Callable[[int], Asked], done: str) -> int:
    """Order it of each job; those that can be are, and the others are named."""
    from cluster.platform.responses import Done

    well, refused = [], []
    with asked(options) as cluster:
        for number in options.job:
            try:
                cluster.ask(order(number), Done)
                well.append(number)
            except UsageError as error:
                refused.append(f"job {error}")
    if well or not refused:
        printed(options, {"done": well, "refused": refused}, "\n".join(f"job {number} {done}" for number in well))
    if refused:
        raise UsageError("\n".join(refused))
    return 0


def validate_nodes(options: argparse.Namespace, _: list[str]) -> int:
    """Have nodes validated."""
    from cluster.platform.requests import ValidateNodes
    from cluster.platform.responses import Done

    with asked(options) as cluster:
        cluster.ask(ValidateNodes(tuple(options.nodes)), Done)
    words = f"{', '.join(options.nodes)}: validated once idle; who fails is out, and why: fabric cluster nodes"
    return printed(options, {"nodes": options.nodes}, words)


def end_cluster(options: argparse.Namespace, _: list[str]) -> int:
    """End a cluster, and wait until it has."""
    from cluster.platform.client import Gateway, clusters_up, the_one
    from cluster.platform.requests import GoDown
    from cluster.platform.responses import Done

    one = the_one(clusters_up(), options.folder)
    with Gateway(one.name) as gateway:
        gateway.ask(GoDown(), Done)
        gateway.until_gone(_DOWN_S)
    return printed(options, {"folder": str(one.folder)}, f"down; journal and logs: {one.folder}")


# Questions -----------------------------------------------------------------------------------------------------------


def show_description(options: argparse.Namespace, _: list[str]) -> int:
    """Print a job with its lives and events."""
    import shlex

    from cluster.platform.event_lines import document, line_of_job
    from cluster.platform.events import Saved
    from cluster.platform.requests import DescribeJob
    from cluster.platform.responses import JobDescribed

    with asked(options, is_read=True) as cluster:
        found = cluster.ask(DescribeJob(options.job), JobDescribed)
    if options.json:
        return printed(options, {**as_json(found), "events": list(map(document, found.events))}, "")
    job = found.job
    ended = "" if job.ended_s is None else f", ended at {job.ended_s:.1f} s with code {job.code}"
    print(f"job {job.number}: {job.name} of {job.user}, {job.asks} nodes at {job.priority}")
    print(f"  {shlex.join(job.command)}")
    print(f"  in {job.directory}" if job.directory else "  in a folder of each rank's own")
    print(f"  {job.state.value}; submitted at {job.submitted_s:.1f} s{ended}; it is {found.now_s:.1f} s")
    for value, words in ((job.step, "last checkpoint: step"), (job.waits, "waits:"), (job.why, "why:")):
        if value not in (None, ""):
            print(f"  {words} {value}")
    title = "Lives" + (f" (the first {found.lives_left_out} are left out)" if found.lives_left_out else "")
    columns = ["life", "nodes, by rank", "started", "told", "left", "code", "step"]
    print_tables([{"title": title, "columns": columns, "rows": list(map(_life_row, found.lives))}])
    for event in (one for one in found.events if not isinstance(one, Saved)):
        print(line_of_job(event))
    return 0


def _life_row(life: LifeOfJob) -> list[Any]:
    from cluster.platform.event_lines import shortened

    def at(time_s: float | None) -> str:
        return "" if time_s is None else f"{time_s:.1f} s"

    told = "" if life.told is None else f"{life.told.value} at {at(life.told_s)}"
    nodes = shortened(life.nodes, WIDE)
    return [life.life, nodes, at(life.started_s), told, at(life.left_s), life.code, life.step]


def show_logs(options: argparse.Namespace, _: list[str]) -> int:
    """Print what a rank printed, and, if that is asked for, go on until its job has ended."""
    lives: dict[int | None, list[LogPiece]] = {}
    with asked(options, is_read=True) as cluster:
        for piece in pieces(cluster, options):
            if options.json:
                lives.setdefault(piece.life, []).append(piece)
            else:
                sys.stdout.buffer.write(piece.data)
                sys.stdout.buffer.flush()
    return printed(options, list(map(_whole_log, lives.values())), "") if options.json else 0


def _whole_log(of_life: Sequence[LogPiece]) -> dict[str, Any]:
    first, text = of_life[0], b"".join(one.data for one in of_life).decode(errors="replace")
    return {"life": first.life, "rank": first.rank, "node": first.node, "text": text}


def pieces(cluster: Answers, options: argparse.Namespace) -> Iterator[LogPiece]:
    """Yield pieces of a log as they come: of one life, or with ``follow`` and no life of each in turn."""
    from cluster.platform.requests import ReadLog
    from cluster.platform.responses import LogPiece

    question = ReadLog(options.job, options.rank)
    life, offset = options.life, 0
    while True:
        answer = answered(cluster, replace(question, life=life, offset=offset), LogPiece)
        if answer.life is None:
            if not options.follow:
                tell(f"job {options.job} has had no nodes yet: nothing is printed")
                return
        else:
            life = answer.life
            if answer.text:
                yield answer
            offset = answer.offset
        if answer.text:
            continue
        if not options.follow or (answer.is_all and (options.life is not None or answer.is_over)):
            return
        if answer.is_all and (newer := answered(cluster, question, LogPiece).life) != life:
            life, offset = newer, 0
            tell(f"life {life}:")
            continue
        time.sleep(_LOOK_S)
