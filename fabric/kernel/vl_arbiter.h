/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which lane sends next: InfiniBand Architecture Specification, volume 1, 7.6.9 "VL arbitration and prioritization".
 *
 * Lane 15 goes first. Then the table of high priority, until it has sent its limit since low priority last sent; then
 * one frame by the table of low priority, once one waits: after high priority has been alone, the first one that comes.
 * Within a table, lanes take turns by weight. A frame may exceed what its lane has left; here the excess is taken off
 * the lane's next turn, so that shares are those of the weights for frames of any size.
 */
#ifndef VL_ARBITER_H
#define VL_ARBITER_H

#include <linux/types.h>

#include "vl_abi.h"

struct vl_table {
	u8 count;
	u8 current_entry;
	u32 lanes;			/* a bit for each lane that has an entry */
	struct vl_entry entries[VL_MOST_ENTRIES];
	s32 left[VL_MOST_ENTRIES];		/* bytes that an entry may still send in its turn */
};

struct vl_arbiter {
	struct vl_table high, low;
	u8 high_limit;
	s64 high_left;			/* bytes of high priority before something of low priority must be let through */
};

/* Returns what high priority may send, in bytes, before something of low priority must be let through. */
s64 vl_high_allowance(const struct vl_arbiter *arbiter);

/* Returns the lane that is to send, of those whose bit is set in `ready` (not 0) and whose frames have `bytes`. */
u8 vl_arbitrate(struct vl_arbiter *arbiter, u32 ready, const u32 *bytes);

#endif
