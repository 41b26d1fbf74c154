"""``python -m runs.launching.playing``: loads :mod:`runs.launching.play` with all that it needs, and plays."""

from __future__ import annotations

from fabric.garbage import uncollected

if __name__ == "__main__":
    with uncollected():
        from fabric.world.inside import leave
        from runs.launching.play import main
    leave(main())
