"""A Slurm on this machine, as the distribution has it: its daemons are processes of the test, its files in a directory.
Several nodes are so many daemons."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import held_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory={memory_mib} "
    "State=UNKNOWN"
)
_UP_S = 60.0
_ENDS_S = 20.0
_CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MinJobAge=300
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    """Return what is not installed."""
    places = ("/usr/sbin", "/usr/bin")
    return [name for name in PROGRAMS if not any((Path(place) / name).exists() for place in places)]


@contextmanager
def slurm(directory: Path, nodes: int = 1, memory_mib: int = 4000) -> Iterator[dict[str, str]]:
    """Yield the environment in which ``sbatch`` finds a cluster that is up, for the time of a block."""
    host = socket.gethostname().partition(".")[0]
    names = [host] if nodes == 1 else [f"{host}-{number}" for number in range(nodes)]
    for folder in ("state", "munge", *(f"spool-{name}" for name in names)):
        (directory / folder).mkdir()
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    config = directory / "slurm.conf"
    with ExitStack() as stack:
        controller, *ports = stack.enter_context(held_ports(1 + nodes))
        described = [
            _NODE.format(name=name, host=host, port=port, cores=os.cpu_count(), memory_mib=memory_mib)
            for name, port in zip(names, ports, strict=True)
        ]
        config.write_text(
            _CONFIG.format(host=host, directory=directory, controller=controller, nodes="\n".join(described))
        )
        environment = {**os.environ, "SLURM_CONF": str(config)}
        munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={directory}/munge.socket"]
        munged += [f"--{what}-file={directory}/munge/{what}" for what in ("pid", "log", "seed")]
        stack.enter_context(_daemon(munged, environment, directory))
        _wait_for("munged", lambda: (directory / "munge.socket").exists(), directory)
        for command in (["slurmctld", "-D", "-i"], *(["slurmd", "-D", "-N", name] for name in names)):
            stack.enter_context(_daemon(command, environment, directory))
        asked = ["sinfo", "-h", "-N", "-o", "%T"]
        _wait_for("idle nodes", lambda: _answer(asked, environment).split() == ["idle"] * nodes, directory)
        yield environment


def _answer(command: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_UP_S, check=False).stdout


@contextmanager
def _daemon(command: list[str], environment: Mapping[str, str], directory: Path) -> Iterator[None]:
    path = "/usr/sbin:" + environment["PATH"]
    with (directory / f"{command[0]}-{Path(command[-1]).name}.out").open("w") as output:
        process = subprocess.Popen(command, env={**environment, "PATH": path}, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(what: str, is_there: object, directory: Path) -> None:
    assert callable(is_there)
    deadline = time.monotonic() + _UP_S
    while not is_there():
        said = "\n".join(path.read_text()[-500:] for path in directory.glob("*.out"))
        assert time.monotonic() < deadline, f"waited {_UP_S:g} s for {what} of Slurm:\n{said}"
        time.sleep(0.2)
