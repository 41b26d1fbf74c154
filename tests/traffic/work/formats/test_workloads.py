"""Workloads of SimAI and AICB, and algorithms of MSCCL, as they are written here and there."""

from __future__ import annotations

import gzip

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import SAMPLES, kinds, operations, read
from traffic.work.checks import require_playable
from traffic.work.operations import CollectiveCall, Compute, Receive, Send

ROWS = """a -1 10 ALLREDUCE 100 20 ALLGATHER 200 30 REDUCESCATTER 400 0
b -1 11 ALLTOALL_EP 800 21 NONE 0 31 ALLGATHER_DP_EP 1600 0
"""


def simai(head: str, rows: str = ROWS, count: int = 2) -> str:
    return f"{head}\n{count}\n{rows}"


def test_a_step_goes_forward_and_back_and_gradients_overlap() -> None:
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8 checkpoints: 0"
    trace = read(simai(head))
    program = trace.program(5)
    assert [(one.name, getattr(one, "group", "")) for one in program] == [
        ("a forward", ""), ("a forward", "tp 4"), ("b forward", ""), ("b forward", "ep 5"),
        ("b input gradient", ""), ("b weight gradient", ""), ("b weight gradient", "dp_ep 1"),
        ("a input gradient", ""), ("a input gradient", "tp 4"),
        ("a weight gradient", ""), ("a weight gradient", "dp 1"),
    ]  # fmt: skip
    assert [one.after for one in program] == [(), (0,), (1,), (2,), (3,), (4,), (5,), (5,), (7,), (8,), (9,)]
    assert {trace.groups[name] for name in ("tp 4", "ep 5", "dp_ep 1", "dp 1")} == {
        (4, 5),
        (5, 7),
        (1, 5),
        (1, 3, 5, 7),
    }
    assert [one.size_bytes for one in operations(trace, 5, CollectiveCall)] == [100, 800, 1600, 200, 400]
    assert operations(trace, 0, Compute)[0].duration_s == pytest.approx(10e-9)
    require_playable(trace.graph())


def test_other_policies_and_headers() -> None:
    micro = read(simai("MICRO"), ranks=4)
    assert (kinds(micro), len(micro.groups["dp 0"])) == ({"compute": 2, "reduce_scatter": 1, "all_gather": 1}, 4)
    data = read(simai("DATA"), ranks=4)
    assert kinds(data) == {"compute": 6, "reduce_scatter": 1, "all_gather": 1}
    old = read(simai("HYBRID_TRANSFORMER\tmodel_parallel_NPU_group: 2\tcheckpoints: 0 checkpoint_initiates: 0"))
    assert (old.ranks, old.notes) == (
        2,
        ("the file does not say how many GPUs there are: 2, the least; say --ranks for more",),
    )
    with pytest.raises(
        ConfigError, match="6 ranks: tensor parallel 4, expert parallel 1, 1 stages need a multiple of 4; say --ranks 4"
    ):
        read(simai("HYBRID_TRANSFORMER model_parallel_NPU_group: 4"), ranks=6)
    staged = read(simai("HYBRID_TRANSFORMER model_parallel_NPU_group: 2 pp: 4 all_gpus: 16 pp_comm 77"))
    assert staged.left_out == {"messages between pipeline stages (pp_comm 77 B): no row says when": 1}
    with pytest.raises(ConfigError, match="line 3: ALLSOMETHING: cannot be played"):
        read(simai("HYBRID_TRANSFORMER x: 1", "a -1 1 ALLSOMETHING 5 1 NONE 0 1 NONE 0 1\n", 1))


def test_layers_are_computed_again_where_activations_were_not_kept() -> None:
    rows = "".join(f"l{n} -1 1 NONE 0 1 NONE 0 1 NONE 0 0\n" for n in range(4))
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 checkpoints: 1 1 checkpoint_initiates: 1 3"
    names = [one.name for one in read(simai(head, rows, 4)).program(0)]
    assert names[4:8] == ["l1 forward again", "l2 forward again", "l3 input gradient", "l3 weight gradient"]


HEAD = "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"


def stage(ranks: str, *rows: str) -> str:
    return "\n".join([f"[ {ranks} ]", HEAD, *rows])


def test_stages_of_a_pipeline_send_to_each_other() -> None:
    init = "CommType.all_reduce,CommGroup.pp_group,2,8,init,None,None,,None,None,None,1"
    tensor = "CommType.all_reduce,CommGroup.tp_group,2,64,forward,None,None,,None,None,None,3"
    tied = "CommType.all_reduce,CommGroup.embedding_group,2,32,step,None,None,,None,None,None,1"

    def message(kind: str, additional: str) -> str:
        return f"CommType.{kind},CommGroup.pp_group,1,1000,step,None,None,{additional},None,None,None,1"

    first = stage(
        "pp_stage0: [rank0, rank1, rank2, rank3]",
        init,
        tensor,
        message("irecv", "recv_next"),
        message("isend", "send_next"),
        tensor,
        tied,
        "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1",
    )
    second = stage("pp_stage1: [rank4, rank5, rank6, rank7]", init, message("irecv", "recv_prev"), tensor,
                   message("isend", "send_prev"), tied)  # fmt: skip
    trace = read(f"{first}\n{second}\n")
    assert (trace.ranks, trace.alike, trace.left_out) == (8, False, {"rows of type epoch_end": 1})
    assert kinds(trace, 2) == {"send": 1, "receive": 1, "allreduce": 8}
    assert (operations(trace, 2, Send)[0].peer, operations(trace, 6, Receive)[0].peer) == (6, 2)
    assert operations(trace, 2, Send)[0].after == operations(trace, 2, Receive)[0].after
    assert trace.groups["embedding_group 3"] == (3, 7)
    require_playable(trace.graph())
    lonely = read(f"{first}\n{second.removesuffix(tied)}\n")
    assert lonely.left_out["calls of embedding_group that not both the first and the last stage make"] == 1
    require_playable(lonely.graph())
    with pytest.raises(ConfigError, match="says what each of 8 ranks does, and 16 are asked for; leave --ranks out"):
        read(f"{first}\n{second}\n", ranks=16)


