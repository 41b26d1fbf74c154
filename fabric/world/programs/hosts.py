"""What users' programs find on a host beside its network, and how they are started there.

Each host has its own name, mounts, IPC, processes, ``/sys``, ``/dev/shm``, ``/tmp``, ``/run``, boot and machine id; its
NICs have the speed of their links, and an RDMA device each where the run offers verbs. They are made when the first
program starts on it (``host_programs.c``). Programs of the fabric itself, which are forked into a host's network
(:mod:`fabric.world.programs.agents`), need none of it and do not make it.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world import cache
from fabric.world.engine import RUN_DIR, SHARED
from fabric.world.isolation import netns
from fabric.world.programs.preload import cached_program, seeded_random

FOLDER = RUN_DIR / "furnished"
"""``host_programs.c`` knows it, too."""
BINARIES = RUN_DIR / "bin"
"""First in the PATH of programs on hosts."""
PRIVATE = (Path("/tmp"), Path("/run"))
"""What each host has of its own."""
NICS = FOLDER / "nics"
"""``host_programs.c`` knows it, too."""
_COPIES = FOLDER / "copies"
"""``host_programs.c`` knows it, too."""
_SEEDED = FOLDER / "seeded"
"""``host_programs.c`` knows it, too."""
UNKNOWN_SPEED = -1
"""What Linux says of a speed that it does not know. It counts in whole Mbit/s."""
REMOTE_SHELLS = ("ssh", "rsh", "remsh", "scp", "sftp")
_PROGRAM = "fabric-host"  # In hosts' PATH, where plain `host` asks name servers.
_SOURCE = Path(__file__).with_name("host_programs.c")
_START_TIMEOUT_S, _PROVIDE_TIMEOUT_S = 60.0, 120.0
_RESOLV_CONF = (
    "# Questions stay on the host: they are for a server of the user's there, if there is one, then for process 1.\n"
    "nameserver 127.0.0.1\nnameserver 127.0.0.53\n"
)
_NSSWITCH = Path("/etc/nsswitch.conf")


def prefix(host: str, directory: Path | None = None) -> list[str]:
    """Return what to put before a command's words to run it on a host, in a directory (None: the current one).

    The command stays in the caller's session and process group. Raises EmulationError without a C compiler.
    """
    return [str(provide()), "enter", host, str(Path.cwd() if directory is None else directory)]


def on_host(
    host: str, command: Sequence[str], environment: Mapping[str, str], directory: Path | None = None
) -> list[str]:
    """Return the words that run a command on a host, in a directory (None: the current one), which the host shares.

    Raises OSError for a program or a directory that is not there, as starting it beside this process would: what enters
    a host could only print it among the program's output.
    """
    start = Path.cwd() if directory is None else directory
    program = str(start / command[0]) if "/" in command[0] else command[0]
    if not start.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(start))
    if shutil.which(program, path=environment.get("PATH")) is None:
        kind = errno.EACCES if Path(program).exists() else errno.ENOENT
        raise OSError(kind, os.strerror(kind), command[0])
    return [*prefix(host, start), *command]


def describe_nics(rates: Iterable[tuple[str, str, int]]) -> None:
    """Note what hosts' interfaces are to say of themselves: of each its host, its name there, and its rate in bit/s.

    Only programs on hosts see it. A speed is in whole Mbit/s, rounded down; one below 1 is UNKNOWN_SPEED.
    """
    speeds = (f"{host} {interface} {rate_bps // 10**6 or UNKNOWN_SPEED}\n" for host, interface, rate_bps in rates)
    FOLDER.mkdir(parents=True, exist_ok=True)
    NICS.write_text("".join(speeds))


def build() -> None:
    """Build what hosts are furnished with in virtual time, before a guest starts: a compiler in one would draw at
    random and give the first run other figures. Without a compiler nothing is built: :func:`provide` raises."""
    with suppress(EmulationError, OSError, subprocess.SubprocessError):
        _enters_hosts()
        seeded_random()


def _enters_hosts() -> Path:
    return cached_program("host", [_SOURCE], "running programs on hosts")


def provide() -> Path:
    """Make what hosts are furnished with, and start the server of ssh, if neither is there; return the program that
    enters hosts."""
    program = BINARIES / _PROGRAM
    if not program.exists():
        with cache.locked(BINARIES / ".lock", "furnishing hosts", _PROVIDE_TIMEOUT_S):  # Several may start at once.
            if not program.exists():
                _provide(program)
    return program


def _provide(program: Path) -> None:
    from fabric.world.engines import current_engine  # Which builds what hosts are furnished with, by this module.

    built = _enters_hosts()
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = FOLDER / "names"
    names.mkdir(exist_ok=True)
    for host in netns.NETNS_DIR.iterdir():
        (names / host.name).touch()
    (FOLDER / "keep").write_text("".join(f"{path}\n" for path in _kept()))
    (FOLDER / "resolv.conf").write_text(_RESOLV_CONF)
    (FOLDER / "nsswitch.conf").write_text(_name_service())
    if current_engine().has_own_kernel:
        _SEEDED.write_text(str(seeded_random()))
    partial = BINARIES / f"{_PROGRAM}.{os.getpid()}"
    shutil.copy(built, partial)
    for name in REMOTE_SHELLS:
        link = BINARIES / name
        link.unlink(missing_ok=True)
        link.symlink_to(_PROGRAM)
    _serve(partial)
    partial.replace(program)


def _kept() -> list[Path]:
    """Return what is below /tmp and /run and stays in sight on hosts, the outermost first: what the run keeps there for
    its programs (mounts, in a guest), its own files, and where it was started."""
    mounted = [Path(_unescaped(line.split()[4])) for line in _mounts() if " - nsfs " not in line]
    named = {RUN_DIR, Path.cwd(), *shared()}
    wanted = {path for path in mounted if path not in PRIVATE} | (named - {Path("/run")})
    below = sorted(path for path in wanted if any(private in (path, *path.parents) for private in PRIVATE))
    return [path for path in below if not any(other in path.parents for other in below)]


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def shared() -> list[Path]:
    """Return the directories below /tmp or /run that all hosts share with each other and with the machine."""
    return [Path(part) for part in os.environ.get(SHARED, "").split(":") if part]


def _name_service() -> str:
    """Return how names are looked up: as on this machine, but for hosts, which only /etc/hosts knows, or a name server
    on the host itself."""
    try:
        lines = _NSSWITCH.read_text().splitlines()
    except OSError:
        lines = []
    others = [line for line in lines if not line.lstrip().startswith("hosts:")]
    return "\n".join([*others, "hosts: files dns"]) + "\n"


def _serve(program: Path) -> None:
    """Start the server of ssh, which ends with the world. Raises EmulationError if it does not start."""
    (FOLDER / "ssh").unlink(missing_ok=True)
    # Without the environment of who starts it, by which the processes of a rank are known and killed.
    command, nothing = [str(program), "serve"], subprocess.DEVNULL
    server = subprocess.Popen(command, env={}, stdin=nothing, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdout is not None
    with server.stdout as said:
        readable, _, _ = select.select([said], [], [], _START_TIMEOUT_S)
        if not readable or said.readline() != b"ready\n":
            raise EmulationError(f"the server of ssh on hosts did not start within {_START_TIMEOUT_S:g} s")


def copies() -> list[tuple[str, str]]:
    """Return which programs have copied over ``ssh`` so far, each with the host that was the copy's other end."""
    try:
        lines = _COPIES.read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted({(program, host) for program, host in map(str.split, lines)})


def launchers(hosts: Sequence[str], directory: Path) -> dict[str, str]:
    """Return what launchers of ranks go by, each its own variables; writes the lists of hosts that they name."""
    own = f"{hosts[0]}-{len(hosts)}"
    slots = _written(directory / f"hostfile-{own}", (f"{host} slots=1" for host in hosts))
    names = _written(directory / f"machines-{own}", hosts)
    shell = str(BINARIES / "ssh")
    return {
        "FABRIC_HOSTFILE": slots,
        "FABRIC_RSH": shell,
        # Open MPI 4; Open MPI 5, whose PRRTE starts the daemons.
        "OMPI_MCA_plm_rsh_agent": shell,
        "OMPI_MCA_orte_default_hostfile": slots,
        "PRTE_MCA_plm_ssh_agent": shell,
        "PRTE_MCA_prte_default_hostfile": slots,
        # MPICH's and Intel MPI's Hydra.
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": shell,
        "HYDRA_HOST_FILE": names,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": shell,
        "I_MPI_HYDRA_HOST_FILE": names,
        # pdsh, by which DeepSpeed starts its launchers.
        "PDSH_RCMD_TYPE": "ssh",
        "PDSH_SSH_ARGS_APPEND": "",
    }


def _written(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)
