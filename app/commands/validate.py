"""``fabric validate``: its options; :mod:`app.validation` does the rest."""

from __future__ import annotations

import argparse

from app.commands.options import add_engine_option, add_fabric_options, add_json_option
from app.commands.worlds import enter_world, fabric_of, require_queueing
from app.validation.asked import check_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric validate``."""
    add_fabric_options(parser)
    parser.add_argument("--quick", action="store_true", help="test links only: state, wiring, speed and loss")
    beyond = "measure at most this many pairs of NICs, sampled at random (default: 1000)"
    parser.add_argument("--pairs", type=int, default=1000, metavar="N", help=beyond)
    faulty = (
        'inject "link NAME rate 0.5", "link NAME loss 0.01", "link NAME down" or "miswired NAME NAME"; may be repeated'
    )
    parser.add_argument("--fault", action="append", default=[], metavar="TEXT", help=faulty)
    add_json_option(parser, "print what was measured, and the faults, as JSON")
    add_engine_option(parser)
    parser.set_defaults(command=run_validation)


def run_validation(options: argparse.Namespace, arguments: list[str]) -> int:
    """Test a fabric; 1 if it has faults."""
    fabric = fabric_of(options)
    check_options(fabric, options)
    require_queueing(fabric, options)
    enter_world(arguments, options, fabric)
    from app.validation.command import validate_in_world  # Only who is in the world need load the tests.

    return validate_in_world(fabric, options)
