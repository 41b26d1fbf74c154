"""Imports point one way, outside libraries stay where they belong, and every module says what it is for."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from runs.preload import PRELOAD
from tests.synthetic_result import Recipe, write_result

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "fabric": set[str](),
    "topologies": {"fabric"},
    "controllers": {"fabric"},
    "traffic": {"fabric"},
    "cluster": {"fabric", "topologies", "controllers", "traffic"},
    "runs": {"fabric", "topologies", "controllers", "traffic", "cluster"},
    "experiments": {"fabric", "topologies", "controllers", "traffic", "cluster", "runs"},
    "app": {"fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments"},
}
MODULES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))
QUESTIONS = "every other folder of experiments"
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fabric": (
        (
            "errors",
            "suggestions",
            "units",
            "config",
            "config_keys",
            "estimates",
            "percentiles",
            "metrics",
            "measures",
            "results",
            "tables",
            "delivered",
            "garbage",
            "free_memory",
            "pythons_distutils",
        ),
        ("model",),
        ("records",),
        ("world",),
        ("queueing",),
        ("emulation",),
        ("failures",),
        ("stalls",),
        ("measure",),
        ("report",),
    ),
    "topologies": (
        ("nodes",),
        ("keys", "rates", "bisection", "own_names", "htsim_files", "containerlab_files"),
        ("zoned_fat_tree", "fat_tree", "free_form"),
        ("load", "summary", "node_table"),
        ("compare", "listing"),
    ),
    "controllers": (
        ("planning.plan",),
        ("planning.ecmp", "planning.spraying", "planning.distances", "planning.routes"),
        ("planning.up_down", "planning.detours", "planning.updates", "planning.fairness", "planning.credit_loops"),
        ("planning.policies",),
        ("routing", "task"),
        ("planning",),
        ("app",),
        ("client",),
    ),
    "traffic": (
        ("congestion_control", "dcqcn"),
        ("transport",),
        ("job", "program_group", "repeating", "stepped_job", "stepped_rank", "metrics"),
        ("job_kind", "measures"),
        ("collectives", "storage", "flows", "programs"),
        ("work", "torch_backend"),
        ("sorting", "torch_gpus"),
        ("kinds",),
    ),
    "cluster": (
        ("nodes",),
        ("tasks",),
        ("decisions", "placement", "usage"),
        ("policies",),
        ("room",),
        ("scheduler",),
        ("faults", "jobs", "checkpoints", "health"),
        ("simulation", "platform"),
        ("slurm",),
        ("platform.kinds",),
        ("sharing",),
    ),
    "runs": (
        (
            "console",
            "handover",
            "captures",
            "engine_choice",
            "attempts",
            "calibrating",
            "rates",
            "phase_lengths",
            "config",
            "failures",
            "placement",
            "allocation",
            "kinds",
            "plans",
            "ways",
            "live",
        ),
        ("known_tables", "preload"),
        ("decided_jobs", "timeline", "excuses", "groundwork"),
        (
            "job_metrics",
            "node_use",
            "counted_operations",
            "job_config",
            "known_folders",
            "load_evidence",
            "phase_rows",
        ),
        ("cases", "case_tables", "side_by_side"),
        ("phase_meter",),
        ("run_tables",),
        ("session",),
        ("definition", "study", "jobs", "congestion", "stall_metrics"),
        ("measures",),
        ("notes",),
        ("record",),
        ("catalogue",),
        ("registry",),
        ("launching",),
    ),
    "experiments": ((QUESTIONS,),),
    "app": (
        ("whose_packages", "validation", "estimate"),
        ("sweeps",),
        ("reproduction",),
        ("export",),
        ("machines",),
        ("commands",),
        ("cli",),
        ("benchmarks",),
    ),
}
"""What is in a package, lowest first: no module knows one above it. Folders of one layer do not know each other. A name
with a point is a part of a folder that has a place of its own; the folder's is that of its other parts."""
BUILDS_ON = {"flash_cut_year": {"link_flap"}, "goodput_year": {"resync"}}
"""Questions that ask more of what another one asks."""
KNOWN_STRINGS = {
    (
        "fabric.world.virtual.bytecode",
        "controllers.app.launcher",
    ): "guests get all compiled, patched as by the launcher",
    (
        "experiments",
        "app.sweeps.from_python",
    ): "users' door to one run and to many, loaded when asked for",
    (
        "experiments",
        "app.machines",
    ): "and to several machines",
    ("app.commands.calibrate", "app.cli"): "each rate is tried by a run of the command",
    ("app.commands.bench", "app.cli"): "each repeat is a run of the command",
    ("app.commands.worlds", "app.cli"): "a command goes on in another process",
}
"""Names of higher modules in strings of lower ones, and why they are still there: (where, what)."""
DOTTED = re.compile(r"\b(?:" + "|".join(MAY_IMPORT) + r")(?:[./]\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file as it is parsed, once for all tests."""
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def faults_in(package: str, faults_of: Callable[[Path], object]) -> dict[str, object]:
    """Return by file what is wrong in the modules of a package; a test for each file would cost more than it does."""
    found = {name_of(path): faults_of(path) for path in MODULES if path.relative_to(ROOT).parts[0] == package}
    assert found, f"no module of {package} is looked at"
    return {name: faults for name, faults in found.items() if faults}


def imported_by(path: Path) -> Iterator[str]:
    """Yield the top-level package of each import of a file, wherever in the file it stands."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def module_of(path: Path) -> str:
    """Return ``fabric.model.lanes`` for its file, ``fabric.model`` for that of the folder."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = frozenset(map(module_of, MODULES))


def modules_imported_by(path: Path) -> Iterator[str]:
    """Yield those of ours that a file imports, wherever in the file it does."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in NAMES)
        elif isinstance(node, ast.ImportFrom) and node.module in NAMES:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from below & NAMES or {node.module}


def modules_named_in_strings_of(path: Path) -> Iterator[str]:
    """Yield those of ours that strings of a file name, docstrings apart, as ``a.b.c`` or as a path."""
    bare = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            for found in DOTTED.findall(node.value):
                parts = found.replace("/", ".").split(".")
                names = [".".join(parts[:length]) for length in range(len(parts), 1, -1)]
                yield from [name for name in names if name in NAMES][:1]


def layer(module: str) -> tuple[int, str]:
    """Return how high a module stands in its package, and which part of the package it is in."""
    package, *rest = module.split(".")
    part = rest[0]
    for known in (".".join(rest[:2]), part):
        for height, parts in enumerate(LAYERS[package]):
            if known in parts:
                return height, known
    heights = [height for height, parts in enumerate(LAYERS[package]) if QUESTIONS in parts]
    assert heights, f"{module}: give it a place in LAYERS"
    return heights[0], part


def may_know(module: str, other: str) -> bool:
    """Whether a module may name another one."""
    package, of_other = module.partition(".")[0], other.partition(".")[0]
    if package != of_other:
        return of_other in MAY_IMPORT[package]
    if package in (module, other):
        return True  # A package's own docstring.
    (height, part), (height_of_other, part_of_other) = layer(module), layer(other)
    is_single = f"{package}.{part}" in NAMES and (ROOT / package / f"{part.replace('.', '/')}.py").exists()
    if height != height_of_other or part == part_of_other or is_single:
        return height >= height_of_other
    return part_of_other in BUILDS_ON.get(part, set())


def importers_of(library: str) -> set[str]:
    return {name_of(path) for path in MODULES if library in imported_by(path)}


def test_all_packages_are_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    assert faults_in(package, lambda path: set(imported_by(path)) & {*MAY_IMPORT, "tests"} - allowed) == {}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_module_imports_one_above_it(package: str) -> None:
    def above(path: Path) -> list[str]:
        module = module_of(path)
        return [other for other in modules_imported_by(path) if not may_know(module, other)]

    assert faults_in(package, above) == {}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_string_names_a_module_above(package: str) -> None:
    def unlisted(path: Path) -> set[str]:
        module = module_of(path)
        above = {other for other in modules_named_in_strings_of(path) if not may_know(module, other)}
        return above ^ {what for where, what in KNOWN_STRINGS if where == module}  # Nor one that is there no longer.

    assert faults_in(package, unlisted) == {}


def test_the_layers_refuse_what_is_above_and_beside() -> None:
    assert may_know("fabric.stalls.audit", "fabric.model.lanes")
    assert not may_know("fabric.model.lanes", "fabric.stalls.audit")
    assert not may_know("fabric.world.engines", "app.cli")
    assert not may_know("traffic.flows.streams", "traffic.storage.job")
    assert not may_know("experiments.isolation.study", "experiments.protection.study")
    assert may_know("experiments.flash_cut_year.run", "experiments.link_flap.run")
    assert not may_know("experiments.link_flap.run", "experiments.flash_cut_year.run")
    assert may_know("runs.launching.play", "runs.registry")
    assert not may_know("runs.session", "runs.registry")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_are_absolute(package: str) -> None:
    def relative(path: Path) -> list[str]:
        return [ast.unparse(node) for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node.level]

    assert faults_in(package, relative) == {}


OF_GPUS = (
    "cuda_module", "forking", "functional", "known_values", "mode", "operators", "process_group", "replacements",
    "sent_values", "streams",
)  # fmt: skip


@pytest.mark.parametrize(
    ("library", "importers"),
    [
        ("mininet", {"fabric/emulation/mininet_parts.py"}),
        ("ryu", {"controllers/app/openflow.py"}),
        ("os_ken", {"controllers/app/openflow.py"}),
        ("eventlet", {"controllers/app/openflow.py", "controllers/app/launcher.py"}),
        (
            "torch",
            {
                "experiments/libraries/programs/sweep.py",
                "traffic/torch_backend/process_group.py",
                "traffic/torch_backend/registration.py",
                "traffic/torch_backend/tensors.py",
                "traffic/torch_backend/work.py",
                *(f"traffic/torch_gpus/{name}.py" for name in OF_GPUS),
            },
        ),
    ],
)
def test_a_library_that_may_be_elsewhere_or_another_is_imported_in_one_place(library: str, importers: set[str]) -> None:
    assert importers_of(library) == importers


def test_collectives_take_any_transport() -> None:
    """Whoever wants to know which one it is asks for what another has not."""
    folder = ROOT / "traffic" / "collectives"
    for path in folder.glob("*.py"):
        assert "socket" not in imported_by(path), path
        assert "traffic.transport.tcp" not in modules_imported_by(path), path


def modules_loaded_by(*names: str) -> set[str]:
    """Return the top-level packages in memory after a fresh Python imported some modules."""
    program = f"import json, sys, {', '.join(names)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_planners_and_the_controllers_client_run_without_ryu() -> None:
    loaded = modules_loaded_by("controllers.planning.plan", "controllers.planning.routes", "controllers.client")
    assert "controllers" in loaded
    assert not loaded & {"ryu", "os_ken", "eventlet"}


def test_a_fabric_is_computed_without_mininet() -> None:
    pure = ("topologies.load", "fabric.model.lanes", "fabric.queueing.htb", "controllers.planning.routes")
    loaded = modules_loaded_by(*pure)
    assert "topologies" in loaded
    assert not loaded & {"mininet", "ryu", "os_ken"}


def test_the_command_answers_without_loading_mininet_or_ryu() -> None:
    loaded = modules_loaded_by("app.cli")
    assert "app" in loaded
    assert not loaded & {
        "mininet",
        "ryu",
        "os_ken",
        "eventlet",
        "scapy",
        "matplotlib",
        "pandas",
        "numpy",
        "pydantic",
        "rich",
    }


STARTING = ("run", "exec_program", "attending", "topologies", "path", "validate")


def test_runs_and_programs_are_started_without_loading_tables() -> None:
    """Pandas and pyarrow take a third of a second, and more in a guest."""
    commands = [f"app.commands.{name}" for name in STARTING]
    program = f"import runs.kinds, runs.live, app.commands.keys, {', '.join(commands)}"
    resolved = "from runs.registry import resolve; resolve('isolation', [])"
    told = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(done_without_instruments(f"{program}\n{resolved}\n{told}").splitlines()[-1].split())
    assert "pydantic" in loaded
    assert not loaded & {"pandas", "pyarrow", "matplotlib", "mininet", "ryu"}


def test_programs_are_started_without_loading_jobs() -> None:
    """File systems and recordings are asked for by options; what makes them takes as long to load as all the rest."""
    told = "import sys; print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules}))"
    loaded = set(done_without_instruments(f"import app.commands.exec_program\n{told}").split())
    assert "traffic.programs" in loaded
    assert not loaded & {"traffic.storage", "traffic.work", "traffic.collectives", "traffic.flows"}


def test_the_experiments_are_listed_without_loading_what_they_name() -> None:
    program = "from app.cli import main; main(['list'])"
    loaded = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    lines = done_without_instruments(f"{program}\n{loaded}").splitlines()
    assert any(line.startswith("isolation ") for line in lines)
    assert not set(lines[-1].split()) & {"pydantic", "numpy", "pandas", "rich", "yaml", "matplotlib"}


def test_the_process_that_forks_programs_has_loaded_little() -> None:
    """Each fork copies its tables of pages; in a guest that is what starting a program costs."""
    loaded = modules_loaded_by(*PRELOAD)
    assert "traffic" in loaded
    assert not loaded & {"mininet", "ryu", "os_ken", "eventlet", "scapy", "matplotlib", "pandas", "pyarrow"}


def done_without_instruments(program: str, *arguments: str) -> str:
    """Return what a program prints where nothing that emulates can be imported."""
    words = [sys.executable, "-m", "tests.without_instruments", program, *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_is_done_with_instruments_where_they_are_refused() -> None:
    """Or the tests below would hold nothing."""
    words = [sys.executable, "-m", "tests.without_instruments", "import fabric.emulation.build"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "mininet is imported, and not needed here" in done.stderr


SLOW_TO_DRAW = ("ports", "stalls", "waits", "flows", "operations")
EMULATES = {f"fabric.emulation.{name}" for name in ("build", "mininet_net", "mininet_nodes", "mininet_parts", "prompt")}
OF_TORCH = {
    *(f"traffic.torch_backend.{name}" for name in ("process_group", "tensors", "work")),
    *(f"traffic.torch_gpus.{name}" for name in OF_GPUS if name != "forking"),
}
"""Modules of its classes, which only a program that has imported it loads."""
IMPORT_ALL = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
BRING_UP = """
from pathlib import Path
from runs.live import bring_up
from fabric.errors import EmulationError
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from topologies.load import load_fabric
try:
    with bring_up(load_fabric("fire_flyer_2_tiny"), plan_lanes(QueueConfig(), Queueing.LANES), Path("logs"), print):
        pass
except EmulationError as error:
    print(error)
"""
READ_RESULT = """
import sys
from experiments import load
result = load(sys.argv[1])
print(result.verdict["status"], len(result.metrics), len(result.table("ports")), result.missing)
"""
WRITE_REPORT = "import sys\nfrom experiments import load\nprint(load(sys.argv[1]).write_report())"
COMMAND = "import sys\nfrom app.cli import main\nsys.exit(main(sys.argv[1:]))"
COMMANDS_THAT_READ: dict[str, tuple[list[str], str]] = {
    "list": (["list"], "isolation"),
    "topo show": (["topo", "show", "fire_flyer_2_tiny"], "fire_flyer_2_tiny"),
    "check a topology": (["check", "fire_flyer_2_tiny"], "fire_flyer_2_tiny"),
    "check an experiment": (["check", "head_of_line"], "head_of_line"),
    "compare": (["compare", "RESULT", "RESULT"], ""),
    "cost": (["cost", "--help"], "wall time"),
    "path": (["path", "--help"], "HOST"),
}
PLAN_SWEEP = """
from app.sweeps import slurm, study, tables
from app.sweeps.config import SweepConfig
from app.sweeps.planning import plan_sweep
from fabric.world.virtual_time import VirtualEngine

VirtualEngine.kernel = lambda self: "linux-6.1-a-b"
grid = {"queues.lanes.storage.share": [0.2, 0.3]}
sweep = SweepConfig.model_validate({"experiment": "isolation", "engine": "virtual", "grid": grid, "seeds": [1, 2]})
print(len(plan_sweep("shares", sweep).runs))
"""


@pytest.fixture(scope="module")
def printed_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function of what each of the programs below prints where nothing that emulates can be imported: run in
    one process, as most of what each costs is to import the same."""
    scratch = tmp_path_factory.mktemp("kept")
    kept = str(write_result(scratch / "result", Recipe(experiment="isolation")))
    drawn = str(write_result(scratch / "drawn", Recipe(experiment="isolation", without=SLOW_TO_DRAW)))
    ours = {name for name in NAMES if not name.startswith("controllers.app")} - EMULATES - OF_TORCH
    programs = {
        "read": [READ_RESULT, kept],
        "report": [WRITE_REPORT, drawn],
        **{
            name: [COMMAND, *(kept if word == "RESULT" else word for word in words)]
            for name, (words, _) in COMMANDS_THAT_READ.items()
        },
        "plan a sweep": [PLAN_SWEEP],
        "bring up": [BRING_UP],
        "import all": [IMPORT_ALL, *sorted(ours)],
    }
    lines = "".join(f"{json.dumps(one)}\n" for one in programs.values())
    command = [sys.executable, "-m", "tests.without_instruments", "--in-turn"]
    done = subprocess.run(command, input=lines, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = dict(zip(programs, map(json.loads, done.stdout.splitlines()), strict=True))

    def printed(name: str) -> str:
        said, failed = outcomes[name]
        assert not failed, f"{said}{failed}"
        return str(said)

    return printed


def test_all_modules_but_those_that_emulate_load_without_instruments(printed_by: Callable[[str], str]) -> None:
    """Whatever a command does, its help and its errors need none: a fabric that comes up loads them."""
    printed_by("import all")


def test_a_fabric_does_not_come_up_without_mininet_and_the_error_says_what_to_install(
    printed_by: Callable[[str], str],
) -> None:
    error = printed_by("bring up")
    assert error.startswith("a fabric cannot be emulated: mininet is imported")
    assert "install the distribution's package mininet" in error


def test_a_result_is_read_without_instruments(printed_by: Callable[[str], str]) -> None:
    status, metrics, rows, missing = printed_by("read").split()
    assert (status, missing) == ("faithful", "None")
    assert int(metrics) > 0
    assert int(rows) > 0


def test_a_report_is_written_without_instruments(printed_by: Callable[[str], str]) -> None:
    page = Path(printed_by("report").strip()).read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "data:image/svg+xml;base64," in page


@pytest.mark.parametrize("command", COMMANDS_THAT_READ)
def test_a_command_that_reads_needs_no_instruments(command: str, printed_by: Callable[[str], str]) -> None:
    assert COMMANDS_THAT_READ[command][1] in printed_by(command)


def test_a_sweep_is_planned_without_instruments(printed_by: Callable[[str], str]) -> None:
    assert printed_by("plan a sweep") == "4\n"


def test_who_imports_an_instrument_fails_among_others(tmp_path: Path) -> None:
    """Or the tests above would hold nothing."""
    lines = [json.dumps([program]) for program in ("import scapy", "print(4)", "raise SystemExit(3)")]
    command = [sys.executable, "-m", "tests.without_instruments", "--in-turn"]
    done = subprocess.run(command, input="\n".join(lines), cwd=ROOT, capture_output=True, text=True, timeout=60)
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert "scapy is imported, and not needed here" in first[1]
    assert (second, third) == (["4\n", ""], ["", "exit code 3"])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has no distutils but that of setuptools")
def test_mininet_is_loaded_without_setuptools() -> None:
    loaded = modules_loaded_by("fabric.emulation.build")
    assert "mininet" in loaded
    assert not loaded & {"setuptools", "pkg_resources"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_module_says_what_it_is_for(package: str) -> None:
    def silent(path: Path) -> str:
        docstring = ast.get_docstring(tree_of(path)) or ""
        return "" if docstring.partition("\n")[0].strip() else "its docstring is missing, or its first line empty"

    assert faults_in(package, silent) == {}


ASK_WHICH_ENGINE = {f"fabric/world/{name}.py" for name in ("engines", "inside", "virtual_time", "virtual/guest")}
"""Engines themselves. All others ask an engine what it can do."""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_nobody_asks_which_engine_it_is(package: str) -> None:
    def asked(path: Path) -> list[str]:
        engines = name_of(path) in ASK_WHICH_ENGINE
        return [
            ast.unparse(node)
            for node in nodes_of(path)
            if compares_engines(node) or (asks_whether_in_a_guest(node) and not engines)
        ]

    assert faults_in(package, asked) == {}


def compares_engines(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(end, ast.Name) and end.id in ("NAMESPACE", "VIRTUAL") for end in (node.left, *node.comparators)
    )


def asks_whether_in_a_guest(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "in_guest"


PROGRAMS_IN_SHELL = [
    found
    for script in sorted((ROOT / "tools").glob("*.sh"))
    for found in re.findall(r"python -c '([^']*)'", script.read_text())
]


@pytest.mark.parametrize("program", PROGRAMS_IN_SHELL)
def test_what_shell_scripts_ask_of_the_package_is_there(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_shell_scripts_that_ask_are_found() -> None:
    assert any("fabric" in program for program in PROGRAMS_IN_SHELL)
