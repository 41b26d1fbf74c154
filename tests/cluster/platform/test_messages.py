"""What the scheduler, agents and users tell each other: the bytes of each kind of message, and what is not one."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from cluster.health.checks import Check, CheckResult, Verdict
from cluster.health.messages import Checked, CheckNode, MeasureNic, NicMeasured, NodeRepaired, Progress
from cluster.health.unwell import Unwell
from cluster.platform.channel import BadMessageError
from cluster.platform.events import EndKind, EndOrdered, Left
from cluster.platform.messages import (
    Acknowledged,
    Answered,
    AskReady,
    Beat,
    Hello,
    Noted,
    Order,
    RankEnd,
    RankOrder,
    Ready,
    StartRank,
    StepSaved,
    StopRank,
    SuspendRank,
    Word,
    of_values,
    to_values,
)
from cluster.platform.reasons import OfNodes
from cluster.platform.requests import (
    REQUESTS,
    Asked,
    CancelJob,
    DescribeJob,
    FailTarget,
    GoDown,
    HealTarget,
    HoldJob,
    ListFailures,
    ListJobs,
    ListNodes,
    ListQuotas,
    ReadLog,
    ReleaseJob,
    Submit,
    SuspendJob,
    ValidateNodes,
    Who,
)
from cluster.platform.responses import (
    RESPONSES,
    AboutCluster,
    Done,
    Failed,
    FailuresListed,
    HandFailure,
    JobBrief,
    JobDescribed,
    JobInFull,
    JobsListed,
    JobTaken,
    LifeOfJob,
    LogPiece,
    NodeListed,
    NodesListed,
    NodeUse,
    QuotasListed,
    QuotaUse,
    Refused,
    Response,
)
from cluster.platform.state import JobState

RANK = RankOrder(7, 3, 1, 2, "z0h000", ("counts", "9"), 40, "/home/ada")
END = RankEnd(7, 137, 40, True, False, "no room")
SICK = Unwell("GPU 2: Xid 79", (79,))
FAILED = CheckResult("", Check.GPU, Verdict.FAILED, 1.0, 0.0, "", "GPU 2: Xid 79", (79,))
UNKNOWN = CheckResult("", Check.SPEED, Verdict.UNKNOWN, limit=1e9, unit="bit/s", reason="NIC 0: does not say")
LINES: list[tuple[Order | Word, str]] = [
    (Acknowledged(12.5), '{"kind":"heard","at":12.5}'),
    (AskReady(7, 1500000000), '{"kind":"ask","life":7,"turn":1500000000}'),
    (
        StartRank(RANK),
        '{"kind":"start","order":{"life":7,"job":3,"rank":1,"world":2,"master":"z0h000","command":["counts","9"],'
        '"step":40,"directory":"/home/ada"}}',
    ),
    (SuspendRank(7), '{"kind":"suspend","life":7}'),
    (StopRank(7), '{"kind":"stop","life":7}'),
    (Noted(7), '{"kind":"noted","life":7}'),
    (CheckNode(4), '{"kind":"check","number":4}'),
    (MeasureNic(4, "z0h001", 1), '{"kind":"measure","number":4,"peer":"z0h001","nic":1}'),
    (NodeRepaired(), '{"kind":"repaired"}'),
    (
        Hello("z0h000", SICK, 12.5, (7, 9), (END,), (StepSaved(7, 40, 0.25),)),
        '{"kind":"hello","node":"z0h000","unwell":"GPU 2: Xid 79","xids":[79],"at":12.5,"running":[7,9],'
        '"ended":[{"life":7,"code":137,"step":40,"suspended":true,"fenced":false,"why":"no room"}],'
        '"saved":[[7,40,0.25]]}',
    ),
    (Beat(Unwell(), 12.5, 0.5), '{"kind":"beat","unwell":"","at":12.5,"unheard_s":0.5}'),
    (END, '{"kind":"ended","life":7,"code":137,"step":40,"suspended":true,"fenced":false,"why":"no room"}'),
    (RankEnd(8, 0), '{"kind":"ended","life":8,"code":0,"step":null,"suspended":false,"fenced":false,"why":""}'),
    (Answered(7), '{"kind":"answered","life":7}'),
    (Ready(7, 15, SICK), '{"kind":"ready","life":7,"turn":15,"unwell":"GPU 2: Xid 79","xids":[79]}'),
    (StepSaved(7, 40, 0.25), '{"kind":"saved","life":7,"step":40,"age_s":0.25}'),
    (Progress(7, 1, 41), '{"kind":"progress","life":7,"rank":1,"step":41}'),
    (
        Checked(4, (FAILED, UNKNOWN)),
        '{"kind":"checked","number":4,"results":[{"check":"gpu","verdict":"failed","measured":1.0,"limit":0.0,'
        '"unit":"","reason":"GPU 2: Xid 79","xids":[79]},{"check":"speed","verdict":"unknown","measured":null,'
        '"limit":1000000000.0,"unit":"bit/s","reason":"NIC 0: does not say"}]}',
    ),
    (
        NicMeasured(4, "z0h001", 1, 9.5e8),
        '{"kind":"measured","number":4,"peer":"z0h001","nic":1,"bps":950000000.0,"why":""}',
    ),
]


@pytest.mark.parametrize(("message", "text"), LINES)
def test_a_message_has_these_bytes_and_is_read_from_them(message: Order | Word, text: str) -> None:
    assert json.dumps(to_values(message), separators=(",", ":")) == text
    if not isinstance(message, Checked):  # Which has a NaN, and that is not itself.
        assert of_values(json.loads(text)) == message
    again = of_values(json.loads(text))
    assert again is not None
    assert to_values(again) == to_values(message)


def test_each_kind_of_message_is_held() -> None:
    assert {type(message) for message, _ in LINES} == {*get_args(Order), *get_args(Word)}


RUNS = JobBrief(
    7, "one", "ada", "NORMAL", "training", JobState.RUNNING, 1, 2, ("z0h000",), None, None, "", "", "", False, False,
    1.5, 1.0, None,
)  # fmt: skip
BRIEF_TEXT = (
    '"number":7,"name":"one","user":"ada","priority":"NORMAL","group":"training","state":"running","asks":1,"lives":2,'
    '"nodes":["z0h000"],"step":null,"code":null,"why":"","waits":"","reason":"","is_held":false,"is_leaving":false,'
    '"began_s":1.5,"submitted_s":1.0,"ended_s":null'
)
USERS: list[tuple[Asked | Response, str]] = [
    (Submit({"name": "a", "nodes": 2}, "t"), '{"kind":"submit","spec":{"name":"a","nodes":2},"token":"t"}'),
    (CancelJob(7), '{"kind":"cancel","number":7}'),
    (SuspendJob(7), '{"kind":"suspend","number":7}'),
    (HoldJob(7), '{"kind":"hold","number":7}'),
    (ReleaseJob(7), '{"kind":"release","number":7}'),
    (FailTarget({"target": "z0l00:3", "loss": 0.5}), '{"kind":"fail","line":{"target":"z0l00:3","loss":0.5}}'),
    (HealTarget(), '{"kind":"heal","target":""}'),
    (ListFailures(), '{"kind":"failures"}'),
    (ValidateNodes(("z0h000",)), '{"kind":"validate","nodes":["z0h000"]}'),
    (ListJobs(), '{"kind":"list"}'),
    (ListJobs(0, 1), '{"kind":"list","after":0,"most":1}'),
    (ListJobs(7), '{"kind":"list","after":7}'),
    (DescribeJob(7), '{"kind":"describe","number":7}'),
    (ReadLog(7, 1), '{"kind":"log","number":7,"rank":1,"life":null,"offset":0}'),
    (ReadLog(7, 0, 9, 512), '{"kind":"log","number":7,"rank":0,"life":9,"offset":512}'),
    (ListNodes(), '{"kind":"nodes"}'),
    (ListQuotas(), '{"kind":"quotas"}'),
    (Who(), '{"kind":"who"}'),
    (GoDown(), '{"kind":"down"}'),
    (JobTaken(7), '{"kind":"submitted","number":7}'),
    (Done(), '{"kind":"done"}'),
    (Refused(("nodes: 9", "user: nobody")), '{"kind":"refused","faults":["nodes: 9","user: nobody"]}'),
    (Failed("no answer"), '{"kind":"failed","why":"no answer"}'),
    (
        AboutCluster(("/tmp/a",), "/r/c", "tiny", "virtual", "hai", "z0h000", "z0h001", 3),
        '{"kind":"cluster","sees":["/tmp/a"],"folder":"/r/c","fabric":"tiny","engine":"virtual","policy":"hai",'
        '"scheduler":"z0h000","login":"z0h001","nodes":3,"state":"coming up"}',
    ),
    (
        JobsListed(9.5, (RUNS,), more=False),
        f'{{"kind":"jobs","now_s":9.5,"jobs":[{{{BRIEF_TEXT}}}],"more":false}}',
    ),
    (
        JobDescribed(
            9.5,
            JobInFull(**vars(RUNS), command=("a", "b"), directory="/d"),
            (LifeOfJob(7, ("z0h000",), 0, 4, 1.5, "free", 2.5, EndKind.SUSPEND, "HIGH", 3.5, True), LifeOfJob(8)),
            0,
            (EndOrdered(2.5, 7, EndKind.SUSPEND, OfNodes(("z0h000",), "lost")), Left(3.5, 7, 4)),
        ),
        f'{{"kind":"job","now_s":9.5,"job":{{{BRIEF_TEXT},"command":["a","b"],"directory":"/d"}},"lives":[{{"life":7,'
        '"nodes":["z0h000"],"code":0,"step":4,"started_s":1.5,"started_why":"free","told_s":2.5,"told":"suspend",'
        '"told_why":"HIGH","left_s":3.5,"finished":true},{"life":8,"nodes":[],"code":null,"step":null}],'
        '"lives_left_out":0,"events":[{"event":"told","at_s":2.5,"life":7,"how":"suspend",'
        '"why":{"of_nodes":{"on":["z0h000"],"words":"lost"}}},{"event":"left","at_s":3.5,"life":7,"step":4,"code":0,'
        '"finished":false,"why":""}],"events_left_out":0}',
    ),
    (
        LogPiece(7, 0, "z0h000", JobState.RUNNING, False, "ab", 2, False),
        '{"kind":"log","life":7,"rank":0,"node":"z0h000","state":"running","is_over":false,"text":"ab","offset":2,'
        '"is_all":false}',
    ),
    (
        NodesListed(9.5, (NodeListed("z0h000", 0, "training", NodeUse.BUSY, "", 7, 7, "ada", None),)),
        '{"kind":"nodes","now_s":9.5,"nodes":[{"name":"z0h000","zone":0,"group":"training","state":"busy","out":"",'
        '"life":7,"job":7,"user":"ada","validated_s":null}]}',
    ),
    (
        QuotasListed((QuotaUse("ada", "NORMAL", "training", 2, 0, None),)),
        '{"kind":"quotas","quotas":[{"user":"ada","priority":"NORMAL","group":"training","holds":2,"waits":0,'
        '"quota":null}]}',
    ),
    (
        FailuresListed(9.5, failures=(HandFailure("z0s00", "switch", "down", 2.0, None, ("z0s00",)),)),
        '{"kind":"failures","now_s":9.5,"touched":[],"failures":[{"target":"z0s00","key":"switch","state":"down",'
        '"since_s":2.0,"until_s":null,"hits":["z0s00"]}]}',
    ),
]


@pytest.mark.parametrize(("message", "text"), USERS)
def test_a_question_or_answer_has_these_bytes_and_is_read_from_them(message: Asked | Response, text: str) -> None:
    if isinstance(message, Response):
        assert json.dumps(RESPONSES.to_values(message), separators=(",", ":")) == text
        assert RESPONSES.of_values(json.loads(text)) == message
    else:
        assert json.dumps(REQUESTS.to_values(message), separators=(",", ":")) == text
        assert REQUESTS.of_values(json.loads(text)) == message


def test_each_question_and_answer_is_held() -> None:
    assert {type(message) for message, _ in USERS} == {*get_args(Asked), *get_args(Response)}


def test_what_a_question_may_leave_out_it_leaves_out() -> None:
    assert REQUESTS.of_values({"kind": "log", "number": 7}) == ReadLog(7)
    assert REQUESTS.of_values({"kind": "submit", "spec": []}) == Submit([])


def test_a_kind_of_users_is_not_one_of_these() -> None:
    assert of_values({"kind": "submit", "spec": {}}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"kind":"stop"}', "stop: came without 'life'"),
        ('{"kind":"stop","life":"7"}', "stop: came with a value of another type: life is '7', not int"),
        ('{"kind":"stop","life":true}', "life is True, not int"),
        ('{"kind":"heard","at":null}', "at is None, not float"),
        ('{"kind":"beat","at":1,"unheard_s":0}', "beat: came without 'unwell'"),
        ('{"kind":"start","order":{"life":1}}', "start: came without 'job'"),
        ('{"kind":"checked","number":4,"results":[{"check":"gpu"}]}', "checked: came without 'measured'"),
        (
            '{"kind":"hello","node":"a","unwell":"","at":1,"running":7,"ended":[],"saved":[]}',
            "running is 7, not a list",
        ),
    ],
)
def test_a_message_that_is_not_whole_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadMessageError) as caught:
        of_values(json.loads(text))
    assert words in str(caught.value)
