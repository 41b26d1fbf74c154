/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes down what a program's threads send and receive over IPv4 connections, when, and how long they were busy in
 * between: recording.py reads it. Preloaded (LD_PRELOAD), so a program that is linked statically is not reached, nor is
 * one that makes system calls without the C library (Go, io_uring) or reads sockets through stdio.
 *
 * A process has one file of records of equal size in the directory FABRIC_RECORD. The file is mapped: a record costs
 * some stores and no system call, and what was written is there however the process ends. Calls that follow each other
 * at once are one record.
 *
 * A thread is busy while it is in none of the calls below: between their ends and begins. Polls in vain that follow
 * each other closely are a wait, as is the time until a poll succeeds or another thread signals.
 *
 * Time in a guest is read from the page that its kernel shares with programs, without being counted as a reading: who
 * reads the clock between messages is taken for a load generator, and sends more slowly. No time passes there while a
 * program runs, so the moment at which the kernel let it go on is now.
 */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3143455242414600ULL /* "\0FABREC1" */
#define HEAD_BYTES 4096
#define FILE_BYTES (1ULL << 30) /* Sparse: what is not written takes no room. */
#define MOST_RECORDS ((FILE_BYTES - HEAD_BYTES) / sizeof(struct record))
#define DESCRIPTORS 65536
#define SLOTS 1024

#define AT_ONCE_NS 1000ULL	/* Calls closer than that are one record; a wait shorter than that is none. */
#define MERGED_NS 1000000ULL	/* The longest that a record of several calls lasts. */
#define POLLING_NS 50000ULL	/* A longer time between two polls in vain is computing. */

enum kind { SENT = 1, RECEIVED, CONNECTED, WOKEN };
enum flag { DOES_NOT_BLOCK = 1, IS_SIGNALLED = 2 };
/* What a descriptor is; from CONNECTION on, its connection's number is behind. */
enum what { UNKNOWN, PLAIN, WAITED_FOR, LOCAL, DATAGRAMS, CONNECTION };

struct record {
	uint64_t started_ns, ended_ns;
	uint64_t bytes;		/* CONNECTED: local address << 16 | port. WOKEN: when the other thread signalled. */
	uint64_t wanted;	/* CONNECTED: remote one. WOKEN: how long that thread was busy since its last record. */
	uint64_t busy_ns;	/* since this thread's last record, until it began to wait */
	uint64_t busy_then_ns;	/* after that wait */
	uint32_t connection;	/* its number in this process. CONNECTED: and `busy_ns` is its inode */
	uint16_t thread;
	uint8_t kind, flags;
	uint64_t other;		/* WOKEN: number of the thread that signalled */
};
_Static_assert(sizeof(struct record) == 64, "recording.py reads records of 64 bytes");

struct head {
	uint64_t magic;
	int32_t process;
	_Atomic uint32_t connections, threads, beyond;
	_Atomic uint64_t records, lost;
	_Atomic uint64_t datagram_bytes, local_bytes;
	char host[72], ranks[512], command[512];
};
_Static_assert(sizeof(struct head) <= HEAD_BYTES, "the records begin behind the head");

struct slot { /* Who signalled something last. */
	_Atomic uintptr_t what;
	_Atomic uint64_t at_ns, busy_ns;
	_Atomic uint32_t thread;
};

static struct head *_Atomic head;
static struct record *records;
static atomic_flag making = ATOMIC_FLAG_INIT;
static bool is_off;
static _Atomic uint32_t what_is[DESCRIPTORS];
static _Atomic uint8_t does_not_block[DESCRIPTORS];
static _Atomic uint64_t inodes[DESCRIPTORS]; /* of this process' connections, by their numbers */
static struct slot slots[SLOTS];
static const volatile uint64_t *clock_page;
static _Atomic unsigned int generation = 1;

struct thread {
	unsigned int generation;
	uint32_t number;		/* from 1 on */
	uint64_t left_ns;		/* when its last call ended */
	uint64_t busy_ns, busy_then_ns;	/* before and after its last successful wait */
	uint64_t vain_ns, vain_since_ns;/* spent in polls in vain */
	uint64_t wait_from_ns, wait_to_ns;
	uint64_t index;			/* its last record's, plus 1 */
	bool in_vain, has_waited;
};
static _Thread_local struct thread me __attribute__((tls_model("initial-exec")));

