"""An unmodified program that says, as JSON, what it finds on its host, and what ssh does there.

Its argument is the other host's name; each writes where the other must not see it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

SSH = {
    "plain": ["ssh", "OTHER", "hostname"],
    "options": ["ssh", "-x", "-o", "StrictHostKeyChecking=no", "-p22", "-q", "OTHER", "-l", "root", "hostname"],
    "user": ["ssh", "somebody@OTHER", "hostname"],
    "address": ["ssh", "ADDRESS", "hostname"],
    "url": ["ssh", "ssh://root@OTHER:22", "hostname"],
    "rsh": ["rsh", "OTHER", "hostname"],
    "code": ["ssh", "OTHER", "exit 7"],
    "quoting": ["ssh", "OTHER", "echo", "'a  b'", "$((1 + 1))"],
    "signal": ["ssh", "OTHER", "kill -9 $$"],
    "nobody": ["ssh", "no-such-host", "true"],
    "forwarding": ["ssh", "-L", "1:localhost:1", "OTHER", "true"],
    "terminal": ["ssh", "-tt", "OTHER", "tty; exit 5"],
    "settings": ["ssh", "-G", "OTHER"],
    "names": ["ssh", "OTHER", "ls /sys/class/net; echo $FABRIC_HOST"],
}
MARK = "left-behind"
MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
RDMA = {"/sys/class/infiniband": "*", "/sys/class/infiniband_verbs": "uverbs*", "/dev/infiniband": "uverbs*"}
"""Where libibverbs, UCX and libfabric look for devices."""


def said(words: list[str], given: str = "") -> list[object]:
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=60, check=False)
    return [done.returncode, done.stdout.strip() or done.stderr.strip()]


def copied(other: str) -> list[str] | None:
    """Copy a file to another host, and one from there; return what arrived. None: the machine has no scp."""
    if not Path("/usr/bin/scp").exists():
        return None
    mark = Path("/tmp/to-copy")
    said(["ssh", other, f"cat > {mark}"], other)
    mark.write_text(socket.gethostname())
    said(["scp", "-q", str(mark), f"{other}:/tmp/by-scp"])
    said(["scp", "-q", f"{other}:{mark}", "/tmp/by-scp-back"])
    return [str(said(words)[1]) for words in (["ssh", other, "cat /tmp/by-scp"], ["cat", "/tmp/by-scp-back"])]


def queues() -> list[str]:
    """Make a POSIX message queue of the host's name; return those in sight."""
    name = f"{MARK}-{socket.gethostname()}"
    assert ctypes.CDLL("librt.so.1").mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
    return sorted(path.name for path in Path("/dev/mqueue").iterdir())


def asked(name: str) -> str:
    """Return what a host's server of names says, as programs without the C library's resolver ask: the last four bytes
    of its answer as hex, or its error's number."""
    words = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        question.settimeout(60)
        question.connect(("127.0.0.53", 53))
        question.send(b"no" + bytes([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + words + bytes([0, 0, 1, 0, 1]))
        answer = question.recv(512)
    return str(answer[3] & 15) if answer[3] & 15 else answer[-4:].hex()


def main() -> None:
    other, address = sys.argv[1], socket.gethostbyname(sys.argv[1])
    for place in ("/tmp", "/run", "/dev/shm"):
        Path(place, f"{MARK}-{socket.gethostname()}").touch()
    began = time.monotonic()
    try:
        found = socket.gethostbyname("metadata.invalid")
    except OSError as error:
        found = f"errno {error.errno}"
    names = {
        "backwards": socket.getnameinfo((f"::ffff:{address}", 80), 0)[0],
        "asked": asked(other) == socket.inet_aton(address).hex(),
        "asked_for_nobody": asked("nobody.invalid"),
    }
    looked_up_s = time.monotonic() - began
    time.sleep(1)  # Until the other has written, too.

    def filled(word: str) -> str:
        return word.replace("OTHER", other).replace("ADDRESS", address)

    seen = {
        "hostname": socket.gethostname(),
        "sysfs": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "speed": Path("/sys/class/net/eth0/speed").read_text(),
        "netlink": sorted(name for _, name in socket.if_nameindex()),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "ids": {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("ipc", "mnt", "net", "pid", "uts")},
        "first_process": Path("/proc/1/cmdline").read_text().strip("\0"),
        "processes": sum(path.name.isdigit() for path in Path("/proc").iterdir()),
        "left": sorted(str(path) for place in ("/tmp", "/run", "/dev/shm") for path in Path(place).glob(f"{MARK}*")),
        "unknown_name": found,
        "names": names,
        "copied": copied(other),
        "machine_ids": sorted({Path(path).read_text() for path in MACHINE_IDS if Path(path).exists()}),
        "queues": queues(),
        "named_host": shutil.which("host", path=str(Path(shutil.which("ssh") or "").parent)),
        "locks": Path("/run/lock").stat().st_mode & 0o7777,
        "rdma": [str(path) for place, names in RDMA.items() for path in Path(place).glob(names)],
        "looked_up_s": looked_up_s,
        "ssh": {name: said([filled(word) for word in words]) for name, words in SSH.items()},
        "stdin": said(["ssh", other, "cat"], "from here"),
        "no_stdin": said(["ssh", "-n", other, "cat"], "from here"),
        "addresses": said(["ip", "-br", "address", "show", f"{socket.gethostname()}-eth0"]),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
