"""What a program waits for as it ends: threads of PyTorch's backward passes, here threads of their name."""

from __future__ import annotations

import ctypes
import threading
import time

from traffic.torch_gpus.loading import await_backward_threads

_PR_SET_NAME = 15
BUSY_S = 0.3


def test_a_program_ends_once_its_backward_threads_rest() -> None:
    named, rest, over = threading.Event(), threading.Event(), threading.Event()

    def computes() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"pt_autograd_0")
        named.set()
        until_s = time.monotonic() + BUSY_S
        while time.monotonic() < until_s:
            pass
        rest.set()
        over.wait(60)

    thread = threading.Thread(target=computes)
    thread.start()
    assert named.wait(60)
    await_backward_threads(limit_s=60.0)
    has_rested = rest.is_set()
    over.set()
    thread.join(60)
    assert has_rested


def test_a_program_without_such_threads_waits_for_none() -> None:
    began_s = time.monotonic()
    await_backward_threads(limit_s=60.0)
    assert time.monotonic() - began_s < 30


def test_a_thread_that_never_rests_is_waited_for_so_long_and_no_longer() -> None:
    named, over = threading.Event(), threading.Event()

    def computes() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"pt_autograd_1")
        named.set()
        while not over.is_set():
            pass

    thread = threading.Thread(target=computes)
    thread.start()
    assert named.wait(60)
    await_backward_threads(limit_s=0.05)
    over.set()
    thread.join(60)
