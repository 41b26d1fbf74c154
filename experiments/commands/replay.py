"""``fabric replay``: a workload file of another project, played on a fabric."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from experiments.commands.run import add_run_options, run_spec, spec_of
from experiments.replay.connection_matrix import read_matrix
from fabric.config import read_text
from fabric.errors import UsageError
from topologies.htsim_files import read_topology_file
from topologies.load import topology_path

_SUFFIXES = (".cm",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric replay``."""
    parser.add_argument("file", type=Path, metavar="FILE.cm", help="a connection matrix of htsim")
    parser.add_argument(
        "--topology", metavar="TOPOLOGY", help="a topology's name or file; no default: give this or --topo"
    )
    parser.add_argument(
        "--topo", type=Path, metavar="FILE.topo", help="a topology file of htsim, instead of --topology; no default"
    )
    add_run_options(parser)
    parser.set_defaults(command=replay)


def replay(options: argparse.Namespace, arguments: list[str]) -> int:
    """Play a file and print what was found; exit code 3 if the verdict is `invalid`."""
    settings = {**_matrix(options.file), "topology": _topology(options)}
    return run_spec(spec_of("replay", options, settings), options, arguments)


def _matrix(path: Path) -> dict[str, str]:
    if path.suffix not in _SUFFIXES:
        raise UsageError(f"{path}: is no file that can be replayed; there are {', '.join(_SUFFIXES)} (htsim)")
    text = read_text(path, "a connection matrix of htsim")
    source = os.fsencode(path).decode(errors="replace")  # A name need not be text.
    read_matrix(text, source)  # What is wrong with it is said before anything else is.
    return {"source": source, "matrix": text}


def _topology(options: argparse.Namespace) -> str | dict[str, Any]:
    if (options.topology is None) == (options.topo is None):
        raise UsageError("replay needs a fabric: --topology NAME, or --topo FILE.topo (htsim's), and not both")
    if options.topo is not None:
        return read_topology_file(options.topo)
    return str(topology_path(options.topology))
