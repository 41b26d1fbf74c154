/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded (LD_PRELOAD) into the guest kernel's own process on the host. It makes that process end with the one that
 * started it, end everything that runs in it, survive being stopped for a while, stay on one processor, run on
 * processors with more vector state than its kernel knows, draw the same random numbers for the same seed, stand still
 * while the user is asked for a line (dialogue.py), and fork itself for each run (forking.h).
 *
 * Guest programs run as host processes that the kernel's process traces. Without PTRACE_O_EXITKILL they would run on
 * natively, with their next system call going to the host, if the kernel's process were killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUESTION "/next-line-of-the-user" /* dialogue.py knows this name, too. */
#define OLD_SETOPTIONS 21 /* The numbers of the requests, without the header that declares ptrace() otherwise. */
#define SETOPTIONS 0x4200
#define EXITKILL 0x100000
#define TRACEME 0
#define CONT 7
#define SYSCALL 24
#define SYSEMU 31
#define SYSEMU_SINGLESTEP 32
#define GETREGS 12
#define SETREGS 13
#define GETREGSET 0x4204
#define SETREGSET 0x4205
#define X86_XSTATE 0x202 /* All that XSAVE saves, in its standard format. */

static long (*next_ptrace)(int, pid_t, void *, void *);
static pid_t (*next_waitpid)(pid_t, int *, int);
static ssize_t (*next_readlink)(const char *, char *, size_t);
static int (*next_kill)(pid_t, int);
static int lines = -1; /* Where the user is asked, if anybody is. */
static uint64_t state;
static pid_t kernel; /* The kernel's own process. */
static pid_t resumed; /* The guest program that runs, */
static int resumed_by; /* and the request that made it run. */
static unsigned char vectors[65536]; /* A program's vector state as this host has it, */
static size_t vectors_size; /* and its size; 0: not known yet. */

/* The kernel's memory begins where its process's heap does: without this at another place in every run. */
static void fix_addresses(char **arguments)
{
	int now = personality(0xffffffff);

	if (now >= 0 && !(now & ADDR_NO_RANDOMIZE) && personality(now | ADDR_NO_RANDOMIZE) >= 0)
		execv(arguments[0], arguments);
}

/* The kernel and its programs take turns: on two processors each would wait for the other to wake. */
static void stay_on(int processor)
{
	cpu_set_t processors;

	CPU_ZERO(&processors);
	CPU_SET(processor, &processors);
	sched_setaffinity(0, sizeof(processors), &processors);
}

static void watch_for_loops(void);
static void prepare_to_fork(void);

