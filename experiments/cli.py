"""The ``fabric`` command.

Exit codes: 0 done, and the verdict is not ``invalid``; 1 failed; 2 wrong use or config; 3 done, but ``invalid``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from rich.table import Table

from controllers.routing import Policy, Repair
from experiments.run.config import queue_faults, queues_of, require_engine_for_jitter, split_fabric_settings
from experiments.run.console import ERR, OUT, tell
from fabric.errors import ConfigError, FabricError, UsageError
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.queueing import lossless
from fabric.units import parse_size_bytes
from fabric.world import engines, inside
from fabric.world.engine import Engine, Front, Guest
from fabric.world.processes import die_with_sudo
from fabric.world.virtual import kernel
from fabric.world.virtual.dialogue import Ask
from fabric.world.virtual.guest import directories_named
from fabric.world.virtual.memory import described, needed_bytes
from fabric.world.virtual.watch import GuestTime
from topologies.load import load_fabric, read_topology, topology_path

_LEVELS = {level.label: level for level in ServiceLevel}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    words, program = _split_at_dashes(arguments)
    options = _parser().parse_args(words)
    if program and words[:1] != ["exec"]:
        ERR.print("error: only fabric exec takes a program after two dashes", highlight=False)
        return UsageError.exit_code
    options.program = program
    command: Callable[[argparse.Namespace, list[str]], int] = options.command
    try:
        return command(options, arguments)
    except FabricError as error:
        ERR.print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        ERR.print("interrupted")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Whoever read us has gone; end quietly.
        return 1


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before a ``--`` and those after it: a program's, which are not ours to read."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fabric", description="Emulate AI-cluster fabrics with real packets.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_looking(commands)
    _add_running(commands)
    _add_reading(commands)
    return parser


def _add_looking(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser("doctor", help="show what this machine can do, and how to fix what is missing")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(command=run_doctor)

    topo = commands.add_parser("topo", help="inspect a topology").add_subparsers(required=True, metavar="show|draw")
    show = topo.add_parser("show", help="print counts, port budget, bisection, oversubscription, relative cost")
    show.add_argument("topology", metavar="FILE")
    show.add_argument("other", metavar="FILE", nargs="?", help="a second topology to set beside it")
    show.add_argument("--json", action="store_true")
    show.set_defaults(command=show_topology)
    draw = topo.add_parser("draw", help="draw it")
    draw.add_argument("topology", metavar="FILE")
    draw.add_argument("-o", "--out", required=True, type=Path, metavar="FILE.svg")
    draw.set_defaults(command=draw_topology)

    check = commands.add_parser("check", help="report every fault of a topology or an experiment's config")
    check.add_argument("file", metavar="FILE")
    check.set_defaults(command=check_file)
    commands.add_parser("list", help="list the experiments, one per line").set_defaults(command=list_experiments)


def _add_running(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="run an experiment and write its directory (root)")
    run.add_argument("experiment", metavar="EXPERIMENT|FILE")
    run.add_argument("--set", action="append", default=[], metavar="a.b=value", dest="overrides")
    _add_engine_option(run)
    rate = (
        "scale all links so that NICs have this rate; calibrated: the rate that fabric calibrate found for this machine"
    )
    run.add_argument("--rate", metavar="RATE|calibrated", help=rate)
    run.add_argument("--seed", type=int, metavar="N")
    run.add_argument("--out", type=Path, metavar="DIR", help="directory of the run (default: a new one in results/)")
    run.add_argument("--capture", action="append", default=[], metavar="PORT=FILE", help="z0l03:7=a.pcap")
    run.set_defaults(command=run_experiment)

    path = commands.add_parser("path", help="show the path between two hosts: by the plan, or of a real packet")
    _add_fabric_options(path)
    path.add_argument("source", metavar="HOST")
    path.add_argument("destination", metavar="HOST")
    path.add_argument("--level", choices=list(_LEVELS), default="hfreduce")
    path.add_argument("--rail", type=int, metavar="N", help="by the NICs number N; default: the first that reach")
    down = "plan as if the link at this port were down, e.g. z0l00:5; may be repeated"
    path.add_argument("--down", action="append", default=[], metavar="PORT", help=down)
    path.add_argument("--probe", action="store_true", help="bring the fabric up and send a packet (root)")
    path.add_argument("--json", action="store_true")
    _add_engine_option(path)
    path.set_defaults(command=show_path)

    text = "bring the fabric up with Mininet's prompt"
    waits = "In virtual time the clock stands still while the prompt waits, and keys go to the prompt only."
    shell = commands.add_parser("shell", help=f"{text} (root)", description=f"{text[0].upper()}{text[1:]}. {waits}")
    _add_fabric_options(shell)
    _add_engine_option(shell)
    shell.add_argument("--capture", action="append", default=[], metavar="PORT=FILE")
    shell.set_defaults(command=run_shell)

    stdin = "Its stdin is empty (/dev/null), in either engine, and so is that of background programs."
    text = "run an unmodified program on hosts of the fabric (root)"
    execute = commands.add_parser(
        "exec", help=text, description=f"{text.removesuffix(' (root)').capitalize()}. {stdin}"
    )
    _add_fabric_options(execute)
    execute.add_argument("hosts", nargs="+", metavar="HOST")
    execute.add_argument("--capture", action="append", default=[], metavar="PORT=FILE")
    beside = "a program that runs meanwhile, e.g. a server"
    execute.add_argument("--background", action="append", default=[], metavar="HOST=COMMAND", help=beside)
    execute.add_argument("--first-only", action="store_true", help="start it on the first host only, as mpirun needs")
    execute.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS")
    _add_engine_option(execute)
    execute.set_defaults(command=run_program)

    _add_validate(commands)
    _add_calibrate(commands)
    bench = commands.add_parser("bench", help="run the measurements that docs/performance.md quotes (root)")
    bench.add_argument("name", choices=["setup", "links", "hfreduce", "hops", "queueings", "plans", "collisions"])
    bench.add_argument(
        "--topology", metavar="FILE", help="for setup (default: two_hundred_hosts) and plans (default: fire_flyer_2)"
    )
    _add_engine_option(bench)
    bench.set_defaults(command=run_bench)

    virtual = commands.add_parser("virtual", help="build or list kernels of the virtual engine").add_subparsers(
        required=True
    )
    text = "build it from the distribution's source, once"
    chosen = f"Several versions can be installed; {kernel.CHOICE}=6.1 in the environment chooses one."
    build = virtual.add_parser("build", help=text, description=f"{text.capitalize()}. {chosen}")
    source = "archive of the source (default: one in /usr/src that is known to work, or else the newest there)"
    build.add_argument("--source", type=Path, metavar="FILE", help=source)
    build.set_defaults(command=build_kernel)
    show = virtual.add_parser("list", help="list the kernels that are built; the first one is used")
    show.set_defaults(command=list_kernels)


def _add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    validate = commands.add_parser(
        "validate", help="test links, bandwidth and storage of a fabric; exit code 1 if it has faults"
    )
    _add_fabric_options(validate)
    validate.add_argument("--quick", action="store_true", help="test links only: state, wiring, speed and loss")
    beyond = "measure at most this many pairs of NICs, sampled at random (default: 1000)"
    validate.add_argument("--pairs", type=int, default=1000, metavar="N", help=beyond)
    faulty = 'inject "link NAME rate 0.5", "link NAME loss 0.01", "link NAME down" or "miswired NAME NAME"'
    validate.add_argument("--fault", action="append", default=[], metavar="TEXT", help=faulty)
    validate.add_argument("--json", action="store_true")
    _add_engine_option(validate)
    validate.set_defaults(command=run_validation)


def _add_calibrate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "find the rate at which this machine carries a topology with a fifth of its CPU idle (root)"
    calibrate = commands.add_parser("calibrate", help=text, description=f"{text.removesuffix(' (root)').capitalize()}.")
    calibrate.add_argument("topology", metavar="TOPOLOGY")
    calibrate.add_argument("--set", action="append", default=[], metavar="a.b=value", dest="overrides")
    calibrate.add_argument("--at", metavar="RATE", help="only measure how well the machine keeps up at this rate")
    calibrate.add_argument("--json", action="store_true", help="with --at: print the measurement as JSON")
    calibrate.set_defaults(command=run_calibration, engine=engines.NAMESPACE.name, memory=None)


def _add_engine_option(parser: argparse.ArgumentParser) -> None:
    text = (
        "namespace: real time, needs root; virtual: exact, in virtual time, without root; computing takes no time there"
    )
    parser.add_argument("--engine", choices=engines.ENGINES, default=engines.DEFAULT.name, help=text)
    memory = (
        "memory of the virtual engine's guest, e.g. 8GiB (default: 4GiB); allocated from this machine as it is used"
    )
    parser.add_argument("--memory", type=_size_bytes, metavar="SIZE", help=memory)


def _size_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_fabric_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topology", metavar="TOPOLOGY")
    policies, repairs = [one.value for one in Policy], [one.value for one in Repair]
    parser.add_argument(
        "--routing", choices=policies, default="static", help="which of several equal paths packets take"
    )
    parser.add_argument("--repair", choices=repairs, default="wait", help="what happens when a link fails")
    queueings = [queueing.value for queueing in Queueing]
    text = (
        "one queue per port, or lanes; lossless: by credits, in the virtual engine or with the kernel datapath "
        "(docs/limits.md lists what it does not model of InfiniBand and PFC)"
    )
    parser.add_argument("--queueing", choices=queueings, default="lanes", help=text)
    values = "as in fabric run: topology.placement=packed, queues.lanes.storage.share=0.2; topology. may be omitted"
    parser.add_argument("--set", action="append", default=[], metavar="a.b=value", dest="overrides", help=values)


def _add_reading(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text, command in (
        ("plot", "draw the figures of a result", plot_result),
        ("report", "write a result as one self-contained page", report_result),
    ):
        reading = commands.add_parser(name, help=text)
        reading.add_argument("directory", type=Path, metavar="DIR")
        reading.set_defaults(command=command)
    compare = commands.add_parser("compare", help="compare results")
    compare.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    compare.add_argument("--json", action="store_true")
    compare.set_defaults(command=compare_results)


def run_doctor(options: argparse.Namespace, _: list[str]) -> int:
    """Print what this machine can do; 0 if experiments can run."""
    from experiments.commands.doctor import can_run, examine

    findings = examine()
    ready = can_run(findings)
    if options.json:
        OUT.print_json(data={"can_run": ready, "findings": [vars(found) for found in findings]})
        return 0 if ready else 1
    table = Table("", "checked", "found", "fix it with")
    for found in findings:
        mark = "[green]ok[/]" if found.good else "[red]missing[/]" if found.needed else "[yellow]note[/]"
        table.add_row(mark, found.subject, _escaped(found.detail), found.remedy)
    OUT.print(table)
    OUT.print("experiments can run" if ready else "experiments cannot run yet")
    return 0 if ready else 1


def show_topology(options: argparse.Namespace, _: list[str]) -> int:
    """Print a topology's counts, or two side by side."""
    from topologies import compare
    from topologies.summary import render, summarize

    if options.other is not None:
        both = [compare.priced(name) for name in (options.topology, options.other)]
        if options.json:
            print(json.dumps([one.as_json() for one in both], indent=1))
        else:
            OUT.print(compare.render(*both))
        return 0
    summary = summarize(load_fabric(options.topology))
    if options.json:
        print(json.dumps(summary.as_json(), indent=1))
    else:
        OUT.print(render(summary))
    return 0