#define NEXT(name) ({									\
	static __typeof__(&name) next;							\
	if (!next)									\
		next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);			\
	next;										\
})
/* The C library has an older one of that name, too, which is what dlsym finds. */
#define NEXT_OF(version, name) ({							\
	static __typeof__(&name) next;							\
	if (!next)									\
		next = (__typeof__(&name))dlvsym(RTLD_NEXT, #name, version);		\
	if (!next)									\
		next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);			\
	next;										\
})

/* -- time ---------------------------------------------------------------------------------------------------------- */

static uint64_t now(void)
{
	struct timespec time;

	if (clock_page)
		return clock_page[0];
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* Look for a guest's clock, in the page below that of the vDSO. */
static void find_clock(void)
{
	unsigned long page = getauxval(AT_SYSINFO_EHDR) - 4096, from;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	if (!maps)
		return;
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[clock]") && sscanf(line, "%lx", &from) == 1 && from == page)
			clock_page = (const volatile uint64_t *)page;
	fclose(maps);
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static void forget_all(void)
{
	atomic_store(&head, NULL);
	records = NULL;
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		atomic_store_explicit(&what_is[fd], UNKNOWN, memory_order_relaxed);
	memset(slots, 0, sizeof(slots));
	atomic_fetch_add(&generation, 1);
	atomic_flag_clear(&making);
}

__attribute__((constructor)) static void begin(void)
{
	find_clock();
	me.generation = atomic_load(&generation);
	me.left_ns = now(); /* The first thread is busy from now on. */
	pthread_atfork(NULL, NULL, forget_all); /* What a child does is in a file of its own. */
}

static void describe(struct head *made)
{
	static const char *const names[] = {
		"FABRIC_HOST", "RANK", "GROUP_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
	};
	size_t length = 0;
	int fd = NEXT(open)("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	made->process = getpid();
	gethostname(made->host, sizeof(made->host) - 1);
	for (size_t name = 0; name < sizeof(names) / sizeof(*names); name++)
		if (getenv(names[name]) && length < sizeof(made->ranks))
			length += snprintf(made->ranks + length, sizeof(made->ranks) - length, "%s=%.60s\n", names[name],
					   getenv(names[name]));
	if (fd < 0)
		return;
	if (NEXT(read)(fd, made->command, sizeof(made->command) - 1) < 0)
		made->command[0] = '\0';
	NEXT(close)(fd);
}

/* Another process of this number may have had a file, before it became this one (exec) or ended. */
static int new_file(const char *directory)
{
	char path[4096];
	int fd = -1;

	for (int turn = 0; fd < 0 && turn < 100000; turn++) {
		snprintf(path, sizeof(path), "%s/%d-%d.records", directory, getpid(), turn);
		fd = NEXT(open)(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	return fd;
}

static struct head *make_file(void)
{
	const char *directory = getenv("FABRIC_RECORD");
	int fd = directory ? new_file(directory) : -1;
	struct head *made = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, FILE_BYTES) == 0)
		made = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (fd >= 0)
		NEXT(close)(fd);
	if (made == MAP_FAILED) {
		is_off = true;
		if (directory)
			dprintf(2, "fabric exec --record: process %d is not recorded: no file in %s: %s\n", getpid(), directory,
				strerror(errno));
		return NULL;
	}
	describe(made);
	records = (struct record *)((char *)made + HEAD_BYTES);
	made->magic = MAGIC;
	return made;
}

static struct head *file(void)
{
	struct head *made = atomic_load(&head);
	int before = errno;

	if (made || is_off)
		return made;
	while (atomic_flag_test_and_set(&making))
		NEXT(sched_yield)();
	made = atomic_load(&head);
	if (!made && !is_off) {
		made = make_file();
		atomic_store(&head, made);
	}
	atomic_flag_clear(&making);
	errno = before;
	return made;
}

static struct record *new_record(struct head *made)
{
	uint64_t index = atomic_fetch_add(&made->records, 1);

	if (index >= MOST_RECORDS) {
		atomic_fetch_add(&made->lost, 1);
		return NULL;
	}
	me.index = index + 1;
	return &records[index];
}

/* -- what a thread does -------------------------------------------------------------------------------------------- */

static void know_thread(void)
{
	if (me.generation != atomic_load_explicit(&generation, memory_order_relaxed)) {
		memset(&me, 0, sizeof(me));
		me.generation = atomic_load(&generation);
	}
}

/* A call begins: what was since the last one was busy, or polling. */
static uint64_t enter(void)
{
	uint64_t at = now(), since;

	know_thread();
	since = me.left_ns ? at - me.left_ns : 0;
	if (me.in_vain && since < POLLING_NS)
		me.vain_ns += since;
	else
		me.busy_then_ns += since;
	return at;
}

static void leave(uint64_t at)
{
	me.left_ns = at;
}

/* A wait has ended since what was waited for has come. */
static void has_waited(uint64_t from, uint64_t to)
{
	if (me.in_vain)
		from = me.vain_since_ns;
	me.in_vain = false;
	me.vain_ns = 0;
	if (to - from < AT_ONCE_NS)
		return;
	if (!me.has_waited)
		me.wait_from_ns = from;
	me.has_waited = true;
	me.wait_to_ns = to;
	me.busy_ns += me.busy_then_ns;
	me.busy_then_ns = 0;
}

static void looked_in_vain(uint64_t from, uint64_t to)
{
	if (!me.in_vain)
		me.vain_since_ns = from;
	me.in_vain = true;
	me.vain_ns += to - from;
}

static void begin_again(void)
{
	me.busy_ns = me.busy_then_ns = me.vain_ns = 0;
	me.in_vain = me.has_waited = false;
}

static uint16_t number_of_thread(struct head *made)
{
	if (!me.number)
		me.number = atomic_fetch_add(&made->threads, 1) + 1;
	return me.number;
}

/* Write that this thread went on after a wait, for the one that signalled `slot`, if that is known. */
static void write_woken(struct head *made, const struct slot *slot)
{
	struct record *record = new_record(made);

	if (!record)
		return;
	record->started_ns = me.wait_from_ns;
	record->ended_ns = me.wait_to_ns;
	record->busy_ns = me.busy_ns;
	record->thread = number_of_thread(made);
	if (slot) {
		record->flags = IS_SIGNALLED;
		record->bytes = atomic_load(&slot->at_ns);
		record->wanted = atomic_load(&slot->busy_ns);
		record->other = atomic_load(&slot->thread);
	}
	atomic_thread_fence(memory_order_release);
	record->kind = WOKEN;
	me.busy_ns = 0;
	me.has_waited = false;
}

static bool is_one_with(const struct record *last, uint32_t connection, enum kind kind, uint64_t from, uint64_t to)
{
	return last->kind == kind && last->connection == connection && from - last->ended_ns < AT_ONCE_NS &&
	       !me.has_waited && to - last->started_ns < MERGED_NS && (kind == RECEIVED || last->bytes == last->wanted) &&
	       (kind == SENT || to - from < AT_ONCE_NS) && me.busy_ns + me.busy_then_ns + me.vain_ns < AT_ONCE_NS;
}

static void write_moved(uint32_t connection, enum kind kind, uint64_t from, uint64_t to, uint64_t bytes,
			uint64_t wanted, bool blocks)
{
	struct head *made = file();
	struct record *record;

	if (!made)
		return;
	if (me.index && me.index == atomic_load(&made->records) &&
	    is_one_with(&records[me.index - 1], connection, kind, from, to)) {
		record = &records[me.index - 1];
		record->ended_ns = to;
		record->bytes += bytes;
		record->wanted += wanted;
		return;
	}
	if (kind == SENT && me.has_waited)
		write_woken(made, NULL);
	record = new_record(made);
	if (!record)
		return;
	record->started_ns = from;
	record->ended_ns = to;
	record->bytes = bytes;
	record->wanted = wanted;
	/* What came was waited for until it came. A poll that ended by its time was a pause, if nothing came. */
	record->busy_ns = me.has_waited ? me.busy_ns : me.busy_ns + me.busy_then_ns + (kind == SENT ? me.vain_ns : 0);
	record->busy_then_ns = me.has_waited ? me.busy_then_ns : 0;
	record->connection = connection;
	record->thread = number_of_thread(made);
	record->flags = blocks ? 0 : DOES_NOT_BLOCK;
	atomic_thread_fence(memory_order_release);
	record->kind = kind;
	begin_again();
}

/* -- what a descriptor is ------------------------------------------------------------------------------------------ */

/* Return an IPv4 address and its port, 0 for another one. */
static uint64_t packed(const struct sockaddr_storage *address)
{
	const struct sockaddr_in6 *six = (const void *)address;
	const struct sockaddr_in *four = (const void *)address;
	uint32_t last;

	if (address->ss_family == AF_INET)
		return (uint64_t)ntohl(four->sin_addr.s_addr) << 16 | ntohs(four->sin_port);
	if (address->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return 0;
	memcpy(&last, &six->sin6_addr.s6_addr[12], sizeof(last));
	return (uint64_t)ntohl(last) << 16 | ntohs(six->sin6_port);
}

static uint32_t connection_of(uint64_t inode, uint64_t local, uint64_t remote)
{
	struct head *made = file();
	struct record *record;
	uint32_t count, number;

	if (!made)
		return PLAIN;
	count = atomic_load(&made->connections);
	for (number = 0; number < count && number < DESCRIPTORS; number++)
		if (atomic_load(&inodes[number]) == inode) /* By another descriptor. */
			return CONNECTION + number;
	number = atomic_fetch_add(&made->connections, 1);
	if (number < DESCRIPTORS)
		atomic_store(&inodes[number], inode);
	record = new_record(made);
	if (!record)
		return PLAIN;
	record->started_ns = record->ended_ns = now();
	record->bytes = local;
	record->wanted = remote;
	record->busy_ns = inode;
	record->connection = number;
	record->thread = number_of_thread(made);
	atomic_thread_fence(memory_order_release);
	record->kind = CONNECTED;
	return CONNECTION + number;
}

static uint32_t socket_kind(int fd, uint64_t inode)
{
	struct sockaddr_storage local, remote;
	socklen_t of_local = sizeof(local), of_remote = sizeof(remote), of_type = sizeof(int);
	uint64_t here, there;
	int type = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &of_type) || getsockname(fd, (void *)&local, &of_local))
		return UNKNOWN;
	if (local.ss_family != AF_INET && local.ss_family != AF_INET6)
		return WAITED_FOR;
	if (type != SOCK_STREAM)
		return DATAGRAMS;
	if (getpeername(fd, (void *)&remote, &of_remote))
		return UNKNOWN; /* It may be connected later. */
	here = packed(&local);
	there = packed(&remote);
	if (here >> 16 == there >> 16)
		return LOCAL;
	return connection_of(inode, here, there);
}

static uint32_t know(int fd)
{
	struct stat status;
	uint32_t what = UNKNOWN;
	int before = errno;

	if (is_off)
		return PLAIN;
	if (fd < 0 || fd >= DESCRIPTORS) {
		if (fd >= 0 && file())
			atomic_fetch_add(&file()->beyond, 1);
		return PLAIN;
	}
	what = atomic_load_explicit(&what_is[fd], memory_order_relaxed);
	if (what != UNKNOWN)
		return what;
	if (fstat(fd, &status) == 0) {
		if (S_ISSOCK(status.st_mode))
			what = socket_kind(fd, status.st_ino);
		else
			what = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode) ||
					       S_ISCHR(status.st_mode)
				       ? PLAIN
				       : WAITED_FOR;
	}
	if (what >= CONNECTION)
		does_not_block[fd] = (NEXT(fcntl)(fd, F_GETFL) & O_NONBLOCK) != 0;
	atomic_store(&what_is[fd], what);
	errno = before;
	return what;
}

static void forget(int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS)
		atomic_store_explicit(&what_is[fd], UNKNOWN, memory_order_relaxed);
}