__attribute__((constructor)) static void prepare(int count, char **arguments)
{
	const char *parent = getenv("GUEST_PARENT"), *seed = getenv("GUEST_SEED"), *processor = getenv("GUEST_CPU");
	const char *lines_from = getenv("GUEST_LINES");
	struct rlimit files, none = { 0, 0 };

	(void)count;
	fix_addresses(arguments);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (parent && getppid() != (pid_t)atol(parent))
		_exit(1); /* It has gone in the meantime. */
	next_ptrace = (long (*)(int, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
	next_waitpid = (pid_t (*)(pid_t, int *, int))dlsym(RTLD_NEXT, "waitpid");
	next_readlink = (ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink");
	next_kill = (int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill");
	if (!next_ptrace || !next_waitpid || !next_readlink || !next_kill)
		_exit(1);
	kernel = getpid();
	setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* Every file open in the guest is one open here. */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (processor)
		stay_on(atoi(processor));
	prepare_to_fork();
	watch_for_loops();
	state = seed ? strtoull(seed, NULL, 10) : 0;
	lines = lines_from ? atoi(lines_from) : -1;
}

#include "going_round.h"
#include "forking.h"

/* Before Linux 6.13 the kernel keeps 2696 bytes of a program's vector state: all that AVX-512 needs. A host whose
 * processor has more (AMX: 11008 bytes) takes it back only whole. What the kernel does not keep is not in use: the host
 * lets a program use AMX only if it asks for it (arch_prctl), and that request ends in the guest.
 */
static long set_vectors(pid_t pid, struct iovec *kept)
{
	struct iovec whole = { vectors, sizeof(vectors) };

	if (vectors_size == 0) {
		if (next_ptrace(GETREGSET, pid, (void *)X86_XSTATE, &whole) < 0)
			return -1;
		vectors_size = whole.iov_len;
		memset(vectors, 0, sizeof(vectors));
	}
	if (kept->iov_len >= vectors_size)
		return next_ptrace(SETREGSET, pid, (void *)X86_XSTATE, kept);
	memcpy(vectors, kept->iov_base, kept->iov_len);
	whole.iov_len = vectors_size;
	return next_ptrace(SETREGSET, pid, (void *)X86_XSTATE, &whole);
}

/* A program that goes round is not let go: waitpid() takes it through its loop. */
static long goes_on(pid_t pid, int request, void *address, void *data)
{
	going_on(pid);
	return looking ? 0 : next_ptrace(request, pid, address, data);
}

/* Return how a program stopped that went on, or was to go round; `is_made`: the status is ours. */
static pid_t stopped(pid_t pid, int *status, int options, bool *is_made)
{
	pid_t waited;
	int went;

	if (looking) {
		went = taken_round(looking, pid, status);
		looking = NULL;
		*is_made = went == 1;
		if (went == 1)
			*status = stopped_by(SIGXFSZ);
		if (went != 0)
			return pid;
		if (next_ptrace(SYSEMU, pid, NULL, NULL) < 0)
			return -1;
	}
	for (;;) {
		waited = next_waitpid(pid, status, options);
		if (waited != pid || !WIFSTOPPED(*status) || WSTOPSIG(*status) != SIGXCPU)
			return waited;
		went = goes_round(pid, status);
		*is_made = went == 1;
		if (went == 1)
			*status = stopped_by(SIGXCPU);
		if (went != 0)
			return pid;
		if (next_ptrace(SYSEMU, pid, NULL, NULL) < 0)
			return -1;
	}
}

/* A program's process that has just been cloned: if its kernel has ended, init would trace it, and never let it go. */
static void end_with_kernel(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != kernel)
		_exit(1);
}

long ptrace(int request, ...)
{
	va_list arguments;
	pid_t pid;
	void *address, *data;

	va_start(arguments, request);
	pid = now(va_arg(arguments, pid_t));
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == TRACEME)
		end_with_kernel();
	if (request == OLD_SETOPTIONS || request == SETOPTIONS) {
		data = (void *)((uintptr_t)data | EXITKILL);
		stub_came(pid);
	}
	if (request == CONT || request == SYSCALL || request == SYSEMU || request == SYSEMU_SINGLESTEP) {
		resumed = pid;
		resumed_by = request;
		if (request == SYSEMU)
			return goes_on(pid, request, address, data);
	}
	if (request == SETREGSET && address == (void *)X86_XSTATE)
		return set_vectors(pid, data);
	return next_ptrace(request, pid, address, data);
}

/* The kernel takes a program for broken that someone on the host stopped, or continued, or that was asked too late what it
 * does: let it run on, unnoticed. */
pid_t waitpid(pid_t pid_known, int *status, int options)
{
	pid_t pid = now(pid_known), waited;
	bool runs = (turn & 1) && pid == watched && status, is_made = false;

	waited = runs ? stopped(pid, status, options, &is_made) : next_waitpid(pid, status, options);

	if (runs && (waited > 0 || errno != EINTR))
		has_stopped();
	while (!is_made && waited > 0 && waited == resumed && status && WIFSTOPPED(*status) &&
	       (WSTOPSIG(*status) == SIGSTOP || WSTOPSIG(*status) == SIGCONT || WSTOPSIG(*status) == SIGXCPU) &&
	       next_ptrace(resumed_by, waited, NULL, NULL) == 0)
		waited = next_waitpid(pid, status, options);
	if (waited > 0 && status && !WIFSTOPPED(*status))
		stub_went(waited);
	return known(waited);
}

/* The kernel has one thread, and that waits here: all of the guest, and its clock, wait with it. */
static ssize_t ask(char *buffer, size_t size)
{
	ssize_t done;

	do /* The kernel's own signals interrupt either call. */
		done = send(lines, "?", 1, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	if (done < 0)
		return done;
	do
		done = recv(lines, buffer, size, 0);
	while (done < 0 && errno == EINTR);
	return done;
}

static bool ends_in(const char *path, const char *ending)
{
	size_t length = strlen(path), wanted = strlen(ending);

	return length >= wanted && strcmp(path + length - wanted, ending) == 0;
}

ssize_t readlink(const char *path, char *buffer, size_t size)
{
	if (lines >= 0 && ends_in(path, QUESTION))
		return ask(buffer, size);
	if (requests >= 0 && ends_in(path, FORK_HERE))
		fork_here();
	return next_readlink(path, buffer, size);
}

/* SplitMix64 (Steele, Lea, Flood 2014): nothing here is secret, everything is to be repeated. */
static uint64_t draw(void)
{
	uint64_t z = (state += 0x9E3779B97F4A7C15u);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	unsigned char *at = buffer;

	(void)flags;
	for (size_t left = length; left > 0;) {
		uint64_t number = draw();
		size_t part = left < sizeof(number) ? left : sizeof(number);

		memcpy(at, &number, part);
		at += part;
		left -= part;
	}
	return (ssize_t)length;
}
