#!/bin/busybox sh
# The first process of tools/stock_kernel.sh's guest, twice: in the initial file system it mounts the machine's files,
# read-only, below memory, and goes on there; then it runs the command that /out holds. PROJECT, given on the kernel's
# command line, is this project's directory.

mount_root() {
    /bin/busybox --install -s /bin
    mkdir -p /proc /sys /dev /memory /root
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    mount -t devtmpfs dev /dev
    while read -r module; do
        insmod "/modules/$module"
    done < /modules/order
    for share in machine kernel; do
        mkdir "/$share"
        mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro "$share" "/$share"
    done
    mount -t tmpfs memory /memory
    mkdir /memory/files /memory/work
    mount -t overlay -o "lowerdir=/kernel:/machine,upperdir=/memory/files,workdir=/memory/work" root /root
    mkdir -p /root/out
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 out /root/out
    mount -t tmpfs run /root/run
    for directory in dev proc sys; do
        mount --move "/$directory" "/root/$directory"
    done
    exec switch_root /root /bin/sh "$PROJECT/tools/stock_kernel_init.sh" in_root
}

run_command() {
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs shm /dev/shm
    chmod 1777 /dev/shm
    ip link set lo up
    cd "$PROJECT" || exit
    xargs -0 -a /out/command env < /dev/null
    echo $? > /out/exit-code
    sync
    busybox poweroff -f
}

if [ "${1:-}" = in_root ]; then
    run_command
else
    mount_root
fi