/* -- calls that move bytes ----------------------------------------------------------------------------------------- */

static void sent(uint32_t what, int fd, uint64_t from, ssize_t result, uint64_t wanted, int flags)
{
	uint64_t to = now();
	bool is_refused = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);

	if (what >= CONNECTION && (result > 0 || (is_refused && wanted)))
		write_moved(what - CONNECTION, SENT, from, to, result > 0 ? result : 0, wanted,
			    !(does_not_block[fd] || flags & MSG_DONTWAIT));
	else if (result > 0 && what == DATAGRAMS && file())
		atomic_fetch_add(&file()->datagram_bytes, result);
	else if (result > 0 && what == LOCAL && file())
		atomic_fetch_add(&file()->local_bytes, result);
	leave(to);
}

static void received(uint32_t what, uint64_t from, ssize_t result, int flags)
{
	uint64_t to = now();

	if (flags & MSG_ERRQUEUE)
		;
	else if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		looked_in_vain(from, to);
	else if (what >= CONNECTION && result > 0 && !(flags & MSG_PEEK))
		write_moved(what - CONNECTION, RECEIVED, from, to, result, result, true);
	else if (result >= 0)
		has_waited(from, to);
	leave(to);
}

static uint64_t length_of(const struct iovec *parts, int count)
{
	uint64_t length = 0;

	for (int part = 0; part < count; part++)
		length += parts[part].iov_len;
	return length;
}

