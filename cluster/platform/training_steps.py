"""A user's program that trains: ``python3 -m cluster.platform.training_steps --steps 100 --every 10 --files files``.

A step computes (it sleeps), and adds up a vector over all ranks by a ring of connections; every sum is checked. Each
rank prints ``step NUMBER sum CHECKSUM`` and, now and then, of checkpoints. A step adds the same to the state whichever
ranks there are: so a job goes on with another number of nodes, and ends with the state that it would have had anyway.

Checkpoints go to a file system of the run (``--files JOB``, :mod:`cluster.checkpoints.manager`), each rank writing a
part, or as a whole into a folder of each rank's node, which is lost with that. A program begins from the newest that it
finds.

Exit codes: 0 when all steps are made; 75 when it has suspended itself; 69 when a rank or the storage is gone, so that
the platform begins it again (:data:`cluster.platform.user.RESTART_CODE`); 70 if a sum or what was restored is wrong;
2 if what it was told cannot be, such as a file system that is not there.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.platform import user
from cluster.platform.gang import LANE_BYTES, Gang, GangLostError, Place, gathered
from cluster.platform.training_saves import FolderSaves, ModelSize, NoSavesError, Saves, SavesLostError, State, say
from cluster.platform.user import RESTART_CODE, go_suspend, receive_suspend_command, saved

WRONG_CODE, USAGE_CODE = 70, 2
SAMPLES = 64
"""Samples of a step, divided among the ranks."""
MOST_STEPS, MOST_VALUES, MOST_RANKS = 1_000_000, 1 << 24, 4096
VALUES = 4096
"""Of the vector, unless it is told."""
_FLAGS = 3
_SAVES_TIMEOUT_S = 150.0
"""How long what all ranks wait for may take in which some write a checkpoint: storage tries for a minute or two."""


class WrongSumError(Exception):
    """A sum over all ranks, or a state that was restored, is not what it must be."""


@dataclass(frozen=True)
class Training:
    """How many steps, how long each computes, how many values the vector has, and when a checkpoint is due: ``every``
    so many steps, or ``every_s`` (0: not by that). ``waits``: whether steps wait for a checkpoint (synchronous).
    ``samples``: of a step, divided among the ranks."""

    steps: int
    step_s: float
    values: int
    every: int = 0
    every_s: float = 0.0
    waits: bool = False
    samples: int = SAMPLES


def pattern(values: int) -> int:
    """Return a vector below 2**16 in each lane: each sample's gradient is so many times that."""
    noise = random.Random("values").randbytes(2 * values)
    lanes = bytearray(LANE_BYTES * values)
    lanes[0::LANE_BYTES], lanes[1::LANE_BYTES] = noise[0::2], noise[1::2]
    return int.from_bytes(lanes, "little")


def factor(step: int, samples: Sequence[int]) -> int:
    """Return how many times the pattern some samples of a step come to."""
    return sum(zlib.crc32(f"{step}/{sample}".encode()) & 0xFFFF for sample in samples)


