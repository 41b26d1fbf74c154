"""The tree of errors. Every message names the thing, the value, the limit and the next step."""

from __future__ import annotations

from collections.abc import Sequence


class FabricError(Exception):
    """Base of every error that a user can meet; the command ends with :attr:`exit_code`."""

    exit_code = 1


class ConfigError(FabricError):
    """A config file or an option is wrong. Holds every fault found, not only the first."""

    exit_code = 2

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        self.source = source
        self.faults = tuple(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))


class TopologyError(ConfigError):
    """A topology cannot be wired as asked."""


class UsageError(FabricError):
    """The command was called wrongly."""

    exit_code = 2


class EmulationError(FabricError):
    """The emulation could not be built or did not stay up."""


class DeadlockError(EmulationError):
    """Lossless ports wait for each other forever: routes allow a circle, and traffic closed it."""


class ControllerError(FabricError):
    """The controller did not start, or did not install what was planned."""


class TrafficError(FabricError):
    """A program inside a host failed or answered wrongly."""


class ResultError(FabricError):
    """A result directory cannot be read or written."""
