/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets ovs-vswitchd go on after a queue has dropped a frame. Preloaded where packets are switched in userspace.
 *
 * A full queue makes the kernel refuse a frame with ENOBUFS, having counted it as dropped. sendmmsg() then ends early,
 * and Open vSwitch (lib/netdev-linux.c) tries the refused frame a second time, so that one frame is dropped twice or
 * dropped and sent, and on a second refusal throws the rest of its batch away, uncounted and whatever lanes the frames
 * were for. Here a frame that was refused is a frame that was dropped, once, and those behind it get their turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int sendmmsg(int fd, struct mmsghdr *frames, unsigned int count, int flags)
{
    unsigned int done = 0;

    while (done < count) {
        long sent = syscall(SYS_sendmmsg, fd, frames + done, count - done, flags);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != ENOBUFS)
                return done ? (int)done : -1;
            sent = 0;
        }
        done += (unsigned int)sent;
        if (done < count)
            done += 1; /* The kernel stops early only at a frame that it refused. */
    }
    return (int)count;
}