class Trainer:
    """One rank's steps. ``part``: this rank's part of a step, by the step, before all add up; without it, it sleeps for
    as long as a step computes."""

    def __init__(self, training: Training, gang: Gang, saves: Saves, part: Callable[[int], None] | None = None) -> None:
        self.training, self.gang, self.saves = training, gang, saves
        self._part = part or (lambda step: time.sleep(training.step_s))
        self.state = State(training.values)
        self._pattern = pattern(training.values)
        self._saving: int | None = None
        """The step whose checkpoint is being written."""
        self._begun = 0
        """The step whose checkpoint was begun last, or is the one that was restored."""
        self._saved_s = time.monotonic()

    def restore(self) -> None:
        """Begin from the newest checkpoint. Raises WrongSumError if its state is not that of its step."""
        self.saves.restore(self.gang, self.state)
        samples = range(self.training.samples)
        total = sum(factor(step, samples) for step in range(1, self.state.step + 1))
        if self.state.value != self._pattern * total:
            raise WrongSumError(f"the state restored is not that of step {self.state.step}")
        self._begun = self.state.step
        if self.state.step:
            say(f"restored step {self.state.step} state {self.state.checksum:08x} on {self.gang.world} ranks")

    def train(self) -> bool:
        """Make the steps that are left; return whether all are made: if not, it is to suspend, and has saved."""
        while self.state.step < self.training.steps:
            flags = self._step()
            if self._saving is not None and flags[2] == self.gang.world:
                self._complete()
            if flags[0]:
                self._save(waits=True)
                return False
            if flags[1]:
                self._save(self.training.waits)
        if self.training.every or self.training.every_s:
            self._save(waits=True)
        self._settle()
        return True

    def _step(self) -> list[int]:
        """Make a step; return how many ranks say each: that the job is to suspend, that a checkpoint is due, that their
        part of the one under way is written. The first two only rank 0 says."""
        training, gang, step = self.training, self.gang, self.state.step + 1
        self._part(step)
        user.step(step)  # Before the others are waited for: who has not told it is who they wait for.
        mine = factor(step, range(gang.rank, training.samples, gang.world))
        is_first = gang.rank == 0
        flags = [
            is_first and receive_suspend_command(),
            is_first and self._is_due(step),
            self._saving is not None and self.saves.is_written,
        ]
        shift = 8 * LANE_BYTES * training.values
        lanes = sum(int(flag) << (8 * LANE_BYTES * place) for place, flag in enumerate(flags)) << shift
        total = gang.allreduce(lanes + self._pattern * mine, training.values + _FLAGS)
        summed = total & ((1 << shift) - 1)
        if summed != self._pattern * factor(step, range(training.samples)):
            raise WrongSumError(f"the sum of step {step} over {gang.world} ranks is wrong")
        self.state.add(step, summed)
        say(f"step {step} sum {zlib.crc32(summed.to_bytes(shift // 8, 'little')):08x}")
        total >>= shift
        lane = (1 << (8 * LANE_BYTES)) - 1
        return [total >> (8 * LANE_BYTES * place) & lane for place in range(_FLAGS)]

    def _is_due(self, step: int) -> bool:
        every, every_s = self.training.every, self.training.every_s
        by_time = bool(every_s) and time.monotonic() - self._saved_s >= every_s
        return by_time or (bool(every) and step % every == 0 and step < self.training.steps)

    def _save(self, waits: bool) -> None:
        """Begin a checkpoint of the state as it is, unless there is one; the last one is completed first. All ranks
        do."""
        if self._begun != self.state.step:
            self._settle()
            self._saved_s = time.monotonic()
            self._begun = self._saving = self.state.step
            self.saves.begin(self.gang, self.state)
        if waits:
            self._settle()

    def _settle(self) -> None:
        """Wait until the checkpoint under way is complete, if there is one."""
        if self._saving is not None:
            self.saves.wait()
            self._complete()

    def _complete(self) -> None:
        """Make the checkpoint complete whose parts all ranks have written, or tried to."""
        step, self._saving = self._saving, None
        assert step is not None
        fault = self.saves.complete(self.gang, _SAVES_TIMEOUT_S)
        if fault:
            say(f"checkpoint of step {step} failed: {fault}; steps go on")
        else:
            say(f"saved step {step}")
            if self.gang.rank == 0:
                saved(step)
        self.gang.sums([1], _SAVES_TIMEOUT_S)  # So that no other rank suspends before the platform knows the step.


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training_steps", description="Train a vector with all ranks of a job.")
    parser.add_argument("--steps", type=int, required=True, help="steps of the whole training")
    parser.add_argument("--step-time", type=float, default=1.0, help="seconds that a step computes (1)")
    parser.add_argument("--every", type=int, default=0, help="steps from one checkpoint to the next (0: none by steps)")
    parser.add_argument("--every-s", type=float, default=0.0, help="likewise seconds")
    parser.add_argument("--synchronous", action="store_true", help="steps wait until a checkpoint is complete")
    parser.add_argument("--values", type=int, default=VALUES, help=f"values of 8 bytes in the vector ({VALUES})")
    parser.add_argument("--files", default="", help="the job whose file system has the checkpoints (none: a folder)")
    parser.add_argument("--path", default="", help="the directory there, or the folder, of the checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="how many checkpoints are kept (2)")
    parser.add_argument("--gather", type=float, default=60.0, help="seconds within which all ranks must be there (60)")
    parser.add_argument("--silent", type=float, default=30.0, help="seconds after which a silent rank is gone (30)")
    found = parser.parse_args(words)
    limits = [
        ("--steps", found.steps, 1, MOST_STEPS),
        ("--step-time", found.step_time, 0, 86_400),
        ("--every", found.every, 0, MOST_STEPS),
        ("--every-s", found.every_s, 0, 86_400),
        ("--values", found.values, 8, MOST_VALUES),
        ("--keep", found.keep, 1, 1000),
        ("--gather", found.gather, 0.1, 86_400),
        ("--silent", found.silent, 0.1, 86_400),
    ]
    for name, value, least, most in limits:
        if not least <= value <= most:
            parser.error(f"{name}: {value:g}; give {least:g} to {most:g}")
    return found


def _run(asked: argparse.Namespace, place: Place) -> int:
    training = Training(asked.steps, asked.step_time, asked.values, asked.every, asked.every_s, waits=asked.synchronous)
    if asked.files:
        by_the_runs_python("training_steps")
    saving = saves_of(place, asked.files, asked.path, asked.keep)
    with saving as saves, gathered(place, asked.gather, asked.silent) as gang:
        return trained(Trainer(training, gang, saves))


def trained(trainer: Trainer) -> int:
    """Train from the newest checkpoint on; return the exit code, or end this process as one that has suspended."""
    trainer.restore()
    if not trainer.train():
        say(f"suspended at step {trainer.state.step}")
        go_suspend()
    say(f"done step {trainer.state.step} state {trainer.state.checksum:08x}")
    return 0


def saves_of(place: Place, files: str, path: str, keep: int, model: ModelSize | None = None) -> Saves:
    """Return where checkpoints go: the file system of a job, or a folder. Raises NoSavesError."""
    if not files:
        return FolderSaves(path, place.job, keep)
    try:
        from cluster.platform.storage_saves import saves_in
    except ImportError as error:
        raise NoSavesError(f"--files needs the Python that has this package (FABRIC_PYTHON): {error}") from None

    return saves_in(files, path or f"/job{place.job}", keep, model)


def main(words: Sequence[str] | None = None) -> int:
    """Train; return the exit code."""
    asked = _arguments(words)
    try:
        place = Place.of_environment()
    except (KeyError, ValueError) as error:
        print(f"training_steps: {error} is not set; start it as a job of the platform", file=sys.stderr)
        return USAGE_CODE
    if not place.world <= min(MOST_RANKS, SAMPLES):
        print(f"training_steps: {place.world} ranks, and a step has {SAMPLES} samples; ask for fewer", file=sys.stderr)
        return USAGE_CODE
    return code_of("training_steps", lambda: _run(asked, place))


def code_of(program: str, run: Callable[[], int]) -> int:
    """Return the exit code of what a program does, and say why it is not 0."""
    try:
        return run()
    except (GangLostError, SavesLostError) as error:
        say(f"gone: {error}")
        return RESTART_CODE
    except NoSavesError as error:
        say(f"{program}: {error}")
        return USAGE_CODE
    except WrongSumError as error:
        say(f"wrong: {error}")
        return WRONG_CODE


def by_the_runs_python(program: str) -> None:
    """What needs this package needs its Python, which a user's program has not always: go on as the same process by
    that. Returns if this is it, or there is none."""
    python = os.environ.pop("FABRIC_PYTHON", "")
    if python and python != sys.executable:
        os.execv(python, [python, "-m", f"cluster.platform.{program}", *sys.argv[1:]])


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # The mount's thread may still wait for servers that are gone.
