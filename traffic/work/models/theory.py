"""FLOPs and parameters of GPT models in closed form (Narayanan et al., SC'21, equations 2 and 3)."""

from __future__ import annotations

from traffic.work.models.transformer import Transformer


def gpt_flops(model: Transformer, sequences: int, *, recompute: bool = False) -> float:
    """Return the FLOPs of a step, forward and backward, for a model of GPT's shape: as many heads of keys as of
    queries, an inner vector of 4 h, two matrices.

    72 B s l h^2 (1 + s / (6 h) + V / (12 l h)); 96 and V / (16 l h) if layers are computed again in the backward pass.
    """
    h, s, layers, v = model.hidden, model.sequence, model.layers, model.vocabulary
    factor, logits = (96, 16) if recompute else (72, 12)
    return factor * sequences * s * layers * h**2 * (1 + s / (6 * h) + v / (logits * layers * h))


def gpt_parameters(model: Transformer) -> float:
    """Return the parameters of a model of GPT's shape: P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)).

    The two norms of each layer and the biases are in it, the last norm is not.
    """
    h, layers = model.hidden, model.layers
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (model.vocabulary + model.sequence) / (12 * layers * h))


def training_flops_per_token(model: Transformer) -> float:
    """Return FLOPs of forward and backward per token, which MFU counts: three times the forward pass."""
    return 3 * sum(layer.flops for layer in model.all_layers()) / model.sequence
