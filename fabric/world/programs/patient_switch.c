/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a pass of ovs-vswitchd's main loop cost what the frames in it cost. Preloaded where packets are switched in
 * userspace.
 *
 * The main thread switches all frames of all bridges. Each of its passes looks at every port, makes room for 32 frames
 * before it looks, asks every management socket for a caller, and polls again: with 160 ports some 400 system calls and
 * 10,000 allocations, for a handful of frames. A pass begins as soon as one frame has come, so that this thread is busy
 * all the time and most of what it does is to look in vain. Hence:
 *
 * - Passes are moderated as interrupts of a NIC are (ethtool's rx-usecs): a pass begins FABRIC_SWITCH_PERIOD_NS after the
 *   one before at the earliest. A frame that comes to an idle switch is passed on at once.
 * - What poll() has just called empty is not asked: the answer would be EAGAIN. What comes meanwhile is there for the
 *   next poll().
 * - Room for frames is kept at hand: to take and to give back a block are a few instructions each. glibc's own cache
 *   (tcache) ends at 1 KiB, whatever its tunables say.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Only the main thread switches; all state here is its own. */
static __thread int is_main __attribute__((tls_model("initial-exec")));

static int64_t period_ns;
static int64_t pass_began_ns;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Which descriptors the last poll() of the main thread called empty: those with its number. */
#define DESCRIPTORS 65536
static uint32_t empty_in[DESCRIPTORS];
static uint32_t polls = 1;

static int is_empty(int fd)
{
    return is_main && fd >= 0 && fd < DESCRIPTORS && empty_in[fd] == polls;
}

static void note_empty(const struct pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; i < count; i++)
        if ((fds[i].events & POLLIN) && !fds[i].revents && fds[i].fd >= 0 && fds[i].fd < DESCRIPTORS)
            empty_in[fds[i].fd] = polls;
}

static void wait_for_next_pass(void)
{
    int64_t left = pass_began_ns + period_ns - now_ns();

    if (left > 0 && left <= period_ns)
        nanosleep(&(struct timespec){.tv_nsec = left}, NULL);
}

static int real_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};

    return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &timeout, NULL, 0);
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int ready;

    if (!is_main)
        return real_poll(fds, count, timeout_ms);
    wait_for_next_pass();
    ready = real_poll(fds, count, timeout_ms);
    pass_began_ns = now_ns();
    if (++polls == 0)
        polls = 1;
    if (ready >= 0)
        note_empty(fds, count);
    return ready;
}

static int nothing_there(void)
{
    errno = EAGAIN;
    return -1;
}

int recvmmsg(int fd, struct mmsghdr *frames, unsigned int count, int flags, struct timespec *timeout)
{
    return is_empty(fd) ? nothing_there() : (int)syscall(SYS_recvmmsg, fd, frames, count, flags, timeout);
}

int accept(int fd, struct sockaddr *from, socklen_t *size)
{
    return is_empty(fd) ? nothing_there() : (int)syscall(SYS_accept4, fd, from, size, 0);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    return is_empty(fd) ? nothing_there() : (ssize_t)syscall(SYS_readv, fd, parts, count);
}

ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    return is_empty(fd) ? nothing_there() : (ssize_t)syscall(SYS_recvfrom, fd, buffer, size, flags, NULL, NULL);
}

/* Room for frames, and what describes them: blocks out of memory of our own, which an address tells from glibc's. The
 * main thread takes and returns them; what another thread returns waits aside, for the main thread to take back. */
#define BLOCKS 4096
#define SMALLEST 513 /* Below, glibc is fast enough. */

struct block {
    struct block *next;
};

struct pool {
    size_t largest;
    size_t stride; /* No power of two, or all blocks would want the same places of the processor's cache. */
    char *start;
    void *unused[BLOCKS]; /* A stack beside the blocks: one that is taken and given back is not touched by that. */
    size_t unused_count;
    size_t untouched;
    _Atomic(struct block *) returned;
};

static struct pool pools[] = {{.largest = 1024, .stride = 1024 + 64}, {.largest = 16384, .stride = 16384 + 64}};
#define POOLS (sizeof(pools) / sizeof(*pools))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static void make_pools(void)
{
    for (struct pool *pool = pools; pool < pools + POOLS; pool++) {
        int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *start = mmap(NULL, BLOCKS * pool->stride, protection, flags, -1, 0);

        if (start == MAP_FAILED)
            continue;
        pool->start = start;
        pool->untouched = BLOCKS;
    }
}

static struct pool *pool_for(size_t size)
{
    if (size < SMALLEST || size > pools[POOLS - 1].largest)
        return NULL;
    return size <= pools[0].largest ? &pools[0] : &pools[1];
}

static struct pool *pool_of(const void *memory)
{
    for (struct pool *pool = pools; pool < pools + POOLS; pool++)
        if (pool->start && (uintptr_t)memory - (uintptr_t)pool->start < BLOCKS * pool->stride)
            return pool;
    return NULL;
}

static void *take(struct pool *pool)
{
    struct block *returned;

    if (pool->unused_count)
        return pool->unused[--pool->unused_count];
    if (pool->untouched)
        return pool->start + --pool->untouched * pool->stride;
    returned = atomic_exchange(&pool->returned, NULL);
    for (; returned; returned = returned->next)
        pool->unused[pool->unused_count++] = returned;
    return pool->unused_count ? pool->unused[--pool->unused_count] : NULL;
}

static void give_back(struct pool *pool, struct block *block)
{
    if (is_main) {
        pool->unused[pool->unused_count++] = block;
        return;
    }
    block->next = atomic_load(&pool->returned);
    while (!atomic_compare_exchange_weak(&pool->returned, &block->next, block))
        ;
}

void *malloc(size_t size)
{
    struct pool *pool = is_main ? pool_for(size) : NULL;
    void *found = pool ? take(pool) : NULL;

    return found ? found : __libc_malloc(size);
}

void free(void *memory)
{
    struct pool *pool = pool_of(memory);

    if (pool)
        give_back(pool, memory);
    else
        __libc_free(memory);
}

/* glibc's calloc() does not take from what free() has kept at hand (tcache). */
void *calloc(size_t count, size_t size)
{
    size_t bytes = count * size;
    void *found;

    if (!is_main || bytes >= SMALLEST || (size && bytes / size != count))
        return __libc_calloc(count, size);
    found = __libc_malloc(bytes);
    return found ? memset(found, 0, bytes) : NULL;
}

void *realloc(void *memory, size_t size)
{
    struct pool *pool = pool_of(memory);
    void *moved;

    if (!pool)
        return __libc_realloc(memory, size);
    if (size && size <= pool->largest)
        return memory;
    moved = size ? __libc_malloc(size) : NULL;
    if (moved)
        memcpy(moved, memory, pool->largest);
    if (moved || !size)
        give_back(pool, memory);
    return moved;
}

__attribute__((constructor)) static void begin(void)
{
    const char *period = getenv("FABRIC_SWITCH_PERIOD_NS");


    make_pools();
    period_ns = period ? atoll(period) : 0;
    is_main = 1;
}
