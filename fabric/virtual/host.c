/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded (LD_PRELOAD) into the guest kernel's own process on the host. It makes that process end with the one that
 * started it, end everything that runs in it, and draw the same random numbers for the same seed.
 *
 * Guest programs run as host processes that the kernel's process traces. Without PTRACE_O_EXITKILL they would run on
 * natively, with their next system call going to the host, if the kernel's process were killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#define OLD_SETOPTIONS 21 /* The numbers of the requests, without the header that declares ptrace() otherwise. */
#define SETOPTIONS 0x4200
#define EXITKILL 0x100000

static long (*next_ptrace)(int, pid_t, void *, void *);
static uint64_t state;

/* The kernel's memory begins where its process's heap does: without this at another place in every run. */
static void fix_addresses(char **arguments)
{
	int now = personality(0xffffffff);

	if (now >= 0 && !(now & ADDR_NO_RANDOMIZE) && personality(now | ADDR_NO_RANDOMIZE) >= 0)
		execv(arguments[0], arguments);
}

__attribute__((constructor)) static void prepare(int count, char **arguments)
{
	const char *parent = getenv("GUEST_PARENT"), *seed = getenv("GUEST_SEED");
	struct rlimit files, none = { 0, 0 };

	(void)count;
	fix_addresses(arguments);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (parent && getppid() != (pid_t)atol(parent))
		_exit(1); /* It has gone in the meantime. */
	next_ptrace = (long (*)(int, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
	if (!next_ptrace)
		_exit(1);
	setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* Every file open in the guest is one open here. */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	state = seed ? strtoull(seed, NULL, 10) : 0;
}

long ptrace(int request, ...)
{
	va_list arguments;
	pid_t pid;
	void *address, *data;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == OLD_SETOPTIONS || request == SETOPTIONS)
		data = (void *)((uintptr_t)data | EXITKILL);
	return next_ptrace(request, pid, address, data);
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
