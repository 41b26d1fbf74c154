"""Whether a program sees that the link of its host's interface is down."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root

PROGRAM = """
import json, subprocess
from traffic.transport.carrier import has_carrier
def ip(words):
    subprocess.run(["ip", *words.split()], check=True)
ip("link add one type veth peer name other")
ip("address add 10.99.1.1/24 dev one")
ip("address add 10.99.1.2/24 dev one")
ip("link set one up")
seen = []
for state in ("down", "up", "down"):
    ip(f"link set other {state}")
    seen.append(has_carrier("10.99.1.1"))
print(json.dumps([*seen, has_carrier("10.99.1.2"), has_carrier("10.99.9.9")]))
"""


def test_carrier_is_seen_at_once_and_only_of_first_addresses() -> None:
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [False, True, False, True, True]