#define SENDING(call, fd, wanted, flags) ({						\
	uint32_t what = know(fd);							\
	uint64_t from;									\
	ssize_t result;									\
	if (what == UNKNOWN)								\
		what = PLAIN;								\
	from = what == PLAIN || what == WAITED_FOR ? 0 : enter();			\
	result = (call);								\
	if (from)									\
		sent(what, fd, from, result, wanted, flags);				\
	result;										\
})
#define RECEIVING(call, fd, flags) ({							\
	uint32_t what = know(fd);							\
	uint64_t from;									\
	ssize_t result;									\
	from = what == PLAIN || what == UNKNOWN ? 0 : enter();				\
	result = (call);								\
	if (from)									\
		received(what, from, result, flags);					\
	result;										\
})

ssize_t write(int fd, const void *data, size_t size) { return SENDING(NEXT(write)(fd, data, size), fd, size, 0); }

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	return SENDING(NEXT(writev)(fd, parts, count), fd, length_of(parts, count), 0);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return SENDING(NEXT(send)(fd, data, size, flags), fd, size, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
	return SENDING(NEXT(sendto)(fd, data, size, flags, to, length), fd, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return SENDING(NEXT(sendmsg)(fd, message, flags), fd, length_of(message->msg_iov, message->msg_iovlen), flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	uint32_t what = know(fd);
	uint64_t from, wanted = 0;
	int64_t bytes = 0;
	int result;

	if (what == PLAIN || what == UNKNOWN || what == WAITED_FOR)
		return NEXT(sendmmsg)(fd, messages, count, flags);
	from = enter();
	result = NEXT(sendmmsg)(fd, messages, count, flags);
	for (unsigned int one = 0; one < count; one++) {
		wanted += length_of(messages[one].msg_hdr.msg_iov, messages[one].msg_hdr.msg_iovlen);
		bytes += (int)one < result ? messages[one].msg_len : 0;
	}
	sent(what, fd, from, result < 0 ? result : bytes, wanted, flags);
	return result;
}

ssize_t sendfile(int to, int fd, off_t *offset, size_t size)
{
	return SENDING(NEXT(sendfile)(to, fd, offset, size), to, size, 0);
}

ssize_t sendfile64(int to, int fd, off64_t *offset, size_t size)
{
	return SENDING(NEXT(sendfile64)(to, fd, offset, size), to, size, 0);
}

ssize_t read(int fd, void *data, size_t size) { return RECEIVING(NEXT(read)(fd, data, size), fd, 0); }

ssize_t readv(int fd, const struct iovec *parts, int count)
{
	return RECEIVING(NEXT(readv)(fd, parts, count), fd, 0);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
	return RECEIVING(NEXT(recv)(fd, data, size, flags), fd, flags);
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from_whom, socklen_t *length)
{
	return RECEIVING(NEXT(recvfrom)(fd, data, size, flags, from_whom, length), fd, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	return RECEIVING(NEXT(recvmsg)(fd, message, flags), fd, flags);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
	uint32_t what = know(fd);
	uint64_t from;
	int64_t bytes = 0;
	int result;

	if (what == PLAIN || what == UNKNOWN)
		return NEXT(recvmmsg)(fd, messages, count, flags, timeout);
	from = enter();
	result = NEXT(recvmmsg)(fd, messages, count, flags, timeout);
	for (int one = 0; one < result; one++)
		bytes += messages[one].msg_len;
	received(what, from, result < 0 ? result : bytes, flags);
	return result;
}

/* What a program calls that was compiled with checks of its buffers. */
ssize_t __read_chk(int fd, void *data, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags, struct sockaddr *whom,
		       socklen_t *length);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

ssize_t __read_chk(int fd, void *data, size_t size, size_t room)
{
	return RECEIVING(NEXT(__read_chk)(fd, data, size, room), fd, 0);
}

ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags)
{
	return RECEIVING(NEXT(__recv_chk)(fd, data, size, room, flags), fd, flags);
}

ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags, struct sockaddr *whom,
		       socklen_t *length)
{
	return RECEIVING(NEXT(__recvfrom_chk)(fd, data, size, room, flags, whom, length), fd, flags);
}

/* -- calls that wait ----------------------------------------------------------------------------------------------- */

/* A poll of nothing is a pause, and so is not told. */
#define POLLING(call, of_something) ({							\
	bool counts = (of_something) && !is_off;					\
	uint64_t from = counts ? enter() : 0, to;					\
	int result = (call);								\
	if (counts) {									\
		to = now();								\
		if (result > 0)								\
			has_waited(from, to);						\
		else									\
			looked_in_vain(from, to);					\
		leave(to);								\
	}										\
	result;										\
})

