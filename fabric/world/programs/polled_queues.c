/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets a program that polls completion queues of RDMA wait: each look in vain gives the processor away, which the guest's
 * kernel sees. Its queues lie in shared memory, so a program that counts its looks would go round for ever, while time
 * stands still. Preloaded, so a program that is linked statically is not reached.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>

struct context { /* Of libibverbs, as IBVERBS_1.1 has it: what is used of it. */
	void *device;
	void *before[11];
	int (*poll_queue)(void *queue, int most, void *found);
};

static int (*poll_device)(void *queue, int most, void *found);

/* Who polls several queues gives the processor away once per round: between two of them it would miss the other's. */
static int poll_queue(void *queue, int most, void *found)
{
	static __thread void *first_in_vain;
	int count = poll_device(queue, most, found);

	if (count == 0 && queue == first_in_vain) {
		sched_yield();
		count = poll_device(queue, most, found);
	}
	if (count != 0)
		first_in_vain = NULL;
	else if (!first_in_vain)
		first_in_vain = queue;
	return count;
}

/* The one in everybody's sight or, of a library that only some see, the one that the caller is linked to. */
static void *next_of(const void *caller)
{
	void *next = dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1"), *library;
	Dl_info found;

	if (next || !dladdr(caller, &found))
		return next;
	library = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	return library ? dlvsym(library, "ibv_open_device", "IBVERBS_1.1") : NULL;
}

struct context *ibv_open_device(void *device)
{
	struct context *(*next)(void *) = (struct context *(*)(void *))next_of(__builtin_return_address(0));
	struct context *opened = next ? next(device) : NULL;

	if (opened && opened->poll_queue != poll_queue) {
		poll_device = opened->poll_queue;
		opened->poll_queue = poll_queue;
	}
	return opened;
}
