"""The graph of a training job whose gradients go to parameter servers."""

from __future__ import annotations

from traffic.work.generators.buckets import Bucket, DataKind, Gradient, buckets_of
from traffic.work.generators.costs import costs_of
from traffic.work.generators.keys import TrainingKeys
from traffic.work.generators.options import ParameterServer
from traffic.work.generators.parameter_server import WorkerStep, parameter_server_graph
from traffic.work.graph import WorkGraph
from traffic.work.models.listing import forward_flops

_OVER_DATA = DataKind("dp-cp")


def server_graph(config: TrainingKeys, options: ParameterServer) -> WorkGraph:
    """Return the graph: gradients in buckets as DDP has them, pushed as they become ready or after the backward pass.

    ``micro_batches`` are computed one after the other before that; the last one's backward pass is what overlaps.
    """
    model = config.shapes
    costs = costs_of(config.compute, forward_flops(model), config.micro_batch, 1)
    layers = model.all_layers()
    keys = [((place, number), part) for place, layer in enumerate(layers) for number, part in enumerate(layer.parts)]
    gradients = [
        Gradient(key, tensor.elements * config.data_parallel.gradient_bytes, _OVER_DATA)
        for key, part in keys
        for tensor in part.tensors
    ]
    chosen = config.data_parallel
    buckets = buckets_of(gradients, int(chosen.first_bucket), int(chosen.bucket))
    if not chosen.overlap:
        buckets = (Bucket(sum(one.size_bytes for one in gradients), keys[0][0], _OVER_DATA),)
    once = sum(costs.forward(part) for _, part in keys)
    backward, left = [], 0.0
    ready = {key: [number for number, one in enumerate(buckets) if one.ready == key] for key, _ in keys}
    for key, part in reversed(keys):
        left += costs.forward(part) * costs.backward
        for _ in ready[key]:
            backward.append(left)
            left = 0.0
    before = (config.micro_batches - 1) * once * (1 + costs.backward)
    step = WorkerStep(before + once, tuple(backward), config.data_parallel.gradient_bytes)
    return parameter_server_graph(config.layout.data, step, buckets, costs, options)
