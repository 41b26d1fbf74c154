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
            if not (jobs.wait_until(jobs.now_s + self.every_s) and self._write(jobs)):
                return

    def _write(self, jobs: DecidedJobs) -> bool:
        """Let a checkpoint be written while training stands still; return whether the phase goes on."""
        training, written = self.training.name, self.written.name
        jobs.halt(training)
        if not jobs.reach(JobState.READY, training):
            return False
        jobs.play(written)
        if not jobs.reach(JobState.PLAYING, written):
            return False
        self.written.finish()
        jobs.halt(written)
        if jobs.reach(JobState.READY, written):
            jobs.play(training)
        return True
