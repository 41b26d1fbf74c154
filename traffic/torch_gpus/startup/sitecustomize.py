"""Loaded by each Python that starts with this folder on PYTHONPATH; ``fabric exec --gpu`` puts it there."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path


def _next() -> None:
    """Load the ``sitecustomize`` that this one hides, if there is one."""
    here = Path(__file__).parent.resolve()
    places = [place for place in sys.path if Path(place).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _watch() -> None:
    try:
        from traffic.torch_gpus.loading import watch
    except ImportError as error:
        print(f"fabric exec --gpu: {sys.executable} cannot load this project beside PyTorch: {error}", file=sys.stderr)
    else:
        watch()


_next()
_watch()
