#!/bin/sh
# Installs what the project needs: system packages (as root) and .venv with pinned versions. Does nothing when nothing
# changed. The venv is made from the distribution's Python, which is where its mininet package puts its module.
set -eu
cd "$(dirname "$0")/.."

packages="mininet openvswitch-switch iproute2 iputils-ping iperf3 tcpdump util-linux procps gcc libc6-dev
    python3-venv python3-pip build-essential flex bison bc xz-utils bzip2"
stamp=.venv/.installed
python=/usr/bin/python3

missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
# The source of the virtual engine's kernel; any version will do. Ubuntu has it in a directory of its own.
ls /usr/src/linux-source-*.tar.* /usr/src/*/linux-source-*.tar.* 2> /dev/null | grep -q . || missing="$missing linux-source"
if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: these packages are missing and installing them needs root:$missing" >&2
        echo "setup: run 'sudo make setup' once" >&2
        exit 1
    fi
    echo "setup: installing$missing"
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

wanted=$(cat pyproject.toml constraints.txt tools/setup.sh | sha256sum)
[ -f "$stamp" ] && [ "$(cat $stamp)" = "$wanted" ] && exit 0

echo "setup: making .venv"
rm -rf .venv
$python -m venv --system-site-packages .venv
# Ryu 4.34 builds with no newer setuptools than this; without isolation, what is in the venv is what builds it.
.venv/bin/pip install -q --disable-pip-version-check -c constraints.txt setuptools==66.1.1 wheel pbr
.venv/bin/pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
echo "$wanted" > "$stamp"
