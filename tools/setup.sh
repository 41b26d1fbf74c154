#!/bin/sh
# Installs what the project needs and says what it changed: system packages (as root) and .venv with pinned versions.
# Does nothing when nothing changed. With "virtual", also what builds the kernel of the virtual engine; with "test", that
# and what tests of sweeps run on, Slurm and Ray, what builds the site, the store etcd, fio, Open MPI and perftest, the
# browser that tests of pages drive, and a compiler for BPF programs.
#
#   tools/setup.sh [virtual | test]
#
# Of system packages only missing ones are installed. A service that comes with them is neither started nor enabled:
# each run starts an Open vSwitch of its own. The venv is of the distribution's Python and has none of the distribution's
# packages, whose versions differ; Mininet is found without (fabric/emulation/mininet_place.py).
set -eu
cd "$(dirname "$0")/.."

packages="mininet openvswitch-switch iproute2 iputils-ping iperf3 tcpdump util-linux procps gcc libc6-dev
    python3-venv python3-pip"
virtual_packages="build-essential flex bison bc xz-utils bzip2"
test_packages="pdsh slurmctld slurmd slurm-client munge zsh etcd-server fio openmpi-bin libopenmpi-dev perftest
    ibverbs-providers libibverbs-dev"
browser_packages="chromium chromium-driver"
bpf_packages="clang libbpf-dev"
stamp=.venv/.installed
python=/usr/bin/python3
services_policy=/usr/sbin/policy-rc.d
services_policy_mark="Made by tools/setup.sh of ai-fabric-emulator for as long as it installs packages; else remove it."

case "${1:-}" in
    "") ;;
    virtual) packages="$packages $virtual_packages" ;;
    test)
        packages="$packages $virtual_packages $test_packages"
        # Ubuntu has Chromium only as a snap: there, tests of pages say that they skip.
        ! grep -qx ID=debian /etc/os-release || packages="$packages $browser_packages"
        # For BPF programs in C, which a kernel takes that describes its types.
        [ ! -e /sys/kernel/btf/vmlinux ] || packages="$packages $bpf_packages"
        ;;
    *) echo "setup: $1: unknown; write tools/setup.sh, tools/setup.sh virtual or tools/setup.sh test" >&2 && exit 2 ;;
esac

missing_packages() {
    installed=$(dpkg-query -W -f='${Package} ${Status}\n' $packages 2> /dev/null | sed -n 's/ install ok installed$//p')
    for package in $packages; do
        echo "$installed" | grep -qx "$package" || echo "$package"
    done
    # The source of the virtual engine's kernel; those that the tests run on: README. Ubuntu has it in a directory of its own.
    if [ -n "${1:-}" ] && ! ls /usr/src/linux-source-*.tar.* /usr/src/*/linux-source-*.tar.* 2> /dev/null | grep -q .
    then
        echo linux-source
    fi
}

# Print what starts with the machine: systemd's units, and scripts by name.
enabled_services() {
    find /etc/systemd/system -path '*.wants/*' \( -name '*.service' -o -name '*.socket' \) 2> /dev/null | sed 's|.*/||'
    find /etc/rc[2-5].d -name 'S*' 2> /dev/null | sed 's|.*/S[0-9]*||'
}

# Install packages without letting their services start. Maintainers' scripts ask policy-rc.d whether they may.
install_quietly() {
    if [ ! -e "$services_policy" ] || grep -q "$services_policy_mark" "$services_policy"; then
        trap 'rm -f "$services_policy"' EXIT
        trap 'exit 1' INT TERM
        printf '#!/bin/sh\n# %s\nexit 101\n' "$services_policy_mark" > "$services_policy"
        chmod 755 "$services_policy"
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get install -q -y --no-upgrade --no-install-recommends "$@"
}

# Disable what installing has enabled, and say so.
disable_new_services() {
    enabled_services | sort -u > "$work/services-after"
    for service in $(comm -13 "$work/services-before" "$work/services-after"); do
        case $service in
            *.service | *.socket) disable_unit "$service" ;;
            *) update-rc.d "$service" disable ;;
        esac
        echo "setup: $service came along; it is neither started nor enabled"
    done
}

disable_unit() {
    if command -v systemctl > /dev/null; then
        systemctl --quiet disable "$1"
    else
        DPKG_MAINTSCRIPT_PACKAGE=${1%.*} deb-systemd-helper disable "$1" # It wants to be told of a package.
    fi
}

list_packages() {
    dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Version}\n' | sed -n 's/^ii *//p' | sort
}

# Say which packages are there that were not, and which are of another version.
report_packages() {
    list_packages > "$work/after"
    comm -13 "$work/before" "$work/after" | while read -r package version; do
        was=$(sed -n "s/^$package //p" "$work/before")
        echo "$package $version${was:+ (was $was)}"
    done > "$work/changed"
    new=$(grep -vc '(was ' "$work/changed" || true)
    echo "setup: installed $new packages:" $(sed -n '/(was /!s/ .*//p' "$work/changed")
    if grep -q '(was ' "$work/changed"; then
        echo "setup: what they need in another version than was there:"
        grep '(was ' "$work/changed"
    fi
}

install_packages() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: these packages are missing and installing them needs root:" "$@" >&2
        echo "setup: run '${called_as}' as root once, e.g. with sudo" >&2
        exit 1
    fi
    echo "setup: installing" "$@"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    list_packages > "$work/before"
    enabled_services | sort -u > "$work/services-before"
    (install_quietly "$@")
    report_packages
    disable_new_services
}

install() {
    .venv/bin/pip install -q --disable-pip-version-check "$@"
}

# Make .venv, with the extras of pyproject.toml that are named.
make_venv() {
    echo "setup: making .venv"
    rm -rf .venv
    $python -m venv .venv
    # Ryu 4.34 builds with no newer setuptools than this, which builds by wheel; without isolation, what is in the venv is
    # what builds it. Later wheels have no bdist_wheel any more.
    install -c constraints.txt wheel pbr
    install setuptools==66.1.1 # After pbr, which from Python 3.12 on brings a newer one.
    install -c constraints.txt --no-build-isolation --no-deps ryu
    install -c constraints.txt setuptools # A newer one: ours needs it, and what Ryu needs is built.
    install -c constraints.txt --no-build-isolation -e ".[ryu,$1]"
    echo "$wanted" > "$stamp"
}

# Ray comes with 35 more packages, which only sweeps on a cluster need; Sphinx with 20, for the site; a notebook's kernel
# with 30.
install_for_tests() {
    echo "setup: installing Ray, Sphinx and a kernel of notebooks"
    install -c constraints.txt --no-build-isolation -e '.[ray,docs,notebooks]'
}

called_as="tools/setup.sh${1:+ $1}"
missing=$(missing_packages "${1:-}")
[ -z "$missing" ] || install_packages $missing

# What .venv hangs on: versions, the Python it is of, and how it is made.
wanted=$({ cat pyproject.toml constraints.txt; $python -V; sed -n '/^make_venv/,/^}/p' tools/setup.sh; } | sha256sum)
extras=dev
[ "${1:-}" != test ] || extras=dev,ray,docs,notebooks # At once: each call of pip looks at all packages.
[ -f "$stamp" ] && [ "$(cat $stamp)" = "$wanted" ] || make_venv "$extras"
[ "${1:-}" != test ] || .venv/bin/python -c "import ray, furo, myst_parser, sphinx, nbclient, ipykernel" 2> /dev/null || install_for_tests