def draw_topology(options: argparse.Namespace, _: list[str]) -> int:
    """Draw a topology into a file."""
    from topologies.draw import draw

    draw(load_fabric(options.topology), options.out)
    print(f"drawn: {options.out}")
    return 0


def check_file(options: argparse.Namespace, _: list[str]) -> int:
    """Check a topology's or an experiment's file."""
    from experiments.registry import EXPERIMENTS, resolve
    from fabric.config import read_yaml

    if options.file in EXPERIMENTS or "experiment" in read_yaml(_file_to_check(options.file)):
        experiment, config = resolve(options.file, [])[:2]
        print(f"{options.file}: good; experiment {experiment.name} on {config.fabric().name}")
    else:
        found = load_fabric(options.file)
        print(f"{options.file}: good; {len(found.hosts)} hosts, {len(found.switches)} switches")
    return 0


def _file_to_check(name: str) -> Path:
    path = Path(name)
    return path if path.is_file() else topology_path(name)


def list_experiments(options: argparse.Namespace, _: list[str]) -> int:
    """Print the experiments, one per line."""
    from experiments.registry import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        OUT.print(f"[bold]{experiment.name}[/]  {experiment.question}", soft_wrap=True)
    return 0


def run_experiment(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an experiment and print its answer; 3 if it is not to be believed."""
    from experiments.commands.answer import print_answer
    from experiments.commands.progress import Display
    from experiments.launching.launcher import play
    from experiments.launching.spec import RunSpec, prepare

    die_with_sudo()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # Or the run would be killed, not ended.
    spec = RunSpec(
        options.experiment,
        overrides=options.overrides,
        seed=options.seed,
        engine=options.engine,
        rate=options.rate,
        memory_bytes=options.memory,
        directory=options.out,
        captures=options.capture,
    )
    prepared = prepare(spec, ["fabric", *arguments])
    with Display() as display:
        result = play(prepared, display.report)
    return print_answer(result, prepared.experiment)


def show_path(options: argparse.Namespace, arguments: list[str]) -> int:
    """Print the path of packets between two hosts."""
    from experiments.commands.tools import print_path, probe_in_world

    fabric = _fabric_of(options)
    if not options.probe:
        return print_path(fabric, options)
    if options.down:
        raise UsageError("--down is for the plan only, and a probe needs links that are up: omit one of the two")
    _require_queueing(fabric, options)
    _enter_world(arguments, options, fabric)
    return probe_in_world(fabric, options)


def run_shell(options: argparse.Namespace, arguments: list[str]) -> int:
    """Bring a fabric up and show Mininet's prompt."""
    from experiments.commands.prompt import ask
    from experiments.commands.tools import shell_in_world

    fabric = _fabric_of(options)
    _require_queueing(fabric, options)
    _enter_world(arguments, options, fabric, ask=ask, words=options.capture)
    return shell_in_world(fabric, options)


def run_program(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an unmodified program on hosts."""
    from experiments.commands.tools import execute_in_world

    fabric = _fabric_of(options)
    if not options.program:
        raise UsageError("no program; write it after two dashes: fabric exec TOPOLOGY HOST... -- PROGRAM")
    for host in options.hosts:
        fabric.host_named(host)
    _require_queueing(fabric, options)
    _enter_world(arguments, options, fabric, words=[*options.program, *options.background, *options.capture])
    return execute_in_world(fabric, options)


def run_validation(options: argparse.Namespace, arguments: list[str]) -> int:
    """Test a fabric; 1 if it has faults."""
    from experiments.validation.command import check_options, validate_in_world

    fabric = _fabric_of(options)
    check_options(fabric, options)
    _require_queueing(fabric, options)
    _enter_world(arguments, options, fabric)
    return validate_in_world(fabric, options)


def run_calibration(options: argparse.Namespace, arguments: list[str]) -> int:
    """Find the rate that this machine carries, or measure one."""
    from experiments.commands.calibrate import calibrate, load_config, measure_in_world
    from experiments.run.rates import named_rate
    from topologies.rates import at_nic_rate

    topology = read_topology(options.topology, options.overrides)
    if options.at is None:
        if options.json:
            raise UsageError("--json: only with --at RATE; add that")
        if os.geteuid() != 0:
            raise UsageError("calibrate needs root to make network namespaces; run it again with sudo")
        return calibrate(options.topology, topology, arguments)
    changed = at_nic_rate(topology, named_rate("--at", options.at))
    load_config(changed)
    _enter_world(arguments, options, None)
    return measure_in_world(changed, options.json)


def run_bench(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run a benchmark."""
    from experiments.commands.bench import run_in_world

    fabric = None if options.topology is None else load_fabric(options.topology)
    if options.name == "collisions":
        from experiments.commands.collisions import bench_collisions

        bench_collisions(fabric or load_fabric("fat_tree_k8"))
        return 0
    if options.name == "plans":
        from experiments.commands.plan_cost import bench_plans

        bench_plans(options.topology)
        return 0
    _enter_world(arguments, options, fabric)
    return run_in_world(options.name, options.topology)


def build_kernel(options: argparse.Namespace, _: list[str]) -> int:
    """Build the kernel of the virtual engine, unless it is built."""
    OUT.print(f"kernel: {kernel.build(tell, source=options.source).directory}", soft_wrap=True, highlight=False)
    return 0


def list_kernels(options: argparse.Namespace, _: list[str]) -> int:
    """Print the kernels that are built, the one that is used first; 1 if there is none."""
    used = kernel.find()
    for one in sorted(kernel.built(), key=lambda one: one != used):
        OUT.print(f"{one.version}  {one.release}  {one.directory}", soft_wrap=True, highlight=False)
    return 0 if used else 1


def _fabric_of(options: argparse.Namespace) -> Fabric:
    return load_fabric(options.topology, split_fabric_settings(options.overrides)[0])


def _require_queueing(fabric: Fabric, options: argparse.Namespace) -> None:
    """Refuse, before a world is made, a queueing that cannot run in it. In a world, that has been asked."""
    if inside.is_inside():
        return
    queueing, queues = Queueing(options.queueing), queues_of(options.overrides)
    engine = engines.ENGINES[options.engine]
    lossless.require(engine, queueing)
    require_engine_for_jitter(engine, queues)
    if faults := list(queue_faults(queues, [queueing], fabric)):
        raise ConfigError(fabric.name, faults)


def _guest_for(options: argparse.Namespace, fabric: Fabric | None, seed: int = 1) -> Guest:
    """Return the guest that a command's options ask for, if it is to run in one. Raises UsageError if it cannot do."""
    guest = Guest(seed, memory_bytes=options.memory)
    needed, subject = (0, "it") if fabric is None else (needed_bytes(fabric), described(fabric))
    return engines.ENGINES[options.engine].guest_for(guest, needed, subject)


def _enter_world(
    arguments: list[str],
    options: argparse.Namespace,
    fabric: Fabric | None,
    *,
    ask: Ask | None = None,
    words: Iterable[str] = (),
) -> None:
    """Go on in a new world, unless this is one; a guest sees the directories of the host that ``words`` name."""
    if not inside.is_inside():
        guest = replace(_guest_for(options, fabric), keep=directories_named(words))
        _enter(arguments, engines.ENGINES[options.engine], guest, ask)
    inside.set_up()


def _enter(arguments: list[str], engine: Engine, guest: Guest, ask: Ask | None = None) -> NoReturn:
    """Go on in namespaces or a guest of the run's own, showing how virtual time passes until a line is asked for."""
    command = [sys.executable, "-m", "experiments.cli", *arguments]
    if engine.has_terminal:
        engine.enter(command, guest, Front())
    passed = ""
    with ERR.status("booting the guest") as status:

        def show(time: GuestTime) -> None:
            nonlocal passed
            passed = str(time)
            status.update(f"[dim]{passed}[/]")

        def ask_undisturbed() -> str | None:
            status.stop()
            assert ask is not None
            return ask()

        try:
            engine.enter(command, guest, Front(show, ask_undisturbed if ask else None, tell))
        finally:
            if passed:
                tell(passed)


def plot_result(options: argparse.Namespace, _: list[str]) -> int:
    """Draw a result's figures."""
    from fabric.report.figures import draw_all
    from fabric.results import Result

    for path in draw_all(Result(options.directory)):
        OUT.print(f"drawn: {path}", soft_wrap=True)
    return 0


def report_result(options: argparse.Namespace, _: list[str]) -> int:
    """Write a result as a page."""
    from fabric.report.page import write_report
    from fabric.results import Result

    OUT.print(f"report: {write_report(Result(options.directory))}", soft_wrap=True)
    return 0


def compare_results(options: argparse.Namespace, _: list[str]) -> int:
    """Print results side by side."""
    from fabric.report.compare import compare
    from fabric.results import Result

    if len(options.directories) < 2:
        raise UsageError("compare needs at least two result directories")
    comparison = compare([Result(directory) for directory in options.directories])
    if options.json:
        print(json.dumps(comparison.as_json(), indent=1))
    else:
        OUT.print(comparison.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
