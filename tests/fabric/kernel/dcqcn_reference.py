"""DCQCN's reaction point step by step, as its paper describes it, in whole numbers as ``fabric/kernel/dcqcn.h`` has
them: every timer expires on its own, nothing is skipped."""

from __future__ import annotations

from dataclasses import dataclass, field

ALPHA_ONE = 1 << 24
GAIN_ONE = 1 << 16
MOST_STAGES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Those of ``struct dcqcn_parameters``, in its order."""

    line_rate_bps: int
    least_rate_bps: int
    additive_step_bps: int
    hyper_step_bps: int
    stage_bytes: int
    stage_ns: int
    alpha_ns: int
    cnp_ns: int
    gain: int
    first_alpha: int
    fast_stages: int
    lowers_target: int


@dataclass
class Congestion:
    """What a flow has heard of congestion. ``alpha`` in 2^-24; its timer and the last CNP in ns."""

    alpha: int
    due_ns: int = 0
    cnp_at_ns: int = 0
    heard: bool = False


@dataclass
class Stages:
    """What has been counted since the last cut; when the next stage by time is due, in ns."""

    by_time: int = 0
    by_bytes: int = 0
    bytes: int = 0
    due_ns: int = 0


@dataclass
class ReactionPoint:
    """A flow: the rate at which it may send, and the one that it is on its way to."""

    parameters: Parameters
    rate_bps: int = 0
    target_bps: int = 0
    congestion: Congestion = field(init=False)
    stages: Stages = field(default_factory=Stages)

    def __post_init__(self) -> None:
        self.rate_bps = self.target_bps = self.parameters.line_rate_bps
        self.congestion = Congestion(self.parameters.first_alpha)

    def advance(self, now_ns: int, sent_bytes: int) -> None:
        """Let timers expire up to ``now_ns``, in their order; then count bytes."""
        if not self.congestion.heard:
            return
        while min(self.congestion.due_ns, self.stages.due_ns) <= now_ns:
            if self.congestion.due_ns <= self.stages.due_ns:
                self.congestion.alpha = self.congestion.alpha * (GAIN_ONE - self.parameters.gain) // GAIN_ONE
                self.congestion.due_ns += self.parameters.alpha_ns
            else:
                self._increase()
                self.stages.by_time = min(self.stages.by_time + 1, MOST_STAGES)
                self.stages.due_ns += self.parameters.stage_ns
        if not self.parameters.stage_bytes:
            return
        self.stages.bytes += sent_bytes
        while self.stages.bytes >= self.parameters.stage_bytes:
            self.stages.bytes -= self.parameters.stage_bytes
            self._increase()
            self.stages.by_bytes = min(self.stages.by_bytes + 1, MOST_STAGES)

    def _increase(self) -> None:
        fast = self.parameters.fast_stages
        counts = [self.stages.by_time]
        if self.parameters.stage_bytes:
            counts.append(self.stages.by_bytes)
        if max(counts) < fast:
            step = 0  # Fast recovery.
        elif self.parameters.hyper_step_bps and len(counts) == 1 and counts[0] > fast:
            step = self.parameters.hyper_step_bps  # Without bytes: one additive stage, then even hyper ones.
        elif self.parameters.hyper_step_bps and len(counts) == 2 and min(counts) >= fast:
            step = (min(counts) - fast + 1) * self.parameters.hyper_step_bps
        else:
            step = self.parameters.additive_step_bps
        self.target_bps = min(self.target_bps + step, self.parameters.line_rate_bps)
        self.rate_bps = -(-(self.rate_bps + self.target_bps) // 2)

    def hear(self, now_ns: int) -> bool:
        """Take a marked frame for a CNP unless the last one is less than its time ago; return whether it was one."""
        congestion = self.congestion
        if congestion.heard and now_ns - congestion.cnp_at_ns < self.parameters.cnp_ns:
            return False
        first_cut = not congestion.heard or self.stages.by_time > 0 or self.stages.by_bytes > 0
        if self.parameters.lowers_target or first_cut:
            self.target_bps = self.rate_bps
        self.rate_bps -= self.rate_bps * congestion.alpha // (2 * ALPHA_ONE)
        self.rate_bps = max(self.rate_bps, self.parameters.least_rate_bps)
        gain = self.parameters.gain
        alpha = (congestion.alpha * (GAIN_ONE - gain) + ALPHA_ONE * gain) // GAIN_ONE
        self.congestion = Congestion(alpha, now_ns + self.parameters.alpha_ns, now_ns, heard=True)
        self.stages = Stages(due_ns=now_ns + self.parameters.stage_ns)
        return True

    def state(self) -> tuple[int, ...]:
        """Return the members of ``struct dcqcn``, in its order."""
        congestion, stages = self.congestion, self.stages
        due = (congestion.due_ns, stages.due_ns, congestion.cnp_at_ns)
        counts = (stages.bytes, congestion.alpha, stages.by_time, stages.by_bytes, int(congestion.heard))
        return (self.rate_bps, self.target_bps, *due, *counts)
