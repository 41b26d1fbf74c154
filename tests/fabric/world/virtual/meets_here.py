"""``meets_here.py ADDRESS GUESTS MACHINES WHAT``: plays a part of linked_guests.py in guests of several machines, this
one the first. Prints the meeting's port and key first, then what guest 0 prints, or why that failed."""

from __future__ import annotations

import sys

from fabric.errors import FabricError
from fabric.world.engine import Front, Guest
from fabric.world.virtual.guest import GIB
from fabric.world.virtual.meeting import opened
from fabric.world.virtual_time import VirtualEngine
from tests.fabric.world.virtual import linked_guests


def main(address: str, guests: int, machines: int, what: str) -> int:
    with opened(address, machines) as meeting, meeting.listener() as listener:
        print(listener.getsockname()[1], meeting.key, flush=True)
        guest = Guest(1, (), GIB // 2, guests, linked_guests.DELAY_NS, meeting if machines > 1 else None)
        command = [sys.executable, "-m", linked_guests.__name__, what]
        try:
            VirtualEngine().enter(command, guest, Front(stdout=sys.stdout.buffer))
        except FabricError as error:
            print(f"failed: {error}", flush=True)
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
