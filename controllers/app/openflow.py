"""The OpenFlow library, and the only module that imports it: Ryu where it is installed, otherwise os-ken.

os-ken is Ryu's maintained fork, with the same modules under another name; but it has no web server of its own, so
:mod:`controllers.app.rest` uses none. pip installs os-ken. ``tools/setup.sh`` also installs Ryu, whose source package
today's setuptools cannot build.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from fabric.errors import ControllerError

LIBRARIES = ("ryu", "os_ken")
"""Names of the packages, the preferred one first."""


class OpenFlowLibraryError(ControllerError, ImportError):
    """None of the packages is installed for this Python."""


def library() -> str:
    """Return the name of the package that is used. Raises OpenFlowLibraryError."""
    for name in LIBRARIES:
        if find_spec(name) is not None:
            return name
    message = "no OpenFlow library: this Python has neither ryu nor os_ken; install one: pip install os-ken"
    raise OpenFlowLibraryError(message)


# os-ken takes threads by default. The app is written for green threads: between two calls that wait, nothing changes.
os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Eventlet announces its retirement whenever it is imported.
    import eventlet  # noqa: F401 - or the library would import it, with the warning

if library() == "ryu":
    # Its own web server serves nothing here, loads three libraries, and imports a name that eventlets since 0.33 lack.
    sys.modules.setdefault("ryu.app.wsgi", ModuleType("ryu.app.wsgi"))
    from ryu import cfg
    from ryu.base.app_manager import AppManager
    from ryu.base.app_manager import RyuApp as App

    # The first declares the ofp_* options; the last says hello to switches, and Ryu would load it itself.
    from ryu.controller import controller, ofp_event, ofp_handler
    from ryu.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from ryu.lib import hub
    from ryu.lib.packet.ether_types import ETH_TYPE_IP
    from ryu.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser
    from ryu.ofproto.nicira_ext import NX_MP_ALG_MODULO_N
else:
    from os_ken import cfg
    from os_ken.base.app_manager import AppManager
    from os_ken.base.app_manager import OSKenApp as App
    from os_ken.controller import controller, ofp_event, ofp_handler
    from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from os_ken.lib import hub
    from os_ken.lib.packet.ether_types import ETH_TYPE_IP
    from os_ken.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser
    from os_ken.ofproto.nicira_ext import NX_MP_ALG_MODULO_N


def _connected(sock: Any, address: object) -> None:
    """Take a switch's connection, whose socket the library would set an option of TCP on, whichever it is."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt = lambda *_: None
    _take(sock, address)


_take = controller.datapath_connection_factory
controller.datapath_connection_factory = _connected

__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "ETH_TYPE_IP",
    "MAIN_DISPATCHER",
    "NX_MP_ALG_MODULO_N",
    "App",
    "AppManager",
    "cfg",
    "controller",
    "hub",
    "ofp_event",
    "ofp_handler",
    "ofproto_parser",
    "ofproto_v1_3",
    "ofproto_v1_3_parser",
    "set_ev_cls",
]
