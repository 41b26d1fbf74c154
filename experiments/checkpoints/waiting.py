"""Steps that wait for each checkpoint: training stands still from the end of a step until the index is there."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.checkpoints.job import CheckpointsJob
from runs.decided_jobs import DecidedJobs, JobState
from traffic.work.job import WorkJob


@dataclass(frozen=True)
class StepsWait:
    """A :class:`runs.decided_jobs.Decider`: lets training play, halts it for each of ``count`` checkpoints, ``every_s``
    from the begin of one play to its end, and lets it go on once the checkpoint is complete. ``written`` writes one
    each time that it plays."""

    training: WorkJob
    written: CheckpointsJob
    count: int
    every_s: float

    def decide(self, jobs: DecidedJobs) -> None:
        """Give orders until all checkpoints are written, or the phase is over."""
        jobs.take(self.training)
        jobs.take(self.written)
        jobs.play(self.training.name)
        for _ in range(self.count):
            if not (self._is_within(jobs, jobs.now_s + self.every_s) and self._write(jobs)):
                return

    def _write(self, jobs: DecidedJobs) -> bool:
        """Let a checkpoint be written while training stands still; return whether the phase goes on."""
        training, written = self.training.name, self.written.name
        jobs.halt(training)
        if not self._reaches(jobs, training, JobState.READY):
            return False
        jobs.play(written)
        if not self._reaches(jobs, written, JobState.PLAYING):
            return False
        self.written.finish()
        jobs.halt(written)
        if not self._reaches(jobs, written, JobState.READY):
            return False
        jobs.play(training)
        return True

    @staticmethod
    def _is_within(jobs: DecidedJobs, until_s: float) -> bool:
        """Wait until a time; return whether the phase goes on."""
        while jobs.now_s < until_s:
            if not jobs.wait(until_s):
                return False
        return True

    @staticmethod
    def _reaches(jobs: DecidedJobs, name: str, state: JobState) -> bool:
        """Wait until a job is in a state; return whether the phase goes on. Raises what has made a job fail."""
        while jobs.states[name] is not state:
            jobs.verify()
            if not jobs.wait():
                return False
        return True
