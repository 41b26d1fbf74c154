"""A program of ``fabric exec`` that spoils its /dev: ``devices.py ST_DEV``, the machine's, which it leaves alone."""

import json
import os
import pty
import secrets
import subprocess
import sys
from pathlib import Path

if Path("/dev").stat().st_dev == int(sys.argv[1]):
    sys.exit("this is the machine's own /dev")

unlinked = []
for name in ("null", "zero", "urandom"):
    try:
        Path("/dev", name).unlink()
        unlinked.append(name)
    except OSError:
        pass
Path("/dev/null").chmod(0o600)
shared_memory = f"fabric-test-{secrets.token_hex(4)}"
Path("/dev/shm", shared_memory).write_bytes(bytes(2**16))
Path("/dev/null").write_bytes(os.urandom(8))
answer = {
    "dev": sorted(path.name for path in Path("/dev").iterdir()),
    "unlinked": unlinked,
    "null_mode": Path("/dev/null").stat().st_mode & 0o777,
    "shared_memory": shared_memory,
    "terminal": os.ttyname(pty.openpty()[1]),
    "queues": subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout,
}
print(json.dumps(answer))
