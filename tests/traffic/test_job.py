"""What experiments see of jobs: where they play, and rows as tables want them."""

from __future__ import annotations

import pandas as pd
import pytest

from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.tables import TABLES
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from topologies.load import load_fabric
from traffic.job import Records, Stage, flow_rows
from traffic.transport.connection import ConnectionSample
from traffic.transport.sampling import FlowSample


def stage(controls: dict[ServiceLevel, str]) -> Stage:
    return Stage(load_fabric("fire_flyer_2_small"), AgentPool(), lambda _: None, seed=1, congestion_control=controls)


@pytest.mark.parametrize("level", list(SERVICE_LEVELS))
def test_a_kind_of_traffic_without_a_congestion_control_has_cubic(level: ServiceLevel) -> None:
    assert stage({}).socket_options(level).congestion_control == "cubic"


def test_each_kind_of_traffic_has_a_congestion_control_of_its_own() -> None:
    made = stage({ServiceLevel.STORAGE: "bbr", ServiceLevel.NCCL: "dctcp"})
    found = [
        made.socket_options(level).congestion_control
        for level in (ServiceLevel.STORAGE, ServiceLevel.NCCL, ServiceLevel.OTHER)
    ]
    assert found == ["bbr", "dctcp", "cubic"]


def test_records_of_programs_are_put_together_in_order() -> None:
    records = Records(steps=[{"step": 1}], flows=[{"peer": "a"}])
    records.extend(Records(steps=[{"step": 2}], operations=[{"operation": "read"}], flows=[{"peer": "b"}]))
    assert records == Records(
        steps=[{"step": 1}, {"step": 2}], operations=[{"operation": "read"}], flows=[{"peer": "a"}, {"peer": "b"}]
    )


def test_records_do_not_share_their_rows() -> None:
    one, other = Records(), Records()
    one.add("steps", [{"step": 1}])
    assert other.rows("steps") == []


def test_samples_of_connections_are_rows_of_the_flows_table() -> None:
    samples = [
        FlowSample(5.0, "z0h001", ConnectionSample(0.01, 3, 1000)),
        FlowSample(6.0, "z0h001", ConnectionSample(0.02, 4, 2000)),
    ]
    rows = flow_rows(samples, "lanes", ServiceLevel.HFREDUCE, "z0h000")
    frame = pd.DataFrame(rows)
    assert list(frame.columns) == columns_of_programs("flows")
    assert frame.to_numpy().tolist() == [
        [5.0, "lanes", "hfreduce", "z0h000", "z0h001", 0.01, 3, 1000, None, None, None],
        [6.0, "lanes", "hfreduce", "z0h000", "z0h001", 0.02, 4, 2000, None, None, None],
    ]


def test_what_a_transport_does_not_count_is_empty_in_the_table() -> None:
    samples = [FlowSample(5.0, "z0h001", ConnectionSample(*said)) for said in ((0.01, 3, 1000), (None, None, 2000))]
    frame = pd.DataFrame(flow_rows(samples, "lanes", ServiceLevel.HFREDUCE, "z0h000")).assign(job="a")
    written = frame[list(TABLES["flows"].columns)].astype(TABLES["flows"].dtypes)
    assert written["retransmissions"].isna().tolist() == written["rtt_s"].isna().tolist() == [False, True]
    assert written["retransmissions"].sum() == 3
    assert written["bytes_acked"].tolist() == [1000, 2000]


def test_no_samples_are_no_rows() -> None:
    assert flow_rows([], "lanes", ServiceLevel.HFREDUCE, "z0h000") == []
