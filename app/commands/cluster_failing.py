"""``fabric cluster fail`` and ``heal``: users let targets of a fabric that is up fail by hand."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from app.commands.cluster_questions import add_usual, asked, printed
from app.commands.options import add_set_option
from fabric.errors import UsageError

if TYPE_CHECKING:
    from cluster.platform.responses import HandFailure


def add_failing_options(commands: Any) -> None:
    """Define the commands."""
    one = commands.add_parser("fail", help="let a link, switch, host, NIC or disk fail until it is healed")
    what = (
        "as in failures: of a config: a link (z0l00:3, z0l00-z0s01#2), a switch, a host, a disk (st001/2), or with its "
        "kind: nic=st001:1, silent=z0h003, process=z0h003"
    )
    one.add_argument("target", metavar="TARGET", help=what)
    lasts = "heal it after that time of the cluster, e.g. '3 s' (default: it lasts until fabric cluster heal)"
    one.add_argument("--for", dest="lasts", metavar="TIME", help=lasts)
    add_set_option(one, "a further key of such a line, e.g. loss=0.01, rate=0.5 or effect=stop (default: a cut)")
    add_usual(one, fail_target)
    one = commands.add_parser("heal", help="end what fails by hand")
    one.add_argument("target", metavar="TARGET", nargs="?", help="as it was given to fabric cluster fail")
    one.add_argument("--all", action="store_true", help="everything that fails by hand")
    add_usual(one, heal_target)


def fail_target(options: argparse.Namespace, _: list[str]) -> int:
    """Let a target fail."""
    from cluster.platform.requests import FailTarget
    from cluster.platform.responses import FailuresListed
    from fabric.config import with_overrides

    line = with_overrides({}, options.overrides) | ({} if options.lasts is None else {"for": options.lasts})
    if "target" in line:
        raise UsageError("--set target: is the command's own argument; leave it out")
    with asked(options) as cluster:
        answer = cluster.ask(FailTarget({"target": options.target, **line}), FailuresListed)
    words = [f"{_said(one)} since {one.since_s:.1f} s" for one in answer.touched]
    ends = [f"until {one.until_s:.1f} s" for one in answer.touched if one.until_s is not None]
    words += ends or [f"fabric cluster heal {options.target} ends it"]
    return printed(options, answer, "\n".join(words))


def heal_target(options: argparse.Namespace, _: list[str]) -> int:
    """Heal a target, or all."""
    from cluster.platform.requests import HealTarget
    from cluster.platform.responses import FailuresListed

    if bool(options.target) == options.all:
        raise UsageError("give one target, or --all; what fails by hand: fabric cluster status")
    with asked(options) as cluster:
        answer = cluster.ask(HealTarget(options.target or ""), FailuresListed)
    left = len(answer.failures)
    words = [f"{one.target} is healed" for one in answer.touched]
    words += [f"{left} still fail by hand: fabric cluster status"] if left else []
    return printed(options, answer, "\n".join(words))


def _said(one: HandFailure) -> str:
    more = f" and {len(one.hits) - 1} more" if len(one.hits) > 1 else ""
    of = "" if one.hits == (one.target,) else f" ({one.hits[0]}{more})"
    return f"{one.target} {one.state}{of}"
