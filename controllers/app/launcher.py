"""Start the controller: ``python -m controllers.app.launcher --task FILE``.

The only file that touches eventlet: it patches the standard library before anything of Ryu is imported, and provides
names that Ryu 4.34 misses in eventlet 0.33 and later.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from fabric.errors import ControllerError, FabricError
from fabric.model.identity import CONTROLLER_ADDRESS, OPENFLOW_PORT
from fabric.pythons_distutils import load_pythons_distutils

DEFAULT_REST_PORT = 8080
CHATTY_LOGGERS = ("hub", "ryu.lib.hub", "ryu.base.app_manager")
"""They log every REST request and every loaded class."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller until it is ended. Returns 1 if it could not start."""
    options = _parse(arguments)
    logging.basicConfig(
        filename=options.log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        _serve(options)
    except FabricError as error:
        logging.getLogger(__name__).error("%s", error)
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m controllers.app.launcher", description="Keeps switches at their routes."
    )
    parser.add_argument("--task", type=Path, required=True, help="the fabric and its routing, as Task.save wrote them")
    parser.add_argument("--openflow-port", type=int, default=OPENFLOW_PORT, help="default: %(default)s")
    parser.add_argument("--rest-port", type=int, default=DEFAULT_REST_PORT, help="default: %(default)s")
    parser.add_argument("--address", default=CONTROLLER_ADDRESS, help="where switches connect; default: %(default)s")
    parser.add_argument("--log", type=Path, help="the log file; default: standard error")
    return parser.parse_args(arguments)


def _serve(options: argparse.Namespace) -> None:
    for port in (options.openflow_port, options.rest_port):
        _verify_free(port)
    patch_standard_library()
    mend_eventlet()
    load_pythons_distutils()  # Before Ryu asks for it.
    from ryu import cfg
    from ryu.app import wsgi
    from ryu.base.app_manager import AppManager
    from ryu.controller import controller  # noqa: F401  (declares the ofp_* options)
    from ryu.lib import hub

    for name in CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    import controllers.app.route_keeper  # noqa: F401  (declares the option "task")

    cfg.CONF(args=[], project="ryu", default_config_files=[], default_config_dirs=[])
    for name, value in (
        ("task", str(options.task)),
        ("ofp_listen_host", options.address),
        ("ofp_tcp_listen_port", options.openflow_port),
        ("wsapi_host", CONTROLLER_ADDRESS),
        ("wsapi_port", options.rest_port),
    ):
        cfg.CONF.set_override(name, value)
    manager = AppManager.get_instance()
    manager.load_apps(["controllers.app.route_keeper"])
    services = manager.instantiate_apps(**manager.create_contexts())
    services.append(hub.spawn(wsgi.start_service(manager)))
    hub.joinall(services)


def patch_standard_library() -> None:
    """Let eventlet replace blocking calls; must come before the first import of Ryu."""
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # Names are never resolved, and it is slow to import.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Eventlet announces its retirement at every start.
        import eventlet
    eventlet.monkey_patch()


def mend_eventlet() -> None:
    """Give eventlet back the name that ``ryu.app.wsgi`` imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import eventlet.wsgi
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()


def _verify_free(port: int) -> None:
    """Raise ControllerError if ``port`` is taken: Ryu would log it and go on without listening."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((CONTROLLER_ADDRESS, port))
        except OSError as error:
            message = f"port {CONTROLLER_ADDRESS}:{port}: {error.strerror}; end the program there or choose another"
            raise ControllerError(message) from error


if __name__ == "__main__":
    sys.exit(main())
