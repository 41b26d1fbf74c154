"""What runs on the same fabric have in common, which is done before it is known which run it is: it is brought up."""

from __future__ import annotations

import json

from controllers.routing import Routing
from fabric.config import checked
from fabric.model.encoding import fabric_from_json, fabric_to_json
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.world.engine import Groundwork

_SOURCE = "the fabric that is to stand"


def groundwork_of(
    fabric: Fabric, queues: QueueConfig, queueing: Queueing, routing: Routing, *, is_measured: bool
) -> Groundwork:
    """Return what brings a fabric up. ``is_measured``: for a run that is, whose programs are forked: its links are
    measured, too."""
    content = {
        "fabric": fabric_to_json(fabric),
        "queues": queues.model_dump(mode="json"),
        "queueing": queueing.value,
        "routing": routing.undrawn.model_dump(mode="json"),
        "is_measured": is_measured,
    }
    return Groundwork(__name__, json.dumps(content, separators=(",", ":")))


def lay(content: str) -> None:
    """Bring up the fabric that a groundwork says; a run finds it by :func:`runs.live.bring_up`."""
    from fabric.world import inside  # Who only says what is to stand needs nothing of this.
    from runs.live import Wanted, stand

    values = json.loads(content)
    queues = checked(QueueConfig, values["queues"], _SOURCE)
    wanted = Wanted(
        fabric_from_json(values["fabric"], _SOURCE),
        plan_lanes(queues, Queueing(values["queueing"])),
        checked(Routing, values["routing"], _SOURCE),
    )
    inside.set_up()
    if values["is_measured"]:
        from fabric.world.programs.agents import fork_server
        from runs.preload import PRELOAD

        fork_server(PRELOAD)
    stand(wanted, values["is_measured"])
