"""How many steps training needs to an accuracy, as the user knows it: a number, an expression, or a table in a file.

An expression is arithmetic over what a step has (:data:`NAMES`), such as ``30000 / sqrt(batch) * (1 + staleness / 8)``.
A table is a file of comma-separated values: the first line has one of the names and ``steps``, the others numbers, the
smallest first; between two lines steps are on the line through both.
"""

from __future__ import annotations

import ast
import csv
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.config import note_file

NAMES: Mapping[str, str] = {
    "batch": "samples of a step, over all ranks",
    "tokens": "tokens of a step, over all ranks",
    "ranks": "ranks that train, servers not counted",
    "staleness": "pushes of others that gradients missed, on average (0 but for asynchronous servers)",
}
"""What steps may depend on."""
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "min": min, "max": max, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "exp": math.exp,
    "ceil": math.ceil, "floor": math.floor,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_LONGEST = 1000
_TABLE = ".csv"


@dataclass(frozen=True)
class StepsToAccuracy:
    """Steps as a function of a setting. ``said``: as the user says it; ``uses``: the names that it depends on."""

    said: str
    uses: frozenset[str]
    function: Callable[[Mapping[str, float]], float]

    def __call__(self, setting: Mapping[str, float]) -> float:
        """Return the steps in a setting, by names. Raises ValueError if one is not a positive number there."""
        try:
            steps = float(self.function(setting))
        except (ArithmeticError, TypeError) as error:
            raise ValueError(f"{self.said}: cannot be computed ({error}); give another expression") from error
        if not 0 < steps < math.inf:
            where = ", ".join(f"{name} {setting[name]:g}" for name in sorted(self.uses))
            raise ValueError(f"{self.said}: gives {steps:g} steps{' at ' + where if where else ''}; give more than 0")
        return steps


def steps_to_accuracy(said: float | str) -> StepsToAccuracy:
    """Return the function that a number, an expression or the path of a table means. Raises ValueError."""
    if isinstance(said, str) and said.endswith(_TABLE):
        return _table(Path(said))
    text = str(said)
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text)} characters, and {_LONGEST} are the most; write a table into a file")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is not an expression; write one of {', '.join(NAMES)} and numbers") from error
    uses: set[str] = set()
    function = _compiled(tree, uses)
    return StepsToAccuracy(text, frozenset(uses), function)


def _compiled(node: ast.AST, uses: set[str]) -> Callable[[Mapping[str, float]], float]:
    """Return what computes a part of an expression; note the names that it uses."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            number = float(value)
            return lambda _: number
        case ast.Name(id=name) if name in NAMES:
            uses.add(name)
            return lambda setting: setting[name]
        case ast.Name(id=name):
            raise ValueError(f"{name}: steps do not depend on that; use {', '.join(NAMES)}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _applied(_OPERATORS[type(op)], [_compiled(left, uses), _compiled(right, uses)])
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _applied(_OPERATORS[type(op)], [_compiled(operand, uses)])
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _applied(_FUNCTIONS[name], [_compiled(one, uses) for one in arguments])
    allowed = f"numbers, {', '.join(NAMES)}, + - * / ** and {', '.join(_FUNCTIONS)}"
    raise ValueError(f"{ast.unparse(node)!r}: is not allowed in an expression; use {allowed}")


def _applied(
    function: Callable[..., float], parts: Sequence[Callable[[Mapping[str, float]], float]]
) -> Callable[[Mapping[str, float]], float]:
    return lambda setting: function(*(part(setting) for part in parts))


def _table(path: Path) -> StepsToAccuracy:
    note_file(path)
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8").splitlines()) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); give the path of a table") from error
    head = [word.strip() for word in rows[0]] if rows else []
    if len(head) != 2 or head[0] not in NAMES or head[1] != "steps":
        raise ValueError(f"{path}: begins with {','.join(head)!r}; begin with one of {', '.join(NAMES)}, and steps")
    try:
        points = [(float(first), float(second)) for first, second in rows[1:]]
    except ValueError as error:
        raise ValueError(f"{path}: a line is not two numbers ({error}); write {','.join(head)} in each") from error
    places = [place for place, _ in points]
    if not points or places != sorted(set(places)) or not all(math.isfinite(one) for row in points for one in row):
        raise ValueError(f"{path}: {head[0]} of the lines must grow from line to line; sort them, each once")
    return StepsToAccuracy(str(path), frozenset(head[:1]), lambda setting: _between(path, points, head[0], setting))


def _between(path: Path, points: Sequence[tuple[float, float]], name: str, setting: Mapping[str, float]) -> float:
    at, places = setting[name], [place for place, _ in points]
    if not places[0] <= at <= places[-1]:
        raise ValueError(f"{path}: {name} is {at:g}, and the table has {places[0]:g} to {places[-1]:g}; add a line")
    number = bisect_left(places, at)
    if places[number] == at:
        return points[number][1]
    (before, less), (after, more) = points[number - 1], points[number]
    return less + (more - less) * (at - before) / (after - before)
