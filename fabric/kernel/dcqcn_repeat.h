/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loops of the reaction point. The kernel takes a BPF program only if it sees that each loop in it ends, so there the
 * kernel itself loops (bpf_loop). It does so 2^23 times at most, which is more than any loop here takes: alpha is nothing
 * after 2^19 periods of the smallest gain, and the rate is the line's after DCQCN_MOST_STEPS stages and some.
 */
#ifndef DCQCN_REPEAT_H
#define DCQCN_REPEAT_H

#include "dcqcn.h"

/* What one turn of a loop works on; `done`: turns so far. */
struct dcqcn_repeated {
	struct dcqcn *flow;
	const struct dcqcn_parameters *parameters;
	__u32 *count;
	__u64 done;
};

#define DCQCN_UNUSED __attribute__((unused))

/* dcqcn_repeat(times, once, context) calls once(place, context) so often, or until it returns other than 0. */
#ifdef __bpf__
#define DCQCN_MOST_TURNS (1u << 23)
#define dcqcn_repeat(times, once, context) \
	bpf_loop((times) < DCQCN_MOST_TURNS ? (__u32)(times) : DCQCN_MOST_TURNS, once, context, 0)
#else
static inline void dcqcn_repeat(__u64 times, long (*once)(__u32, void *), void *context)
{
	for (; times && !once(0, context); times--)
		;
}
#endif

#endif
