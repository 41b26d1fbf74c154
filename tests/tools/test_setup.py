"""What tools/setup.sh does to a machine, on one whose package manager is made up and whose directories are empty."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.root  # For a mount namespace, in which the machine's directories are others.

ROOT = Path(__file__).parents[2]
ALL = [
    *("mininet", "openvswitch-switch", "iproute2", "iputils-ping", "iperf3", "tcpdump", "util-linux", "procps"),
    *("gcc", "libc6-dev", "python3-venv", "python3-pip"),
]
OF_KERNELS = ["build-essential", "flex", "bison", "bc", "xz-utils", "bzip2"]
POLICY = Path("/usr/sbin/policy-rc.d")
FAKES = {
    "dpkg-query": """
        case "$2" in
            *Package*Status}*) sed 's/ .*/ install ok installed/' "$STATE/installed" ;;
            *) sed 's/^/ii  /' "$STATE/installed" ;;
        esac""",
    "apt-get": """
        echo "apt-get $*" >> "$STATE/calls"
        [ "$1" = install ] || exit 0
        cp /usr/sbin/policy-rc.d "$STATE/policy"
        [ ! -e "$STATE/fails" ] || exit 100
        for word; do case $word in install | -*) ;; *) echo "$word 1.0" >> "$STATE/installed" ;; esac; done
        sed -i 's/^libssl3 .*/libssl3 3.1/' "$STATE/installed"
        mkdir -p /etc/systemd/system/multi-user.target.wants
        touch /etc/systemd/system/multi-user.target.wants/openvswitch-switch.service""",
    "systemctl": 'echo "systemctl $*" >> "$STATE/calls"',
    "id": '[ -e "$STATE/user" ] && echo 1000 || echo 0',
}


@dataclass
class Machine:
    """A checkout with a venv that is as it should be, and what is installed."""

    state: Path
    installed: list[str] = field(default_factory=lambda: [*ALL, "libssl3"])

    def __post_init__(self) -> None:
        checkout, fakes = self.state / "checkout", self.state / "fakes"
        (checkout / "tools").mkdir(parents=True)
        (checkout / ".venv").mkdir()
        fakes.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "tools/setup.sh"):
            shutil.copy(ROOT / name, checkout / name)
        for name, words in FAKES.items():
            (fakes / name).write_text(f"#!/bin/sh\n{words}\n")
            (fakes / name).chmod(0o755)
        self._make_venv_fit(checkout)

    def _make_venv_fit(self, checkout: Path) -> None:
        script = (checkout / "tools/setup.sh").read_text()
        begin = script.index("\nmake_venv() {") + 1
        how = script[begin : script.index("\n}\n", begin) + 3]
        python = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True).stdout
        made_of = "".join((ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt")) + python + how
        (checkout / ".venv/.installed").write_text(hashlib.sha256(made_of.encode()).hexdigest() + "  -\n")

    def set_up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the script where nothing of this machine's can change."""
        (self.state / "installed").write_text("".join(f"{name} 1.0\n" for name in self.installed))
        (self.state / "calls").write_text("")
        hidden = ("/usr/sbin", "/usr/src", "/etc/systemd/system")
        empty = " && ".join(f"mount -t tmpfs tmpfs {directory}" for directory in hidden)
        look = 'tools/setup.sh "$@"; code=$?; ls /usr/sbin > "$STATE/left"; exit $code'
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{empty} && {{ {look}; }}", "sh"]
        environment = {"PATH": f"{self.state}/fakes:/usr/bin:/bin", "STATE": str(self.state)}
        return subprocess.run(
            [*command, *arguments],
            cwd=self.state / "checkout",
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def said(self, name: str) -> str:
        """Return what the made-up programs wrote."""
        return (self.state / name).read_text()

    @property
    def install_words(self) -> list[str]:
        """The words of the call that installs."""
        (line,) = (line for line in self.said("calls").splitlines() if line.startswith("apt-get install"))
        return line.split()[2:]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_nothing_is_missing_nothing_is_touched(machine: Machine) -> None:
    done = machine.set_up()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.said("calls") == ""


def test_only_what_is_missing_is_installed_and_nothing_upgraded(machine: Machine) -> None:
    machine.installed.remove("tcpdump")
    assert machine.set_up().returncode == 0
    assert [word for word in machine.install_words if not word.startswith("-")] == ["tcpdump"]
    assert {"--no-upgrade", "--no-install-recommends"} <= set(machine.install_words)


def test_services_that_come_along_neither_start_nor_stay_enabled_and_are_named(machine: Machine) -> None:
    machine.installed.remove("openvswitch-switch")
    done = machine.set_up()
    assert "exit 101" in machine.said("policy"), "maintainers' scripts were told that they may start services"
    assert machine.said("left") == "", f"{POLICY} is still there"
    assert "systemctl --quiet disable openvswitch-switch.service" in machine.said("calls")
    assert "openvswitch-switch.service came along; it is neither started nor enabled" in done.stdout


def test_what_changed_is_said_with_versions_of_what_was_there(machine: Machine) -> None:
    machine.installed.remove("tcpdump")
    lines = machine.set_up().stdout.splitlines()
    assert "setup: installed 1 packages: tcpdump" in lines
    assert "libssl3 3.1 (was 1.0)" in lines


def test_an_install_that_fails_leaves_no_policy_behind(machine: Machine) -> None:
    machine.installed.remove("tcpdump")
    (machine.state / "fails").touch()
    assert machine.set_up().returncode != 0
    assert machine.said("left") == ""


def test_a_kernels_source_comes_only_with_what_builds_it(machine: Machine) -> None:
    machine.installed.remove("tcpdump")
    assert machine.set_up().returncode == 0
    assert "linux-source" not in machine.install_words
    machine.installed += ["tcpdump", *OF_KERNELS]
    assert machine.set_up("virtual").returncode == 0
    assert [word for word in machine.install_words if not word.startswith("-")] == ["linux-source"]


def test_without_root_what_is_missing_and_the_next_step_are_named(machine: Machine) -> None:
    machine.installed.remove("tcpdump")
    (machine.state / "user").touch()
    done = machine.set_up()
    assert done.returncode == 1
    assert "missing and installing them needs root: tcpdump" in done.stderr
    assert "run 'tools/setup.sh' as root once" in done.stderr
    assert machine.said("calls") == ""


def test_an_unknown_word_is_refused(machine: Machine) -> None:
    done = machine.set_up("tests")
    assert done.returncode == 2
    assert "tests: unknown; write tools/setup.sh, tools/setup.sh virtual or tools/setup.sh test" in done.stderr
