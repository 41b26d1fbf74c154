"""Imported last by the process that forks programs into hosts: what it has loaded by now is never garbage.

A full collection in a program would write to every object's header, and so copy nearly all pages that it shares with
that process: 50 ms of CPU per program, and many times that in a guest, where a page fault goes through the host.
"""

from __future__ import annotations

import gc
import os

os.register_at_fork(before=gc.freeze)