def test_columns_are_known_by_their_names() -> None:
    text = "comm_type,comm_group,msg_size,count\nCommType.all_gather,CommGroup.dp_group,4096,5\n"
    assert kinds(read(text, ranks=4)) == {"all_gather": 5}
    assert "say --ranks N" in read(text).notes[0]
    computing = "CommType.computation,CommGroup.all,None,((2048, 1, 4096), (4096, 1)),x,,,,{},,,2"
    trace = read("\n".join([HEAD, computing.format(2500), computing.format(None)]))
    assert [one.duration_s for one in operations(trace, 0, Compute)] == [pytest.approx(2.5e-6)] * 2
    assert trace.left_out == {"computing without a time": 2}
    log = read("\n".join([HEAD, computing.format(2.5), "CommType.barrier,CommGroup.all,2,0,x,,,,0.5,,,1"]), ranks=2)
    assert [one.duration_s for one in operations(log, 0, Compute)] == [pytest.approx(2.5e-3)] * 2
    assert operations(log, 0, CollectiveCall)[0].measured_s == pytest.approx(0.5e-3)


def algorithm(*steps: str) -> str:
    """Return an algorithm for two GPUs of which the first sends what the second receives, in four chunks."""
    return (
        '<!-- Copyright -->\n<algo name="x" nchunksperloop="4" ngpus="2" coll="allreduce" minBytes="0" maxBytes="9">'
        f'<gpu id="0"><tb id="0" send="1" recv="-1" chan="0">{steps[0]}</tb></gpu>'
        f'<gpu id="1"><tb id="0" send="-1" recv="0" chan="0">{steps[1]}</tb>{"".join(steps[2:])}</gpu></algo>'
    )


def step(number: int, kind: str, count: int = 1, waits: tuple[int, int] = (-1, -1)) -> str:
    return f'<step s="{number}" type="{kind}" cnt="{count}" depid="{waits[0]}" deps="{waits[1]}" hasdep="0"/>'


def test_steps_of_msccl_are_messages_and_wait_for_other_blocks() -> None:
    local = f'<tb id="1" send="-1" recv="-1" chan="0">{step(0, "nop", waits=(0, 0))}{step(1, "cpy")}</tb>'
    trace = read(algorithm(step(0, "s", 2) + step(1, "s"), step(0, "rrc", 2) + step(1, "r"), local), size=4000)
    assert [one.size_bytes for one in operations(trace, 0, Send)] == [2000, 1000]
    by_name = {(one.name, type(one)): (place, one.after) for place, one in enumerate(trace.program(1))}
    reduced, reduce_after = by_name["tb 0 step 0 rrc", Compute]
    assert reduce_after == (by_name["tb 0 step 0 rrc", Receive][0],)
    assert by_name["tb 0 step 1 r", Receive][1] == by_name["tb 1 step 0 nop", Compute][1] == (reduced,)
    assert by_name["tb 1 step 1 cpy", Compute][1] == (by_name["tb 1 step 0 nop", Compute][0],)
    require_playable(trace.graph())
    with pytest.raises(ConfigError, match="--size 10: is not divisible by the 4 chunks of the algorithm; say 8 or 12"):
        read(algorithm(step(0, "s"), step(0, "r")), size=10)


def test_blocks_of_msccl_that_wait_for_each_other_are_refused() -> None:
    other = f'<tb id="1" send="-1" recv="-1" chan="0">{step(0, "cpy", waits=(0, 0))}</tb>'
    with pytest.raises(
        ConfigError, match="gpu 1: steps wait for each other, so none starts: tb 0 step 0 r, tb 1 step 0 cpy"
    ):
        read(algorithm(step(0, "s"), step(0, "r", waits=(1, 0)), other))
    with pytest.raises(ConfigError, match="gpu 1: tb 0, step 0: waits for step 5 of tb 9, which is not there"):
        read(algorithm(step(0, "s"), step(0, "r", waits=(9, 5))))
    with pytest.raises(ConfigError, match="tb 0, step 0: type x: is not one of"):
        read(algorithm(step(0, "x"), step(0, "r")))


def test_a_row_that_ends_too_early_is_refused() -> None:
    """A file whose end is missing ends within a row, as a rule."""
    for name in ("aicb_L7B_zero2.csv.gz", "deepseek_ep64_step.csv"):
        data = (SAMPLES / name).read_bytes()
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
        cut = text.rstrip()[: text.rstrip().rindex(",") - 8]
        with pytest.raises(ConfigError, match=r"line \d+: has \d+ columns, and there are \d+; is the file whole"):
            read(cut)
