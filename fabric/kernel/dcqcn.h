/* SPDX-License-Identifier: GPL-2.0 */
/*
 * DCQCN's reaction point: how fast a flow may send, from when it heard of congestion and what it has sent.
 *
 * Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), section 3 and its algorithm 1. A
 * flow starts at the line's rate. A congestion notification packet (CNP) cuts its rate by alpha / 2 and lets alpha, the
 * estimate of how congested its path is, rise; each period without one lets alpha fall. A timer and a counter of bytes
 * count stages since the last cut, and each stage raises the rate: halfway back to where it was before the cut (fast
 * recovery); after `fast_stages` of one of the two the target rises, too, by a step (additive increase); after
 * `fast_stages` of both by steps that grow (hyper increase).
 *
 * All of it is integer arithmetic, and the same code in a kernel module, in a BPF program and in a shared library for
 * tests. Nothing here reads a clock or keeps a timer: whoever uses it says what time it is, and what has been sent,
 * whenever the rate matters (dcqcn_advance), and all that fell due since then is done in its order. Of one call, time
 * comes before bytes.
 */
#ifndef DCQCN_H
#define DCQCN_H

#include <linux/types.h>

#define DCQCN_ALPHA_BITS 24
#define DCQCN_ALPHA_ONE (1u << DCQCN_ALPHA_BITS)
#define DCQCN_GAIN_BITS 16
#define DCQCN_GAIN_ONE (1u << DCQCN_GAIN_BITS)
#define DCQCN_MOST_RATE_BPS (1ull << 40)	/* So that a rate times an alpha fits into 64 bits. */
#define DCQCN_MOST_STAGES (1u << 20)		/* Counted no further. */
#define DCQCN_MOST_STEPS (1u << 22)		/* from no rate to the line's, so that all that is due ends */

struct dcqcn_parameters {
	__u64 line_rate_bps;
	__u64 least_rate_bps;
	__u64 additive_step_bps;
	__u64 hyper_step_bps;		/* 0: no hyper increase */
	__u64 stage_bytes;		/* 0: no counter of bytes; a stage by the timer counts for both */
	__u64 stage_ns;
	__u64 alpha_ns;
	__u64 cnp_ns;			/* what comes sooner after a CNP is part of it */
	__u32 gain;			/* how fast alpha follows, in 2^-16 */
	__u32 first_alpha;		/* before the first CNP, in 2^-24 */
	__u32 fast_stages;
	__u32 lowers_target;		/* also by a cut that follows another one with no stage between them */
};

struct dcqcn {
	__u64 rate_bps;
	__u64 target_bps;
	__u64 alpha_due_ns;
	__u64 stage_due_ns;
	__u64 cnp_at_ns;
	__u64 bytes;			/* sent since the last stage by bytes */
	__u32 alpha;			/* in 2^-24 */
	__u32 time_stages;
	__u32 byte_stages;
	__u32 limited;			/* a CNP has come; before the first one nothing runs */
};

/* Returns why parameters cannot be, in words; NULL: they can. */
const char *dcqcn_fault(const struct dcqcn_parameters *parameters);

/* A flow before it has sent anything: at the rate of the line. */
void dcqcn_start(struct dcqcn *flow, const struct dcqcn_parameters *parameters);

/* Does what has fallen due until then, and counts bytes sent since the last call. */
void dcqcn_advance(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 now_ns, __u64 sent_bytes);

/*
 * Hears of a marked frame, after dcqcn_advance to the same time. The receiver of a flow sends at most one CNP in each
 * `cnp_ns`; where it tells of every marked frame, as TCP's does, that is made up for here. Returns whether it was a CNP
 * of its own, which cut the rate.
 */
__u32 dcqcn_hear(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 now_ns);

#endif
