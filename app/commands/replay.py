"""``fabric replay``: workload files and traces of other projects, played on a fabric."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from app.commands.run import add_run_options, run_spec, spec_of
from app.commands.traces import TRACE, add_trace_options, trace_settings
from experiments.replay.connection_matrix import read_matrix
from fabric.config import note_file, read_text
from fabric.errors import UsageError
from topologies.htsim_files import read_topology_file
from topologies.load import topology_path

_MATRIX = ".cm"
_MATRIX_WORDS = (b"Nodes ", b"Connections ", b"Triggers ")
_PLACEMENTS = ("packed", "spread", "random")
_ONLY_TRACES = ("ranks", "groups", "size", "flops", "placement", "steps")
_HEAD_BYTES = 65_536


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric replay``."""
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE", help=f"{TRACE}; each plays as a job. Or one connection matrix of htsim"
    )
    parser.add_argument(
        "--topology", metavar="TOPOLOGY", help="a topology's name or file; no default: give this or --topo"
    )
    parser.add_argument(
        "--topo", type=Path, metavar="FILE.topo", help="a topology file of htsim, instead of --topology; no default"
    )
    add_trace_options(parser)
    flops = "FLOP/s of a rank, e.g. 1e14, where a trace says FLOPs and no times; no default"
    parser.add_argument("--flops", type=float, metavar="FLOPS", help=flops)
    scale = "multiply times of computing, or of a matrix its starts (default: by how much slower the fabric is)"
    parser.add_argument("--time-scale", type=float, metavar="X", help=scale)
    placement = (
        f"on which hosts ranks are: {', '.join(_PLACEMENTS)}, or a file with a host's or GPU's name per line, for "
        "each rank of trace after trace (default: packed)"
    )
    parser.add_argument("--placement", metavar="RULE|FILE", help=placement)
    parser.add_argument("--steps", type=int, metavar="N", help="how often each trace is played (default: once)")
    add_run_options(parser)
    parser.set_defaults(command=replay)


def replay(options: argparse.Namespace, arguments: list[str]) -> int:
    """Play files and print what was found; exit code 3 if the verdict is `invalid`."""
    topology = _topology(options)
    if len(options.traces) == 1 and _is_matrix(Path(options.traces[0])):
        settings = {**_matrix(Path(options.traces[0]), options), "topology": topology}
        return run_spec(spec_of("replay", options, settings), options, arguments)
    settings = {**_traces(options), "topology": topology}
    return run_spec(spec_of("trace_replay", options, settings), options, arguments)


def _is_matrix(path: Path) -> bool:
    """Whether a file is a connection matrix: by its content, or at least it says so."""
    if path.suffix == _MATRIX:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    first = next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    return first.startswith(_MATRIX_WORDS)


def _matrix(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    for name in _ONLY_TRACES:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name}: is for traces with ranks, and {path} is a connection matrix of htsim; omit it")
    text = read_text(path, "a connection matrix of htsim")
    source = os.fsencode(path).decode(errors="replace")  # A name need not be text.
    read_matrix(text, source)  # What is wrong with it is said before anything else is.
    scale = {} if options.time_scale is None else {"time_scale": options.time_scale}
    return {"source": source, "matrix": text, **scale}


def _traces(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"traces": trace_settings(options.traces, options)}
    for trace in found["traces"]:
        for file in trace["files"]:
            note_file(Path(file))
    if options.placement is not None:
        found["placement"] = _placement(options.placement)
    if options.flops is not None:
        found["flops_per_s"] = options.flops
    for name in ("time_scale", "steps"):
        if (value := getattr(options, name)) is not None:
            found[name] = value
    return found


def _placement(text: str) -> str | list[str]:
    if text in _PLACEMENTS:
        return text
    if not Path(text).exists():
        raise UsageError(f"--placement {text}: is not one of {', '.join(_PLACEMENTS)}, and no file; name one of these")
    return read_text(Path(text), "a placement of ranks").split()


def _topology(options: argparse.Namespace) -> str | dict[str, Any]:
    if (options.topology is None) == (options.topo is None):
        raise UsageError("replay needs a fabric: --topology NAME, or --topo FILE.topo (htsim's), and not both")
    if options.topo is not None:
        return read_topology_file(options.topo)
    return str(topology_path(options.topology))
