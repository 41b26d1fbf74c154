"""``fabric sweep``: a grid of settings times seeds; only what is missing is run."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from app.commands.options import add_live_options, live_port
from app.commands.study import naming_kept_runs, print_findings, study_display
from app.sweeps.config import SweepConfig, read_sweep
from app.sweeps.executor import Executor
from app.sweeps.local import Launch, LocalExecutor
from app.sweeps.planning import SweepPlan, command_lines, plan_sweep
from app.sweeps.store import Store
from app.sweeps.study import collect, run_missing
from fabric.errors import UsageError
from fabric.world.isolation.processes import die_with_sudo
from runs import known_folders
from runs.console import OUT, tell
from runs.launching.launcher import launch

LOCAL, RAY, SLURM = "local", "ray", "slurm"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric sweep``."""
    what = "a YAML file with an experiment, settings and seeds (docs/sweeps.md)"
    parser.add_argument("file", type=Path, metavar="FILE", help=what)
    places = "local: on this machine's cores; ray: on a Ray cluster; slurm: one job array of Slurm"
    parser.add_argument("--on", choices=[LOCAL, RAY, SLURM], default=LOCAL, help=places)
    jobs = "how many runs at a time, at most (default: as many as cores and memory take)"
    parser.add_argument("--jobs", type=int, metavar="N", help=jobs)
    parser.add_argument(
        "--address", metavar="ADDRESS", help="of the Ray cluster, as ray.init takes it (default: one on this machine)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the sweep (default: results/NAME of FILE)"
    )
    add_live_options(parser, "all runs")
    parser.add_argument("--commands", action="store_true", help="print a command line per missing run, and run nothing")
    parser.add_argument("--collect", action="store_true", help="write tables and figures of what is there; run nothing")
    trust = (
        "with --collect: where the experiment is, whose code is run to check the file; needed if it does not come with "
        "the program and you have not run it on this machine (default: none)"
    )
    parser.add_argument("--experiment-folder", type=Path, metavar="FOLDER", help=trust)
    parser.set_defaults(command=run_sweep)


def run_sweep(options: argparse.Namespace, _: list[str]) -> int:
    """Run what is missing and write what all runs say. Returns 1 if one failed, 3 if a setting has none to believe."""
    die_with_sudo()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    port = live_port(options)
    _executor(options)
    config = read_sweep(options.file)
    store = Store(options.out or Path("results") / options.file.stem)
    if options.collect:
        _require_known(config, store, options.experiment_folder)
    plan = plan_sweep(options.file.stem, config)
    if options.commands:
        store.open(plan)
        if plan.foreign_folder is not None and (why := known_folders.keep(plan.foreign_folder)):
            tell(why)
        for line in command_lines(store.missing(plan.runs), store.run_directory):
            print(line)
        return 0
    if options.collect:
        plan, read = store.as_played(plan)
        store.open(plan)
        for words in read:
            tell(words)
    else:
        with naming_kept_runs(store, "the same command"), study_display(plan, store, port) as (play, show):
            run_missing(plan, store, _executor(options, play), show, tell)
    return _tell_findings(plan, store)


def _require_known(config: SweepConfig, store: Store, named: Path | None) -> None:
    """Raise UsageError if a file that is only to be read names an experiment's folder which its user has not run."""
    folder = Path(config.experiment).resolve()
    if not folder.is_dir() or (named is not None and named.resolve() == folder):
        return
    if why := known_folders.why_not(folder, store.directory):
        raise UsageError(f"--collect: {why}")


def _executor(options: argparse.Namespace, play: Launch = launch) -> Executor:
    """The executor that the options name; ``play`` plays the runs that this process executes. Raises UsageError for
    options that do not go together."""
    if options.address is not None and options.on != RAY:
        raise UsageError(f"--address {options.address}: is for --on ray; omit it")
    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs}: must be 1 or more")
    if options.on == RAY:
        from app.sweeps.ray_cluster import RayExecutor

        return RayExecutor(options.address, options.jobs)
    if options.on == SLURM:
        from app.sweeps.slurm import SlurmExecutor

        return SlurmExecutor(options.jobs)
    return LocalExecutor(options.jobs, play)


def _tell_findings(plan: SweepPlan, store: Store) -> int:
    findings = collect(plan, store)
    print_findings(findings)
    if plan.figures:
        from app.sweeps.figures import draw_figures  # What draws takes a second to load.

        for path in draw_figures(plan, findings.runs, store.directory / "figures"):
            OUT.print(f"figure: {path}", soft_wrap=True, highlight=False)
    store.hand_over()
    return findings.exit_code
