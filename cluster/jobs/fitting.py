"""Jobs drawn so that they have a summary's mean, median and shares.

What is put in: GPUs are powers of two. Given a job's GPUs g and outcome o, the logarithm of its run time is normal with
mean m_o + b ln g and deviation s, and no job runs longer than the longest one. The parameters follow from the summary:

- the share of powers of two falls as a power of g, with the exponent that gives the mean number of GPUs; where the
  share of one GPU would be below a half, though the median is one, it is ``ONE_GPU``;
- m_o, b and s give the GPU time of each outcome, the mean and the median of the run time.

Not in a summary, and so given: who submits (a few users submit most: Zipf), and when (Poisson).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares
from scipy.special import erfinv, ndtr

from cluster.jobs.clusters import JobSummary
from cluster.jobs.records import JobRecord, Outcome
from fabric.errors import ConfigError

Floats = npt.NDArray[np.float64]
ONE_GPU = 0.55
"""The share of jobs with one GPU, where the mean alone would contradict the median."""
_OUTCOMES = tuple(Outcome)
_CLOSE = 1e-3


@dataclass(frozen=True, eq=False)
class JobModel:
    """Fitted parameters. ``gpus`` and ``weights``: sizes and their shares; ``shares``, ``means``: one per outcome, in
    the order of :class:`Outcome`."""

    gpus: Floats
    weights: Floats
    shares: Floats
    means: Floats
    slope: float
    deviation: float
    most_s: float

    def moments(self) -> tuple[float, Floats]:
        """Return the mean of the run time in s, and the GPU time of an outcome per job of the list in GPU-seconds."""
        return _moments(self, self.means, self.slope, self.deviation)

    def below(self, run_s: float) -> float:
        """Return the share of jobs that run for less than ``run_s``."""
        return _below(self, self.means, self.slope, self.deviation, run_s)

    def draw(self, count: int, jobs_per_s: float, users: int, seed: int) -> tuple[JobRecord, ...]:
        """Return ``count`` jobs of ``users`` users that arrive at random, ``jobs_per_s`` on average."""
        rng = np.random.default_rng([seed, 44])
        places = rng.choice(len(self.gpus), count, p=self.weights)
        outcomes = rng.choice(len(_OUTCOMES), count, p=self.shares)
        logs = self.means[outcomes] + self.slope * np.log(self.gpus[places])
        # A normal variable below a limit: the quantile of a part of the evenly drawn.
        below = ndtr((np.log(self.most_s) - logs) / self.deviation)
        drawn = rng.uniform(0.0, 1.0, count) * below
        runs = np.exp(logs + self.deviation * np.sqrt(2) * erfinv(2 * drawn - 1))
        arrivals = np.cumsum(rng.exponential(1 / jobs_per_s, count))
        ranks = np.arange(1, users + 1, dtype=np.float64)
        names = rng.choice(users, count, p=(1 / ranks) / (1 / ranks).sum())
        return tuple(
            JobRecord(number, f"u{name:03d}", int(gpus), at_s, run_s, _OUTCOMES[outcome])
            for number, (name, gpus, at_s, run_s, outcome) in enumerate(
                zip(
                    names.tolist(),
                    self.gpus[places].tolist(),
                    (arrivals - arrivals[0]).tolist(),
                    runs.tolist(),
                    outcomes.tolist(),
                    strict=True,
                )
            )
        )


def fit(summary: JobSummary) -> JobModel:
    """Return a model of jobs with a summary's figures. Raises ConfigError if none of this form has them."""
    gpus, weights = _sizes(summary)
    shares = np.array([summary.shares.of(one) for one in _OUTCOMES])
    shares = shares / shares.sum()
    wanted = np.array([summary.gpu_s.of(one) for one in _OUTCOMES]) / summary.jobs
    start = JobModel(gpus, weights, shares, np.zeros(3), 0.5, 2.0, summary.run_s.most)

    def off(values: Floats) -> Floats:
        """Return by how much each figure is off: logarithms of ratios, and of the median the share below it."""
        mean_s, gpu_s = _moments(start, values[:3], float(values[3]), float(np.exp(values[4])))
        half = _below(start, values[:3], float(values[3]), float(np.exp(values[4])), summary.run_s.median)
        found: Floats = np.append(
            np.log(np.maximum(gpu_s, 1e-300) / wanted),
            [np.log(max(mean_s, 1e-300) / summary.run_s.mean), 4 * (half - 0.5)],
        )
        return found

    guess = np.append(np.full(3, np.log(summary.run_s.median)), [0.5, np.log(2.0)])
    best = least_squares(off, guess, xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=2000)
    if np.abs(best.fun).max() > _CLOSE:
        raise ConfigError(
            "jobs",
            [
                f"no lognormal run times have these figures: the nearest are off by {np.abs(best.fun).max():.1%}; "
                "check gpu_s, run_s and shares of the summary"
            ],
        )
    return JobModel(gpus, weights, shares, best.x[:3], float(best.x[3]), float(np.exp(best.x[4])), summary.run_s.most)