int poll(struct pollfd *fds, nfds_t count, int timeout) { return POLLING(NEXT(poll)(fds, count, timeout), count > 0); }

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
	return POLLING(NEXT(__poll_chk)(fds, count, timeout, room), count > 0);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	return POLLING(NEXT(ppoll)(fds, count, timeout, mask), count > 0);
}

int select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout)
{
	return POLLING(NEXT(select)(count, readable, writable, exceptional, timeout), readable || writable || exceptional);
}

int pselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout,
	    const sigset_t *mask)
{
	return POLLING(NEXT(pselect)(count, readable, writable, exceptional, timeout, mask),
		       readable || writable || exceptional);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	return POLLING(NEXT(epoll_wait)(fd, events, most, timeout), true);
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
	return POLLING(NEXT(epoll_pwait)(fd, events, most, timeout, mask), true);
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *mask)
{
	return POLLING(NEXT(epoll_pwait2)(fd, events, most, timeout, mask), true);
}

int sched_yield(void)
{
	uint64_t from = enter(), to;
	int result = NEXT(sched_yield)();

	to = now();
	looked_in_vain(from, to);
	leave(to);
	return result;
}

static int accepted(int fd, uint64_t from)
{
	uint64_t to = now();

	if (fd >= 0) {
		forget(fd);
		has_waited(from, to);
	} else {
		looked_in_vain(from, to);
	}
	leave(to);
	return fd;
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	uint64_t from = enter();

	return accepted(NEXT(accept)(fd, address, length), from);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	uint64_t from = enter();

	return accepted(NEXT(accept4)(fd, address, length, flags), from);
}

