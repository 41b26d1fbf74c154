"""Names of a user's own for the nodes of a free form, and what each of these nodes is.

A name that looks like ours (``z0l03``, ``st001``) says what its node is. Of others, ``nodes`` in the file says it; else
the word that the name begins with (``client1``, ``leaf2``, ``h1``, ``s1``); else its links: what a host hangs on is a
switch, and what has one link only is a host. Where nothing says it, the node is refused by name: nothing is guessed.

Nodes with names of their own get ours, which interfaces and tables have, in the natural order of theirs: ``h2`` before
``h10``. A switch with a host is a leaf, one with a link to a leaf a spine, all others are cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from fabric.errors import TopologyError
from fabric.model.identity import NodeId, Role

HOST, STORAGE, SWITCH = "host", "storage", "switch"
KINDS = (HOST, STORAGE, SWITCH)
WORDS: Mapping[str, tuple[str, ...]] = {
    HOST: ("h", "host", "client", "server", "srv", "node", "gpu", "worker", "compute", "vm", "pc"),
    STORAGE: ("st", "storage", "nas"),
    SWITCH: (
        *("s", "sw", "switch", "l", "leaf", "tor", "sp", "spine", "ss", "superspine", "core"),
        *("agg", "aggregation", "edge", "border", "r", "router", "srl", "ceos", "br", "bridge"),
    ),
}
"""The words that names begin with, and what they say of a node; in lower or upper case, with anything but a letter
after them."""
_KIND_OF_WORD = {word: kind for kind, words in WORDS.items() for word in words}
_LEAF_WORDS = frozenset({"l", "leaf", "tor", "edge"})
_ALLOWED = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
_LIKE_OURS = re.compile(r"^z\d+[lsh]\d+$")
_DIGITS = re.compile(r"(\d+)")
Pair = tuple[str, str]


def assigned(source: str, links: Sequence[Pair], stated: Mapping[str, str]) -> dict[str, NodeId]:
    """Return the node of each name in ``links``, in their order.

    ``stated`` says of names what they are: a kind, or the name that we would give it (``z0h003``). Raises TopologyError
    with every fault.
    """
    names = list(dict.fromkeys(name for pair in links for name in pair))
    faults = [f"nodes.{name}: no link has it; add one, or remove it" for name in stated if name not in names]
    faults += [fault for name in names for fault in _name_faults(name)]
    fixed: dict[str, NodeId] = {}
    kinds: dict[str, str] = {}
    for name in names:
        try:
            found = _stated(name, stated.get(name))
        except ValueError as error:
            faults.append(f"nodes.{name}: {error}" if name in stated else f"links: {error}")
            continue
        if isinstance(found, NodeId):
            fixed[name] = found
        elif found is not None:
            kinds[name] = found
    if faults:
        raise TopologyError(source, faults)
    kinds |= {name: _kind_of(node) for name, node in fixed.items()}
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for a, b in links:
        neighbours[a].append(b)
        neighbours[b].append(a)
    faults = list(_deduced(kinds, neighbours))
    if faults:
        raise TopologyError(source, faults)
    return _numbered(source, names, fixed, kinds, neighbours)


def _name_faults(name: str) -> Iterator[str]:
    if not _ALLOWED.match(name):
        yield f"links: {name!r} cannot be a node's name; use 1 to 63 letters, digits, '-', '_' and '.'"


def _stated(name: str, said: str | None) -> NodeId | str | None:
    """Return the node that a name is, or its kind; None if neither is said. Raises ValueError for what is neither."""
    if said in KINDS:
        return said
    if said is not None:
        try:
            return NodeId.parse(said)
        except ValueError as error:
            raise ValueError(
                f"{said!r} is neither one of {', '.join(KINDS)} nor a name like z0h003 ({error})"
            ) from None
    try:
        node = NodeId.parse(name)
    except ValueError:
        if _LIKE_OURS.match(name):
            raise  # z0l3 is a slip for z0l03.
        return _KIND_OF_WORD.get(_word(name))
    if node.is_inside:
        raise ValueError(f"{name!r} is inside a node, and follows from the key 'node'; links join hosts and switches")
    return node


def _word(name: str) -> str:
    """Return the longest known word that a name begins with; empty if there is none."""
    lower = name.lower()
    found = [word for word in _KIND_OF_WORD if lower.startswith(word) and _ends_after(name, len(word))]
    return max(found, key=len, default="")


def _ends_after(name: str, length: int) -> bool:
    """Whether a word of a name ends there: ``leaf1``, ``leaf_a``, ``leafA`` have the word ``leaf``, ``leafy`` not."""
    rest = name[length : length + 1]
    return not rest.isalpha() or (rest.isupper() and name[length - 1].islower())


def _kind_of(node: NodeId) -> str:
    if node.is_switch:
        return SWITCH
    return STORAGE if node.role is Role.STORAGE else HOST


def _deduced(kinds: dict[str, str], neighbours: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Add the kinds that follow from links, and yield the nodes of which nothing says what they are."""
    left = [name for name in neighbours if name not in kinds]
    ends = [name for name in left if len(neighbours[name]) == 1 and kinds.get(neighbours[name][0]) != HOST]
    for name in ends:
        (peer,) = neighbours[name]
        if peer not in ends:  # Of two that have but each other, nothing says which is a switch.
            kinds[name] = HOST
    for name in left:
        if name not in kinds and any(kinds.get(peer) in (HOST, STORAGE) for peer in neighbours[name]):
            kinds[name] = SWITCH
    for name in left:
        if name not in kinds:
            say = f"add nodes: {{{name}: {SWITCH}}}, or {HOST}, or {STORAGE}"
            yield f"node {name}: neither its name nor its {len(neighbours[name])} links say what it is; {say}"


