"""Faults of links: from their carrier, from where frames arrived, and from the rate of each direction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from app.validation.findings import Fault, FaultKind
from fabric.measure.linktest import DirectionMeasurement
from fabric.model.network import Fabric, Link, Port
from fabric.units import format_rate


def state_faults(fabric: Fabric, carriers: Mapping[Port, bool]) -> Iterator[Fault]:
    """Yield the links that lack carrier at an end."""
    for link in fabric.links:
        dark = [port for port in link.ports if not carriers[port]]
        if dark:
            where = " and at ".join(map(str, dark))
            yield Fault(FaultKind.STATE, link.ports, str(link), f"none at {where}", "carrier at both ends")


def wiring_faults(fabric: Fabric, seen: Mapping[Port, Port | None]) -> Iterator[Fault]:
    """Yield where frames arrive elsewhere than the topology says, or nowhere; ``seen`` leaves ports out that are dark.

    Two links that are exchanged make one fault. Whatever else goes wrong is named port by port.
    """
    wrong = {port: arrived for port, arrived in seen.items() if arrived != fabric.peer(port)}
    told: set[Port] = set()
    for port in sorted(wrong):
        if port in told:
            continue
        other = _exchanged_with(fabric, port, wrong)
        if other is None:
            told |= {port}
            yield _misplaced(fabric, port, wrong[port])
        else:
            links = fabric.link_at[port], fabric.link_at[other]
            told |= {*links[0].ports, *links[1].ports}
            yield _exchanged(fabric, port, other)


def _exchanged_with(fabric: Fabric, port: Port, wrong: Mapping[Port, Port | None]) -> Port | None:
    """Return the port whose far end this one has, and that has this one's, both ways; None if there is no such."""
    arrived = wrong[port]
    if arrived is None:
        return None
    other, far = fabric.peer(arrived), fabric.peer(port)
    expected = {port: arrived, arrived: port, other: far, far: other}
    agrees = len(expected) == 4 and all(wrong.get(one) == leads_to for one, leads_to in expected.items())
    return other if agrees else None


def _exchanged(fabric: Fabric, port: Port, other: Port) -> Fault:
    far, other_far = fabric.peer(port), fabric.peer(other)
    return Fault(
        FaultKind.WIRING,
        (port, far, other, other_far),
        f"{port} and {other} are exchanged",
        f"{port} leads to {other_far}, {other} to {far}",
        f"{port}--{far} and {other}--{other_far}",
    )


def _misplaced(fabric: Fabric, port: Port, arrived: Port | None) -> Fault:
    link = fabric.link_at[port]
    where = f"frames from {port} arrive {'nowhere' if arrived is None else f'at {arrived}'}"
    return Fault(FaultKind.WIRING, link.ports, str(link), where, f"at {fabric.peer(port)}")


def rate_fraction(fabric: Fabric, measured: DirectionMeasurement) -> float:
    """Return what part of its rate a direction carries."""
    return measured.rate_bps / fabric.link_at[measured.sender].rate_bps


def is_short(fabric: Fabric, measured: DirectionMeasurement, tolerance: float) -> bool:
    """Return whether a direction carries less of its rate than the tolerance leaves."""
    return rate_fraction(fabric, measured) < 1 - tolerance


def suspects(fabric: Fabric, found: Iterable[DirectionMeasurement], tolerance: float) -> list[DirectionMeasurement]:
    """Return the directions that are to be measured again before anything is said of them."""
    return [one for one in found if one.lost_frames or is_short(fabric, one, tolerance)]


def confirmed(
    fabric: Fabric, first: Sequence[DirectionMeasurement], again: Iterable[DirectionMeasurement], tolerance: float
) -> list[DirectionMeasurement]:
    """Return the directions that are faulty in both measurements: the frames of both, the better of the rates.

    A machine that stumbles once makes no fault; a faulty link is faulty both times.
    """
    second = {one.sender: one for one in again}
    both = [(one, second[one.sender]) for one in first if one.sender in second]
    return [
        DirectionMeasurement(
            sender=one.sender,
            receiver=one.receiver,
            rate_bps=max(one.rate_bps, two.rate_bps),
            sent_frames=one.sent_frames + two.sent_frames,
            lost_frames=one.lost_frames + two.lost_frames if one.lost_frames and two.lost_frames else 0,
        )
        for one, two in both
        if (one.lost_frames and two.lost_frames)
        or (is_short(fabric, one, tolerance) and is_short(fabric, two, tolerance))
    ]


def link_faults(fabric: Fabric, found: Iterable[DirectionMeasurement], tolerance: float) -> Iterator[Fault]:
    """Yield a fault for each link that is slow, and one for each that loses frames, in either direction or both."""
    by_wire: dict[tuple[Port, ...], list[DirectionMeasurement]] = {}
    for one in found:
        by_wire.setdefault(tuple(sorted((one.sender, one.receiver))), []).append(one)
    for ends, directions in by_wire.items():
        link = fabric.link_at[ends[0]]
        ports = link.ports if link.other(ends[0]) == ends[1] else ends
        name = "--".join(map(str, ports))
        if slow := [one for one in directions if is_short(fabric, one, tolerance)]:
            measured = ", ".join(f"{format_rate(one.rate_bps)} from {one.sender}" for one in slow)
            yield Fault(FaultKind.SPEED, ports, name, measured, _rate_text(link, tolerance))
        if lossy := [one for one in directions if one.lost_frames]:
            measured = ", ".join(
                f"{one.lost_frames} of {one.sent_frames} frames from {one.sender} ({one.loss:.2%})" for one in lossy
            )
            yield Fault(FaultKind.LOSS, ports, name, measured, "none lost")


def _rate_text(link: Link, tolerance: float) -> str:
    return f"{format_rate(link.rate_bps)} within {tolerance:.2g} of it"
