"""Start the controller: ``python -m controllers.app.launcher --task FILE``.

It lets eventlet patch the standard library before the OpenFlow library is imported.
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
from typing import TYPE_CHECKING

from fabric.errors import ControllerError, FabricError
from fabric.garbage import uncollected
from fabric.model.identity import CONTROLLER_ADDRESS, OPENFLOW_PORT, OPENFLOW_SOCKET
from fabric.pythons_distutils import load_pythons_distutils

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

DEFAULT_REST_PORT = 8080
REST_SOCKET = "rest"
"""Where it listens to questions, in the directory of its sockets."""
CHATTY_LOGGERS = ("ryu.base.app_manager", "os_ken.base.app_manager")
"""They log every loaded class."""


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
    sockets = "a directory: listen to sockets in it, and to no port (default: to ports)"
    parser.add_argument("--sockets", type=Path, help=sockets)
    parser.add_argument("--log", type=Path, help="the log file; default: standard error")
    return parser.parse_args(arguments)


def _serve(options: argparse.Namespace) -> None:
    for port in () if options.sockets else (options.openflow_port, options.rest_port):
        _verify_free(port)
    if options.sockets:
        options.sockets.mkdir(exist_ok=True)
        for name in (OPENFLOW_SOCKET, REST_SOCKET):  # Of one that has ended.
            (options.sockets / name).unlink(missing_ok=True)
    patch_standard_library()
    load_pythons_distutils()  # Before Ryu asks for it.
    for name in CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    with uncollected():
        import controllers.app.route_keeper  # It declares the option "task".
        from controllers.app.openflow import AppManager, cfg, hub
        from controllers.app.rest import Rest

    cfg.CONF(args=[], project="ai-fabric-emulator", default_config_files=[], default_config_dirs=[])
    for name, value in (
        ("task", str(options.task)),
        ("ofp_listen_host", str(options.sockets / OPENFLOW_SOCKET) if options.sockets else options.address),
        ("ofp_tcp_listen_port", options.openflow_port),
    ):
        cfg.CONF.set_override(name, value)
    manager = AppManager.get_instance()
    manager.load_apps([controllers.app.route_keeper.__name__])
    services = manager.instantiate_apps(**manager.create_contexts())
    keeper = manager.applications[controllers.app.route_keeper.RouteKeeper.__name__]
    services.append(hub.spawn(_answer, options, Rest(keeper)))
    hub.joinall(services)


def _answer(options: argparse.Namespace, rest: WSGIApplication) -> None:
    """Serve what the controller is asked, in green threads."""
    import eventlet
    import eventlet.wsgi

    if options.sockets:
        listener = eventlet.listen(str(options.sockets / REST_SOCKET), family=socket.AF_UNIX)
    else:
        listener = eventlet.listen((CONTROLLER_ADDRESS, options.rest_port))
    eventlet.wsgi.server(listener, rest, log_output=False)


def patch_standard_library() -> None:
    """Let eventlet replace blocking calls; must come before the first import of the OpenFlow library."""
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # Names are never resolved, and it is slow to import.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Eventlet announces its retirement at every start.
        import eventlet
    eventlet.monkey_patch()


def _verify_free(port: int) -> None:
    """Raise ControllerError if ``port`` is taken: the library would log it and go on without listening."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((CONTROLLER_ADDRESS, port))
        except OSError as error:
            message = f"port {CONTROLLER_ADDRESS}:{port}: {error.strerror}; end the program there or choose another"
            raise ControllerError(message) from error


if __name__ == "__main__":
    sys.exit(main())