/* -- threads that wait for each other ------------------------------------------------------------------------------ */

static struct slot *slot_of(const void *what) { return &slots[((uintptr_t)what >> 3) * 2654435761U % SLOTS]; }

/* This thread signals. Whoever wakes by that does so after what this one has done. */
static void signals(const void *what)
{
	struct slot *slot = slot_of(what);
	uint64_t at;

	if (!atomic_load(&head))
		return;
	know_thread();
	at = now();
	atomic_store(&slot->at_ns, at);
	atomic_store(&slot->busy_ns, me.busy_ns + me.busy_then_ns + (me.left_ns ? at - me.left_ns : 0));
	atomic_store(&slot->thread, number_of_thread(atomic_load(&head)));
	atomic_store(&slot->what, (uintptr_t)what);
}

/* A wait for another thread has ended; one that took its whole time was a pause, unless others follow. */
static void woken(const void *what, uint64_t from, int result)
{
	struct slot *slot = slot_of(what);
	uint64_t to = now();
	struct head *made = atomic_load(&head);

	if (result != 0) {
		looked_in_vain(from, to);
	} else if (to - from >= AT_ONCE_NS && made) {
		bool is_signalled = what && atomic_load(&slot->what) == (uintptr_t)what;

		has_waited(from, to);
		if (me.has_waited)
			write_woken(made, is_signalled ? slot : NULL);
	}
	leave(to);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	uint64_t from = enter();
	int result = NEXT_OF("GLIBC_2.3.2", pthread_cond_wait)(condition, mutex);

	woken(condition, from, result);
	return result;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
	uint64_t from = enter();
	int result = NEXT_OF("GLIBC_2.3.2", pthread_cond_timedwait)(condition, mutex, until);

	woken(condition, from, result);
	return result;
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
			   const struct timespec *until)
{
	uint64_t from = enter();
	int result = NEXT(pthread_cond_clockwait)(condition, mutex, clock, until);

	woken(condition, from, result);
	return result;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
	signals(condition);
	return NEXT_OF("GLIBC_2.3.2", pthread_cond_signal)(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
	signals(condition);
	return NEXT_OF("GLIBC_2.3.2", pthread_cond_broadcast)(condition);
}

int sem_wait(sem_t *semaphore)
{
	uint64_t from = enter();
	int result = NEXT(sem_wait)(semaphore);

	woken(semaphore, from, result);
	return result;
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
	uint64_t from = enter();
	int result = NEXT(sem_timedwait)(semaphore, until);

	woken(semaphore, from, result);
	return result;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
	uint64_t from = enter();
	int result = NEXT(sem_clockwait)(semaphore, clock, until);

	woken(semaphore, from, result);
	return result;
}

int sem_post(sem_t *semaphore)
{
	signals(semaphore);
	return NEXT(sem_post)(semaphore);
}

int pthread_join(pthread_t thread, void **value)
{
	uint64_t from = enter();
	int result = NEXT(pthread_join)(thread, value);

	woken(NULL, from, result);
	return result;
}

/* -- calls after which a descriptor is another one ------------------------------------------------------------------ */

/* A child of vfork() calls them, too, in this process' memory: so they only say that nothing is known any more. */
int close(int fd)
{
	forget(fd);
	return NEXT(close)(fd);
}

int dup2(int fd, int other)
{
	forget(other);
	return NEXT(dup2)(fd, other);
}

int dup3(int fd, int other, int flags)
{
	forget(other);
	return NEXT(dup3)(fd, other, flags);
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	for (unsigned int fd = first; fd <= last && fd < DESCRIPTORS; fd++)
		forget(fd);
	return NEXT(close_range)(first, last, flags);
}

static void set_blocking(int fd, bool blocks)
{
	if (fd >= 0 && fd < DESCRIPTORS)
		does_not_block[fd] = !blocks;
}

static int controlled(int (*next)(int, int, ...), int fd, int command, void *value)
{
	int result = next(fd, command, value);

	if (command == F_SETFL && result == 0)
		set_blocking(fd, !((long)value & O_NONBLOCK));
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		forget(result);
	return result;
}

int fcntl(int fd, int command, ...)
{
	va_list rest;
	void *value;

	va_start(rest, command);
	value = va_arg(rest, void *);
	va_end(rest);
	return controlled(NEXT(fcntl), fd, command, value);
}

int fcntl64(int fd, int command, ...)
{
	va_list rest;
	void *value;

	va_start(rest, command);
	value = va_arg(rest, void *);
	va_end(rest);
	return controlled(NEXT(fcntl64), fd, command, value);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	void *value;
	int result;

	va_start(rest, request);
	value = va_arg(rest, void *);
	va_end(rest);
	result = NEXT(ioctl)(fd, request, value);
	if (request == FIONBIO && result == 0)
		set_blocking(fd, !*(int *)value);
	return result;
}
