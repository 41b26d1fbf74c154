"""What was measured beside failures of single nodes, suspensions and storms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.simulation.measured import SpineCost
from experiments.goodput_year.costs_by_steps import FailureCost
from experiments.goodput_year.platform_phases import VALIDATION
from experiments.goodput_year.shared_costs import SPINE, STORAGE_LOSS, StorageLoss
from experiments.goodput_year.wrong_data import WRONG_CHECKPOINT, WRONG_COPIES, WrongCheckpoint, WrongCopies


@dataclass(frozen=True)
class Others:
    """Leaves with several nodes of a job, a spine switch, a storage node, wrong data, a validation; None, empty or 0:
    not played."""

    leaves: Sequence[FailureCost] = ()
    spine: SpineCost | None = None
    storage_loss: StorageLoss | None = None
    wrong_copies: WrongCopies | None = None
    wrong_checkpoint: WrongCheckpoint | None = None
    validation_s: float = 0.0

    def rows(self) -> Iterator[tuple[str, str, float, str]]:
        """Yield the numbers, each with its phase, what it is and its unit."""
        if self.spine is not None:
            yield SPINE, "stands still until routes avoid the switch", self.spine.stall, "s"
            yield SPINE, "times as long without the switch", self.spine.slow_communication, ""
            yield SPINE, "spine switches of the zone", float(self.spine.spines), ""
        if (loss := self.storage_loss) is not None:
            yield STORAGE_LOSS, "steps wait for the storage node that is lost", loss.lost_s, "s"
            yield STORAGE_LOSS, "steps wait while it is brought up to date", loss.resync_s, "s"
            yield STORAGE_LOSS, "until no chain counts on it", loss.out_s - loss.failed_s, "s"
            yield STORAGE_LOSS, "from its return until all targets serve", loss.whole_s - loss.back_s, "s"
            yield STORAGE_LOSS, "sent to bring it up to date", float(loss.resync_bytes), "bytes"
            yield STORAGE_LOSS, "batches that could not be read", float(loss.failed_reads), ""
        if (copies := self.wrong_copies) is not None:
            yield WRONG_COPIES, "wrong copies read, and tried elsewhere", float(copies.wrong_copies), ""
            if copies.storm is not None:
                yield WRONG_COPIES, "a restore by all nodes", copies.storm.seconds, "s"
        if (wrong := self.wrong_checkpoint) is not None:
            yield WRONG_CHECKPOINT, "until all know that the checkpoint is wrong", wrong.found_s, "s"
            yield WRONG_CHECKPOINT, "a restore of the one before by all nodes", wrong.again_s, "s"
        if self.validation_s:
            yield VALIDATION, "all nodes of a job are validated", self.validation_s, "s"
