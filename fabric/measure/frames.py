"""Samples as tables of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.measure.input_wait import least_waits_s, waiting_packets
from fabric.measure.sampling import CORES, Series
from fabric.model.lanes import LanePlan
from fabric.model.network import Port
from fabric.tables import TABLES
from fabric.world.datapath import Datapath


def ports_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``ports`` table; ``ports`` maps (namespace number, interface index) to a port."""
    names = {lane.number: lane.name for lane in plan.lanes}
    columns = [place for place, (number, index, _) in enumerate(series.keys) if (number, index) in ports]
    keys = [series.keys[place] for place in columns]
    counters = series.counters[:, columns]
    samples = len(counters)
    port_names = [str(ports[number, index]) for number, index, _ in keys]
    lane_names = [names[lane] for _, _, lane in keys]
    flat = counters.reshape(-1)
    return pd.DataFrame(
        {
            "at_s": np.repeat(series.machine["at"] - origin, len(keys)),
            "port": _tiled(port_names, samples),
            "lane": _tiled(lane_names, samples),
            **{name: flat[name].astype(np.int64) for name in TABLES["ports"].sampled},
        }
    )


def stalls_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series of lossless queues as rows of the ``stalls`` table; no rows for others."""
    if series.stalls is None:
        return TABLES["stalls"].empty()
    names = {lane.number: lane.name for lane in plan.lanes}
    columns = [place for place, (number, index, _) in enumerate(series.keys) if (number, index) in ports]
    keys = [series.keys[place] for place in columns]
    flat = series.stalls[:, columns].reshape(-1)
    samples = len(series.stalls)
    return pd.DataFrame(
        {
            "at_s": np.repeat(series.machine["at"] - origin, len(keys)),
            "port": _tiled([str(ports[number, index]) for number, index, _ in keys], samples),
            "lane": _tiled([names[lane] for _, _, lane in keys], samples),
            **{name: flat[name] for name in TABLES["stalls"].sampled},
        }
    )


def waits_frame(series: Series, ports: Mapping[tuple[int, int], Port], plan: LanePlan, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``waits`` table."""
    waits = series.waits
    port_names = {key: str(port) for key, port in ports.items()}
    lane_names = {lane.number: lane.name for lane in plan.lanes}
    found = pd.DataFrame(
        {
            "at_s": waits["at"] - origin,
            "port": [port_names.get(key) for key in _places(waits, "index")],
            "lane": [lane_names.get(lane) for lane in waits["lane"].tolist()],
            "input_port": [port_names.get(key) for key in _places(waits, "input_index")],
            "input_lane": [lane_names.get(lane) for lane in waits["input_lane"].tolist()],
            "waiting_bytes": waits["bytes"].astype(np.int64),
        }
    )
    return found.astype(TABLES["waits"].dtypes)


def _places(waits: npt.NDArray[np.void], index: str) -> list[tuple[int, int]]:
    return list(zip(waits["namespace"].tolist(), waits[index].tolist(), strict=True))


def _tiled(names: Sequence[str], times: int) -> pd.Categorical:
    categories = sorted(set(names))
    places = {name: place for place, name in enumerate(categories)}
    codes = np.tile([places[name] for name in names], times)
    return pd.Categorical.from_codes(codes, categories=pd.Index(categories))  # type: ignore[arg-type]


def machine_frame(
    series: Series, origin: float, frame_bytes: int = 0, datapath: Datapath = Datapath.USERSPACE
) -> pd.DataFrame:
    """Return a series as rows of the ``machine`` table; its first sample has no predecessor and is omitted.

    ``frame_bytes``: the largest frame; without it, the wait to be switched is 0. ``datapath``: where frames wait.
    """
    machine = series.machine
    elapsed = np.diff(machine["at"])
    cores = max(1, len(series.core_numbers))
    return pd.DataFrame(
        {
            "at_s": machine["at"][1:] - origin,
            "cpu_busy_fraction": np.diff(machine["cpu_busy"]) / elapsed / cores,
            "switch_cpu_fraction": np.diff(machine["switch_cpu"]) / elapsed,
            "lateness_s": machine["lateness"][1:],
            "host_lateness_s": machine["host_lateness"][1:],
            "input_queue_bytes": machine["input_queue"][1:],
            "input_wait_s": _input_waits_s(series, frame_bytes, datapath)[1:],
            "softnet_drops": machine["softnet_drops"][1:],
            "softnet_backlog": machine["softnet_backlog"][1:],
            "softnet_squeezed": machine["softnet_squeezed"][1:],
            "clock_offset_s": machine["clock_offset"][1:],
            "stolen_s": np.diff(machine["stolen"]),
        }
    )


def _input_waits_s(series: Series, frame_bytes: int, datapath: Datapath) -> npt.NDArray[np.float64]:
    machine = series.machine
    if not frame_bytes:
        return np.zeros(len(machine))
    of_switches = series.counters[:, [place for place, (number, _, _) in enumerate(series.keys) if number == 0]]
    counted = ("sent_packets", "backlog_packets", "drops_packets")
    handed_on = sum(of_switches[name].astype(np.int64).sum(axis=1) for name in counted)
    # A link that is cut takes what waits at it uncounted: the sum shrinks, and nothing was taken back.
    switched = np.maximum.accumulate(handed_on)
    if datapath is Datapath.USERSPACE:
        waiting = waiting_packets(machine["input_queue"], frame_bytes)
    else:  # -1: not reported.
        waiting = np.maximum(machine["softnet_backlog"], 0)
    return least_waits_s(machine["at"], waiting, switched)


def cores_frame(series: Series, origin: float) -> pd.DataFrame:
    """Return a series as rows of the ``cores`` table: fractions of each core since the reading before."""
    readings = max(0, len(series.cores_at) - 1)
    elapsed = np.diff(series.cores_at)[:, None]
    grown = {name: (np.diff(series.cores[name], axis=0) / elapsed).reshape(-1) for name in CORES.names or ()}
    return pd.DataFrame(
        {
            "at_s": np.repeat(series.cores_at[1:] - origin, len(series.core_numbers)),
            "core": np.tile(np.array(series.core_numbers, np.int64), readings),
            "busy_fraction": grown["busy"],
            "niced_fraction": grown["niced"],
            "switch_fraction": grown["switch"],
        }
    )
