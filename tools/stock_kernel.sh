#!/bin/sh
# Boots a distribution's own kernel in full emulation (QEMU without KVM), with this machine's files below it, read-only,
# and runs a command in it as root; without one, the checks of tools/stock_kernel_checks.py. Exits with its code.
#
#   tools/stock_kernel.sh [COMMAND ARGUMENT...]
#
# Most users have such a kernel: Open vSwitch's datapath, HTB, netem are modules, and ours, vl, is built and loaded.
# The kernel's packages are fetched and unpacked in the cache; nothing is installed. KERNEL_PACKAGES names others than
# Debian's. What the command writes to /out is found in results/stock-kernel, or in OUT, an absolute path.
set -eu
cd "$(dirname "$0")/.."

project=$PWD
packages=${KERNEL_PACKAGES:-linux-image-amd64 linux-headers-amd64}
limit_s=${LIMIT_S:-3600}
out=${OUT:-$project/results/stock-kernel}
cache=$(.venv/bin/python -c 'from fabric.world import cache; print(cache.own())')/stock-kernel
kernel_package='^linux-(image|modules|headers|kbuild|compiler)-'
# What a kernel of modules needs before it sees its root file system.
first_modules="virtio_pci virtio_rng 9pnet_virtio 9p overlay"

fail() {
    echo "stock-kernel: $*" >&2
    exit 1
}

require_programs() {
    missing=""
    while read -r program package; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" > /dev/null || missing="$missing $package"
    done << END
qemu-system-x86_64 qemu-system-x86
busybox busybox-static
cpio cpio
depmod kmod
apt-get apt
END
    [ -z "$missing" ] || fail "these packages are missing:$missing; apt-get install --no-install-recommends$missing"
    [ "$(uname -m)" = x86_64 ] || fail "this runs an amd64 kernel and its root's programs; this machine is $(uname -m)"
}

# Print the packages that $packages stand for: kernel, modules, headers and what builds against them.
kernel_packages() {
    found=$packages
    for _ in 1 2; do
        found=$(echo $found $(apt-cache depends --important $found | sed -n 's/^ *Depends: //p' | grep -E "$kernel_package"))
    done
    apt-cache show --no-all-versions $found | sed -n 's/^Package: //p' | sort -u
}

# Unpack the kernel's packages below $tree, unless that is done, as on a system whose /lib is /usr/lib.
unpack() {
    wanted=$(kernel_packages)
    [ -n "$wanted" ] || fail "the package lists have none of: $packages; run apt-get update, or set KERNEL_PACKAGES"
    tree=$cache/$(apt-cache show --no-all-versions $wanted | grep -E '^(Package|Version):' | sha256sum | cut -c 1-12)
    [ -d "$tree" ] && return
    echo "stock-kernel: fetching" $wanted
    rm -rf "$tree.part"
    mkdir -p "$tree.part/debs"
    (cd "$tree.part/debs" && apt-get download -q $wanted)
    for package in "$tree.part"/debs/*.deb; do
        dpkg-deb -x "$package" "$tree.part"
    done
    rm -rf "$tree.part/debs"
    if [ -d "$tree.part/lib" ]; then
        mkdir -p "$tree.part/usr/lib"
        cp -al "$tree.part/lib/." "$tree.part/usr/lib/"
        rm -rf "$tree.part/lib"
    fi
    PATH=$PATH:/sbin:/usr/sbin depmod -b "$tree.part/usr" "$(release_in "$tree.part")"
    mv "$tree.part" "$tree"
}

# Print the release of the kernel unpacked below a directory.
release_in() {
    for directory in "$1"/usr/lib/modules/*/kernel; do
        basename "$(dirname "$directory")"
    done | tail -1
}

# Make the initial file system: busybox, the first modules in order, and the script that mounts the root.
make_initrd() {
    initrd=$work/initrd
    mkdir -p "$initrd/bin" "$initrd/modules"
    cp "$(command -v busybox)" "$initrd/bin/busybox"
    cp tools/stock_kernel_init.sh "$initrd/init"
    for module in $first_modules; do
        PATH=$PATH:/sbin:/usr/sbin modprobe -d "$tree/usr" -S "$release" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' > "$work/modules"
    while read -r module; do
        plain=$(basename "$module" | sed 's/\.ko.*/.ko/')
        case $module in
            *.xz) xz -dc "$module" ;;
            *.zst) zstd -dc "$module" ;;
            *) cat "$module" ;;
        esac > "$initrd/modules/$plain"
        echo "$plain" >> "$initrd/modules/order"
    done < "$work/modules"
    (cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd.gz"
}

boot() {
    kernel=$(ls "$tree"/boot/vmlinuz-*)
    append="console=ttyS0 quiet panic=-1 PROJECT=$project"
    timeout "$limit_s" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 4G -no-reboot -nographic -nodefaults \
        -serial stdio -kernel "$kernel" -initrd "$work/initrd.gz" -append "$append" -net none -device virtio-rng-pci \
        -virtfs local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag=machine \
        -virtfs local,path="$tree",security_model=none,readonly=on,multidevs=remap,mount_tag=kernel \
        -virtfs local,path="$out",security_model=none,mount_tag=out < /dev/null ||
        fail "QEMU ended with $? (124: not done after $limit_s s; LIMIT_S sets that)"
}

require_programs
unpack
release=$(release_in "$tree")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_initrd
mkdir -p "$out"
rm -f "$out/exit-code"
[ $# -gt 0 ] || set -- .venv/bin/python tools/stock_kernel_checks.py
printf '%s\0' "$@" > "$out/command"
echo "stock-kernel: booting $release"
boot
[ -s "$out/exit-code" ] || fail "the kernel ended before its command did"
exit "$(cat "$out/exit-code")"
