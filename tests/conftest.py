"""What all tests share: tests marked ``root`` are skipped, with the reason, where no namespaces can be made.

For tests marked ``guest`` the guest kernel is built, if this machine has none; they are skipped, with the reason, where
it cannot be.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing import forkserver
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fabric.world.engines import VIRTUAL
from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from runs.launching.enter import IMPORTS
from tests import handed_files
from tests.side_by_side import SideBySide

CLONE_NEWNET = 0x40000000
_GUESTS_NICENESS, _OTHERS_NICENESS = 10, 5
_GUESTS_TIMEOUT_S = 1200
"""Long for what takes seconds: a niced guest may have to wait."""
_OUR_NICENESS = os.getpriority(os.PRIO_PROCESS, 0)
_libc = ctypes.CDLL(None, use_errno=True)
_kept = ExitStack()

gc.disable()  # Until all tests are collected: it would take as long again.

# How long examples take says how busy the machine is: guests beside them leave them a part of a core. Tests have the
# same examples in every run: a failure then comes of a change. `pytest --hypothesis-profile=exploring` draws others.
_BESIDE_GUESTS: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeated", derandomize=True, **_BESIDE_GUESTS)
settings.register_profile("exploring", **_BESIDE_GUESTS)
settings.load_profile("repeated")


@cache
def why_no_namespaces() -> str | None:
    """Return why tests that bring networks up cannot run here; None if they can."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces; run it with sudo"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"needs network namespaces, and they do not work here: {error}"
    return None if done.returncode == 0 else f"needs network namespaces, and they do not work here: {done.stderr}"


def why_no_guest() -> str | None:
    """Return why no guest can be started here, nor a kernel for it be built; None if one can."""
    if kernel.find() is not None:
        return None
    if missing := kernel.missing_packages():
        return f"no guest kernel is built, and building one needs: sudo apt-get install {' '.join(missing)}"
    return None


def is_guest(item: pytest.Item) -> bool:
    """Return whether a test needs a guest."""
    return item.get_closest_marker("guest") is not None


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C interrupt what tests start: a shell that runs them in the background has it ignored, by all below."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handed_files.register(config)
    if not hasattr(config, "workerinput"):
        _keep_guests()


def _keep_guests() -> None:
    """Fork the guests of all workers' commands, so that most cost neither boot nor imports.

    One keeper for all: its thread is niced, as the guests that it boots will be, then we are what we were.
    """
    is_root = os.geteuid() == 0  # Once niced, only root is let out of it.
    if is_root:
        os.setpriority(os.PRIO_PROCESS, 0, _GUESTS_NICENESS)
    _kept.enter_context(VIRTUAL.several(IMPORTS))
    if is_root:
        os.setpriority(os.PRIO_PROCESS, 0, _OUR_NICENESS)


def pytest_unconfigure() -> None:
    """End the guests that were kept: all workers have ended."""
    _kept.close()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide | None:
    """Hand out files so that worlds and guests share the machine well."""
    if not handed_files.is_by_file(config):
        return None
    if (reporter := config.pluginmanager.getplugin("terminalreporter")) is not None:
        reporter._show_progress_info = False  # It would count files in hundredths.
    return SideBySide(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave soaks out, unless they are asked for, and give guests time."""
    if "soak" not in config.option.markexpr:
        soaks = {item for item in items if item.get_closest_marker("soak")}
        config.hook.pytest_deselected(items=[item for item in items if item in soaks])
        items[:] = [item for item in items if item not in soaks]
    for item in items:
        if is_guest(item) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_GUESTS_TIMEOUT_S))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let guests give way to all others, in them nothing is late because the machine is busy; and all to worlds."""
    is_world = item.get_closest_marker("root") is not None
    niceness = _GUESTS_NICENESS if is_guest(item) else _OUR_NICENESS if is_world else _OUR_NICENESS + _OTHERS_NICENESS
    with suppress(PermissionError):  # Once niced, only root is let out of it.
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    yield


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the guest kernel, or its modules, if tests need them: no test's time limit fits the minutes it takes.

    Ten thousand tests stay: no collection of garbage need go through them.
    """
    gc.freeze()
    gc.enable()
    if session.config.option.collectonly or not any(map(is_guest, session.items)):
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        if (found := kernel.find()) is not None:
            modules.build(found.directory.name, found.module_command)
        elif why_no_guest() is None:
            print("\nbuilding the guest kernel; this takes minutes, once")
            kernel.build(lambda text: print(f"  {text}", flush=True))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if is_guest(item) and (reason := why_no_guest()):
        pytest.skip(reason)
    if item.get_closest_marker("root") is not None and (reason := why_no_namespaces()):
        pytest.skip(reason)


@pytest.fixture
def private_network() -> Iterator[None]:
    """Take this thread, and what it starts, into a network of its own, empty but for lo; it ends with the test."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert _libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert _libc.setns(home, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.close(home)
        forkserver._forkserver._stop()  # type: ignore[attr-defined] # If it was started here, it is still there.