def _numbered(
    source: str,
    names: Iterable[str],
    fixed: dict[str, NodeId],
    kinds: Mapping[str, str],
    neighbours: Mapping[str, Sequence[str]],
) -> dict[str, NodeId]:
    """Return the nodes of all names: those that are ``fixed``, and a role and a number for each of the others."""
    own = sorted((name for name in names if name not in fixed), key=_natural)
    if own and (zoned := sorted({node.zone for node in fixed.values() if node.zone})):
        where = f"zone {zoned[0]}, so there are several zones"
        raise TopologyError(source, [f"node {own[0]}: others are in {where}; say which node it is, e.g. z0h000"])
    leaves = {name for name in own if _is_leaf(name, kinds, neighbours)}
    leaves |= {name for name, node in fixed.items() if node.role is Role.LEAF}
    taken = {*fixed.values(), *_meant(names)}
    free = {role: count() for role in Role}
    nodes = dict(fixed)
    for name in own:
        role = _role_of(name, kinds, neighbours, leaves)
        zone = 0 if role in (Role.LEAF, Role.SPINE, Role.COMPUTE) else None
        made = (NodeId(role, zone, number) for number in free[role])
        nodes[name] = next(node for node in made if node not in taken)
    return {name: nodes[name] for name in names}


def _meant(names: Iterable[str]) -> Iterator[NodeId]:
    """Yield the nodes that names look like: no other node shall have such a name."""
    for name in names:
        try:
            yield NodeId.parse(name)
        except ValueError:
            continue


def _is_leaf(name: str, kinds: Mapping[str, str], neighbours: Mapping[str, Sequence[str]]) -> bool:
    has_hosts = any(kinds[peer] != SWITCH for peer in neighbours[name])
    return kinds[name] == SWITCH and (has_hosts or _word(name) in _LEAF_WORDS)


def _role_of(name: str, kinds: Mapping[str, str], neighbours: Mapping[str, Sequence[str]], leaves: set[str]) -> Role:
    if kinds[name] != SWITCH:
        return Role.COMPUTE if kinds[name] == HOST else Role.STORAGE
    if name in leaves:
        return Role.LEAF
    return Role.CORE if leaves.isdisjoint(neighbours[name]) else Role.SPINE


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return what puts names in the order that people expect: h2 before h10."""
    parts = _DIGITS.split(name)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
