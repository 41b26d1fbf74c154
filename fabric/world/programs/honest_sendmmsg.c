/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets ovs-vswitchd go on after a port has not taken a frame. Preloaded where packets are switched in userspace.
 *
 * A full queue makes the kernel refuse a frame with ENOBUFS, having counted it as dropped. sendmmsg() then ends early,
 * and Open vSwitch (lib/netdev-linux.c) tries the refused frame a second time, so that one frame is dropped twice or
 * dropped and sent, and on a second refusal throws the rest of its batch away, uncounted and whatever lanes the frames
 * were for. Here a frame that was refused is a frame that was dropped, once, and those behind it get their turn.
 *
 * A port that is down refuses with ENETDOWN (ENXIO, if it has gone) and counts nothing. Such frames are counted here, in
 * the file that FABRIC_DEAD_PORT_FRAMES names: a 64-bit number for each interface index.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t *dead_port_frames;
static uint64_t interfaces;

__attribute__((constructor)) static void map_counters(void)
{
    const char *path = getenv("FABRIC_DEAD_PORT_FRAMES");
    struct stat found;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    if (fstat(fd, &found) == 0) {
        void *mapped = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) {
            dead_port_frames = mapped;
            interfaces = (uint64_t)found.st_size / sizeof(*dead_port_frames);
        }
    }
    close(fd);
}

static void count_dead(const struct mmsghdr *frame)
{
    const struct sockaddr_ll *to = frame->msg_hdr.msg_name;

    if (to && to->sll_ifindex >= 0 && (uint64_t)to->sll_ifindex < interfaces)
        __atomic_fetch_add(&dead_port_frames[to->sll_ifindex], 1, __ATOMIC_RELAXED);
}

int sendmmsg(int fd, struct mmsghdr *frames, unsigned int count, int flags)
{
    unsigned int done = 0;

    while (done < count) {
        long sent = syscall(SYS_sendmmsg, fd, frames + done, count - done, flags);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno == ENETDOWN || errno == ENXIO)
                count_dead(frames + done);
            else if (errno != ENOBUFS)
                return done ? (int)done : -1;
            sent = 0;
        }
        done += (unsigned int)sent;
        if (done < count)
            done += 1; /* The kernel stops early only at a frame that it refused. */
    }
    return (int)count;
}
