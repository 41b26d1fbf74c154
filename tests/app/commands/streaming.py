"""``python streaming.py DO``: a command with its capture on stdout, and what it does in place of a fabric."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path

from app.commands.streams import begin_streams

PIECE = bytes(range(256)) * 4096
PIECES = 20
NO_SFLOW = Namespace(sflow=None, sflow_sampling=None, sflow_polling=None)


def main(what: str) -> int:
    (made,) = begin_streams(["z0l00:1=-"], NO_SFLOW).captures
    file = Path(made.partition("=")[2])
    print(f"command {os.getpid()} {file.parent}", flush=True)
    with file.open("ab") as packets:
        for _ in range(PIECES):
            packets.write(PIECE)
            packets.flush()
            time.sleep(0.01)
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGUSR1)
    if what == "waits":
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(5))
        print("waits", flush=True)
        time.sleep(60)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
