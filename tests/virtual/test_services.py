"""Services that users deploy, unmodified, on hosts in virtual time: right answers, at the times that links allow."""

from __future__ import annotations

import json
import re

import pytest

from experiments.libraries.catalogue import Library
from tests.virtual.command import VirtualCommand
from tests.virtual.test_libraries import installed

pytestmark = [pytest.mark.guest, pytest.mark.soak]  # A minute of computing each.
FABRIC = ("head_of_line_200g", "--queueing", "lossless_lanes")
HOSTS = ("z0h000", "z0h001", "z0h002")
LINK_BPS = 200e9
ETCD = Library("etcd", "etcd", (), packages=("etcd-server", "etcd-client"))
NGINX = Library("nginx", "nginx and wrk", (), packages=("nginx", "wrk", "libluajit-5.1-2"))
RAY = Library("ray", "Ray", (), wheels=("ray==2.60.0",))
DASK = Library("dask", "Dask", (), wheels=("dask[distributed]==2026.8.0", "numpy==2.4.6"))


def test_etcd_on_three_hosts_has_one_leader_and_one_value(command: VirtualCommand) -> None:
    home = installed(ETCD) / "usr" / "bin"
    peers = ",".join(f"{host}=http://{host}:2380" for host in HOSTS)
    member = (
        f"name=$(hostname); {home}/etcd --name $name --data-dir /tmp/etcd --initial-cluster {peers} "
        "--initial-advertise-peer-urls http://$name:2380 --listen-peer-urls http://$FABRIC_ADDRESS:2380 "
        "--listen-client-urls http://$FABRIC_ADDRESS:2379 --advertise-client-urls http://$name:2379 2> /tmp/log & "
        f"export ETCDCTL_API=3; ctl='{home}/etcdctl --endpoints'; sleep 4; "
        "case $name in z0h000) $ctl $name:2379 put fabric exact ;; "
        "z0h002) sleep 1; $ctl $name:2379 get fabric ;; esac; "
        "sleep 1; $ctl $name:2379 endpoint status; sleep 2; kill %1; wait"
    )
    address = "FABRIC_ADDRESS=$(hostname -I | cut -d' ' -f1); "
    done = command.run("exec", FABRIC[0], *HOSTS, *FABRIC[1:], "--", "bash", "-c", address + member)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[z0h000] OK" in done.stdout
    assert "[z0h002] exact" in done.stdout
    leaders = re.findall(r"kB, (true|false), ", done.stdout)
    assert sorted(leaders) == ["false", "false", "true"], done.stdout


def test_nginx_serves_files_to_wrk_at_the_rate_of_the_link(command: VirtualCommand) -> None:
    home = installed(NGINX)
    (command.here / "large").write_bytes(bytes(2**20))
    (command.here / "nginx.conf").write_text(
        f"daemon off; error_log stderr; pid /tmp/nginx.pid; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; "
        f"uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e; server {{ listen 8080; root {command.here}; }} }}\n"
    )
    server = f"{home}/usr/sbin/nginx -e stderr -c {command.here}/nginx.conf"
    wrk = f"LD_LIBRARY_PATH={home}/usr/lib/x86_64-linux-gnu timeout -s INT 0.03 {home}/usr/bin/wrk -t 1 -c 16 -d 10"
    client = f"sleep 1; {wrk} http://z0h002:8080/large; true"
    options = [*FABRIC[1:], "--background", f"z0h002={server}"]
    done = command.run("exec", FABRIC[0], "z0h000", *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    served, bad = re.search(r"(\d+) requests in ([\d.]+)ms", done.stdout), re.search(r"Non-2xx", done.stdout)
    assert served and not bad, done.stdout
    rate_bps = int(served[1]) * 2**20 * 8 / (float(served[2]) / 1e3)
    assert rate_bps == pytest.approx(LINK_BPS * 0.982, rel=0.03), "TCP's payload of full frames"


def test_dask_computes_on_workers_of_two_hosts(command: VirtualCommand) -> None:
    home = installed(DASK)
    (command.here / "client.py").write_text(
        """
import json, sys
import numpy as np
from distributed import Client
with Client("tcp://z0h000:8786", timeout=30) as client:
    client.wait_for_workers(2)
    names = sorted(worker["host"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    far, near = sorted(client.scheduler_info(n_workers=-1)["workers"])
    made = client.submit(np.ones, 2**20, workers=[far], allow_other_workers=False)
    total = client.submit(np.sum, made, workers=[near], allow_other_workers=False)
    print(json.dumps({"hosts": names, "sum": float(total.result())}))
"""
    )
    python = home / "bin" / "python"
    worker = f"{home}/bin/dask worker tcp://z0h000:8786 --nthreads 1 --no-dashboard --no-nanny"
    beside = {"z0h000": f"{home}/bin/dask scheduler --host z0h000 --no-dashboard", "z0h001": worker, "z0h002": worker}
    options = [
        word for host, start in beside.items() for word in ("--background", f"{host}=sh -c 'HOME=/tmp exec {start}'")
    ]
    client = f"sleep 5; HOME=/tmp exec {python} {command.here}/client.py"
    done = command.run("exec", FABRIC[0], "z0h003", *FABRIC[1:], *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    assert json.loads(line) == {"hosts": ["10.0.0.2", "10.0.0.3"], "sum": float(2**20)}


def test_ray_runs_tasks_on_both_of_its_nodes(command: VirtualCommand) -> None:
    home = installed(RAY)
    (command.here / "driver.py").write_text(
        """
import json, socket, time
import ray
@ray.remote(num_cpus=1)
def where():
    time.sleep(0.2)
    return socket.gethostname()
ray.init(address="10.0.0.1:6379", _node_ip_address="10.0.0.1", log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.1)
ray.get([where.remote(), where.remote()])
began = time.monotonic()
names = ray.get([where.remote(), where.remote()])
print(json.dumps({"names": sorted(names), "took_s": time.monotonic() - began}), flush=True)
"""
    )
    start = f"export HOME=/tmp; exec {home}/bin/ray start --num-cpus 1 --disable-usage-stats --block"
    head = f"{start} --head --port 6379 --node-ip-address 10.0.0.1 --include-dashboard=false"
    node = f"sleep 30; {start} --address 10.0.0.1:6379 --node-ip-address 10.0.0.3"
    beside = {"z0h000": head, "z0h002": node}
    options = [word for host, words in beside.items() for word in ("--background", f"{host}=sh -c '{words}'")]
    driver = f"sleep 60; HOME=/tmp exec {home}/bin/python driver.py"
    done = command.run("exec", FABRIC[0], "z0h000", *FABRIC[1:], *options, "--", "sh", "-c", driver)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if '"names"' in line)
    found = json.loads(line)
    assert found["names"] == ["z0h000", "z0h002"]
    assert 0.2 <= found["took_s"] < 0.3, "both at the same time"
