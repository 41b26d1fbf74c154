"""Traces of jobs are read, and drawn jobs have a summary's figures."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.jobs.clusters import JobSummary, cluster_summary, published_clusters
from cluster.jobs.fitting import fit
from cluster.jobs.records import Outcome, figures_of
from cluster.jobs.traces import read_trace, trace_of
from fabric.config import checked
from fabric.errors import ConfigError

# The example rows of the READMEs of AcmeTrace (6d6ac9c) and HeliosData (159f0ca).
ACME = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,\
2023-03-01 00:20:51+08:00,117,32,936.0
5778469,u5907,1,8,128,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,\
2023-03-01 01:09:04+08:00,2693,13,21544.0
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""


def test_acmes_and_helios_rows_are_jobs(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(ACME)
    acme = read_trace(path)
    assert (acme.format, [job.submitted_s for job in acme.jobs]) == ("Acme", [0.0, 336.0])
    first = acme.jobs[0]
    assert (first.user, first.gpus, first.run_s, first.queue_s, first.group) == ("u5907", 8, 117.0, 32.0, "Other")
    assert [job.outcome for job in acme.jobs] == [Outcome.FAILED, Outcome.COMPLETED]
    assert [job.gpu_s for job in acme.jobs] == [936.0, 21544.0], "the trace's own column"
    helios = trace_of(HELIOS.splitlines(), "helios")
    assert (helios.format, helios.jobs[1].group, helios.jobs[2].outcome) == ("Helios", "vchbv", Outcome.CANCELLED)
    assert [job.nodes() for job in helios.jobs] == [1, 1, 1]


def test_rows_that_are_no_jobs_are_counted() -> None:
    lines = HELIOS.replace(",4,16,1,", ",0,16,1,").replace("675233", "").splitlines()
    trace = trace_of(lines, "helios")
    assert len(trace.jobs) == 1
    assert trace.left_out == {"without a GPU": 1, "never started": 1}


def test_what_is_wrong_in_a_trace_is_named_by_line_and_column() -> None:
    lines = ACME.replace("FAILED", "LOST").replace(",2693,", ",long,").splitlines()
    with pytest.raises(ConfigError) as caught:
        trace_of(lines, "acme.csv")
    assert "acme.csv: line 2: state: 'LOST' is not one of COMPLETED" in str(caught.value)
    assert "acme.csv: line 3: duration: 'long' is not a number" in str(caught.value)
    for text, words in (("a,b\n1,2\n", "is neither Acme's nor Helios'"), (HELIOS.splitlines()[0], "no job with a GPU")):
        with pytest.raises(ConfigError, match=words):
            trace_of(text.splitlines(), "other.csv")


@pytest.fixture
def usual_field_limit() -> Iterator[None]:
    """The csv module's limit of a field as it starts with: readers of other traces raise it for the whole process."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


CUT = "1425514,uzqls,vcpDC,1,1,1,COMPL"
ZONED = "1425514,uzqls,vcpDC,1,1,1,FAILED,2020-06-09 18:41:28+08:00,2020-06-09 18:41:28,2020-06-17 14:15:21,67,0"


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (CUT, r"line 5: has 7 of 12 columns, and no submit_time; is the file whole\?"),
        (f"\n{CUT}", r"line 6: has 7 of 12 columns"),
        (f"{CUT}ETED,2020-06-09 18:41:28", r"line 5: has 8 of 12 columns, and no start_time"),
        (ZONED, r"line 5: submit_time: 2020-06-09 18:41:28\+08:00 has a zone, and that of line 2 has none; write all"),
        pytest.param(
            '1,"' + "x" * 200_000, r"line [45]: field larger than field .*; is the file whole\?", id="an open quote"
        ),
    ],
)
def test_a_trace_that_was_cut_short_or_mixes_zones_is_refused_by_its_line(
    last: str, words: str, usual_field_limit: None
) -> None:
    with pytest.raises(ConfigError, match=rf"^trace.csv: {words}"):
        trace_of([*HELIOS.splitlines(), *last.split("\n")], "trace.csv")
    lines = [HELIOS.splitlines()[0], ZONED, *HELIOS.splitlines()[1:2]]
    with pytest.raises(ConfigError, match=r"line 3: submit_time: .* has no zone, and that of line 2 has one"):
        trace_of(lines, "trace.csv")


def test_a_fitted_model_has_all_figures_of_its_summary() -> None:
    """By its closed forms; 9 figures, of which none is left over."""
    for name, summary in published_clusters().items():
        model = fit(summary)
        mean_s, gpu_s = model.moments()
        assert float(model.gpus @ model.weights) == pytest.approx(summary.gpus.mean, rel=1e-6), name
        assert model.weights[0] >= 0.5, name
        assert mean_s == pytest.approx(summary.run_s.mean, rel=2e-3), name
        assert model.below(summary.run_s.median) == pytest.approx(0.5, abs=1e-3), name
        for outcome, seconds in zip(Outcome, gpu_s, strict=True):
            assert seconds * summary.jobs == pytest.approx(summary.gpu_s.of(outcome), rel=2e-3), (name, outcome)


def test_drawn_jobs_of_kalos_have_its_figures() -> None:
    """Mean 26.8 GPUs, median run 124 s, 39.7 % failed."""
    summary = cluster_summary("kalos")
    jobs = fit(summary).draw(100_000, jobs_per_s=0.01, users=50, seed=1)
    found = figures_of(jobs)
    assert found.mean_gpus == pytest.approx(26.77, rel=0.03)
    assert found.median_gpus == 1
    assert found.median_run_s == pytest.approx(124, rel=0.04)
    assert found.mean_run_s == pytest.approx(1259.7, rel=0.1), "its tail is long"
    assert found.shares[Outcome.FAILED] == pytest.approx(0.397, abs=0.005)
    assert max(job.run_s for job in jobs) <= summary.run_s.most
    assert jobs[-1].submitted_s == pytest.approx(1e7, rel=0.02)
    users = {job.user for job in jobs}
    assert len(users) == 50


def test_the_same_seed_draws_the_same_jobs() -> None:
    model = fit(cluster_summary("seren"))
    jobs = model.draw(50, 1.0, 5, seed=3)
    assert jobs == model.draw(50, 1.0, 5, seed=3) != model.draw(50, 1.0, 5, seed=4)


def test_a_summary_that_nothing_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="'pai': no such cluster; use 'seren', 'kalos', 'philly' or 'helios'"):
        cluster_summary("pai")
    data = cluster_summary("kalos").model_dump()
    with pytest.raises(ConfigError, match="these must ascend"):
        checked(JobSummary, {**data, "run_s": {"mean": 1.0, "median": 2.0, "most": 3.0}}, "own")
    with pytest.raises(ConfigError, match="jobs are drawn for a median of 1"):
        fit(checked(JobSummary, {**data, "gpus": {"mean": 30.0, "median": 8.0, "most": 64.0}}, "own"))
    with pytest.raises(ConfigError, match="no lognormal run times have these figures"):
        fit(checked(JobSummary, {**data, "run_s": {"mean": 600000.0, "median": 2.0, "most": 625740.0}}, "own"))
