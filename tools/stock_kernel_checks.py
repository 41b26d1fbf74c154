"""What tools/stock_kernel.sh runs in its guest: the namespace engine on the kernel's datapath, and vl as a module.

Full emulation is some twenty times slower than the machine, so rates are low and phases few. Prints one line per check,
and the output of failed ones. Results are kept in /out.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

OUT = Path("/out")
FABRIC = str(Path(sys.executable).with_name("fabric"))
TINY = "fire_flyer_2_tiny"
LIMIT_S = 1200.0
SLOW = ["topology.inter_zone.rate=2 Mbit/s", "topology.nic_rate=2 Mbit/s", "topology.uplink_rate=2 Mbit/s"]
SHORT = [
    "topology=fire_flyer_2_tiny",
    "nccl_nodes=2",
    "alone_time=4",
    "together_time=8",
    "hfreduce.size=128KiB",
    "nccl.size=64KiB",
    "storage.checkpoint.size=256KiB",
]
HEAD_OF_LINE = [
    "topology.nic_rate=3 Mbit/s",
    "topology.uplink_rate=12 Mbit/s",
    "time_scale=33",
    "repeats=1",
    "sample_period=50 ms",
]


class UnexpectedError(Exception):
    """A check found what it did not expect."""


def expect(condition: bool, found: object) -> None:
    """Raise UnexpectedError with what was found unless a condition holds."""
    if not condition:
        raise UnexpectedError(found)


def doctor(answer: str) -> None:
    """Expect the kernel's datapath, and lossless queueing in real time."""
    found = {one["subject"]: one for one in json.loads(answer)["findings"]}
    datapath, lossless = found["Open vSwitch datapath"], found["lossless queueing, namespace engine"]
    expect(datapath["detail"].startswith("kernel"), datapath)
    expect(lossless["good"], lossless)


def delivered(answer: str) -> None:
    """Expect a probe that went the way it was to go."""
    expect(json.loads(answer)["agrees"], answer)


def believed(name: str) -> Callable[[str], None]:
    """Expect a result that is faithful."""

    def check(_: str) -> None:
        manifest = json.loads((OUT / name / "manifest.json").read_text())
        expect(manifest["verdict"]["status"] == "faithful", manifest["verdict"])

    return check


def run(name: str, *settings: str) -> list[str]:
    """Return the command that runs an experiment with settings."""
    return ["run", name, "--out", str(OUT / name), *(text for setting in settings for text in ("--set", setting))]


CHECKS: dict[str, tuple[list[str], Callable[[str], None]]] = {
    "doctor": (["doctor", "--json"], doctor),
    "probe": (["path", TINY, "z0h000", "z1h001", "--probe", "--json"], delivered),
    "probe, lossless": (
        ["path", TINY, "z0h000", "z1h001", "--probe", "--json", "--queueing", "lossless_lanes"],
        delivered,
    ),
    "validate": (["validate", TINY, "--quick", *(t for s in SLOW for t in ("--set", s))], lambda _: None),
    "isolation": (run("isolation", *SHORT, *SLOW), believed("isolation")),
    "head_of_line": (run("head_of_line", *HEAD_OF_LINE), believed("head_of_line")),
}


def main(names: list[str]) -> int:
    """Run the checks named, or all; return 1 if one fails."""
    failed = 0
    for name in names or CHECKS:
        words, check = CHECKS[name]
        started = time.monotonic()
        print(f"{name}: fabric {' '.join(words)}", flush=True)
        done = subprocess.run([FABRIC, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        try:
            expect(done.returncode == 0, f"ended with {done.returncode}")
            check(done.stdout)
            outcome = "passed"
        except (UnexpectedError, OSError, ValueError, KeyError) as error:
            failed += 1
            outcome = f"FAILED: {error}\n{done.stdout}\n{done.stderr}"
        print(f"{name}: {time.monotonic() - started:.0f} s, {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