def _sizes(summary: JobSummary) -> tuple[Floats, Floats]:
    """Return powers of two up to the largest job, and their shares. Raises ConfigError."""
    sizes: Floats = np.exp2(np.arange(int(np.log2(summary.gpus.most)) + 1, dtype=np.float64))
    if summary.gpus.median != 1 or len(sizes) < 3:
        raise ConfigError(
            "jobs",
            [
                f"gpus: median {summary.gpus.median:g}, most {summary.gpus.most:g}; jobs are drawn for a median of 1 "
                "and 4 GPUs or more at most"
            ],
        )

    def alone(exponent: float) -> Floats:
        weights: Floats = sizes**-exponent
        found: Floats = weights / weights.sum()
        return found

    def held(exponent: float) -> Floats:
        rest = sizes[1:] ** -exponent
        found: Floats = np.append(ONE_GPU, (1 - ONE_GPU) * rest / rest.sum())
        return found

    for weights in (alone, held):
        low, high = (float(sizes @ weights(end)) for end in (20.0, -20.0))
        if not low < summary.gpus.mean < high:
            continue
        exponent = brentq(lambda one, weights=weights: float(sizes @ weights(one)) - summary.gpus.mean, -20.0, 20.0)
        if weights(exponent)[0] >= 0.5:
            return sizes, weights(exponent)
    raise ConfigError(
        "jobs",
        [f"gpus: a mean of {summary.gpus.mean:g} does not go with a median of 1 and {summary.gpus.most:g} at most"],
    )


def _logs(model: JobModel, means: Floats, slope: float) -> Floats:
    """Return the mean of the logarithm of run times by outcome (rows) and size (columns)."""
    found: Floats = means[:, None] + slope * np.log(model.gpus)[None, :]
    return found


def _moments(model: JobModel, means: Floats, slope: float, deviation: float) -> tuple[float, Floats]:
    """Return the mean run time in s, and the GPU time by outcome per job of the list in GPU-seconds: of lognormal times
    below the longest."""
    logs, top = _logs(model, means, slope), np.log(model.most_s)
    inside = ndtr((top - logs) / deviation)
    # The mean of those below the limit, in logarithms, where both parts may be tiny.
    mean = np.exp(np.minimum(logs + deviation**2 / 2, 700)) * ndtr((top - logs - deviation**2) / deviation)
    mean_s = mean / np.maximum(inside, 1e-300)
    joint = model.shares[:, None] * model.weights[None, :]
    return float((joint * mean_s).sum()), (joint * mean_s * model.gpus[None, :]).sum(axis=1)


def _below(model: JobModel, means: Floats, slope: float, deviation: float, run_s: float) -> float:
    logs, joint = _logs(model, means, slope), model.shares[:, None] * model.weights[None, :]
    inside = np.maximum(ndtr((np.log(model.most_s) - logs) / deviation), 1e-300)
    return float((joint * ndtr((np.log(max(run_s, 1e-300)) - logs) / deviation) / inside).sum())
