/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which lane sends next: InfiniBand Architecture Specification, volume 1, 7.6.9 "VL arbitration and prioritization".
 *
 * Lane 15 goes first. Then the table of high priority, until it has sent its limit since low priority last sent; then
 * one frame by the table of low priority, once one waits: after high priority has been alone, the first one that comes. Within a table, lanes take turns by weight. A frame may exceed
 * what its lane has left; here the excess is taken off the lane's next turn, so that shares are those of the weights
 * for frames of any size.
 */
#ifndef VL_ARBITER_H
#define VL_ARBITER_H

#include "sch_vl.h"

struct vl_table {
	u8 count;
	u8 current_entry;
	u32 lanes;			/* a bit for each lane that has an entry */
	struct vl_entry entries[VL_ENTRIES];
	s32 left[VL_ENTRIES];		/* bytes that an entry may still send in its turn */
};

struct vl_arbiter {
	struct vl_table high, low;
	u8 high_limit;
	s64 high_left;			/* bytes of high priority before something of low priority must be let through */
};

static inline s64 vl_high_allowance(const struct vl_arbiter *arbiter)
{
	return max(1, arbiter->high_limit * VL_HIGH_LIMIT_BYTES);	/* A limit of 0 is a single frame. */
}

static inline void vl_next_entry(struct vl_table *table)
{
	u8 entry = (table->current_entry + 1) % table->count;

	table->current_entry = entry;
	table->left[entry] = min(table->left[entry], 0) + table->entries[entry].weight * VL_WEIGHT_BYTES;
}

/* Returns the lane among `ready`, of which the table has at least one, that is to send `bytes[lane]` now. */
static inline u8 vl_turn(struct vl_table *table, u32 ready, const u32 *bytes)
{
	u32 candidates = ready & table->lanes;
	bool alone = !(candidates & (candidates - 1));

	for (;;) {
		u8 entry = table->current_entry, lane = table->entries[entry].lane;

		if (candidates & BIT(lane)) {
			if (alone && table->left[entry] <= 0)	/* Nobody waits for it to pay back what it sent too much. */
				table->left[entry] = table->entries[entry].weight * VL_WEIGHT_BYTES;
			if (table->left[entry] > 0) {
				table->left[entry] -= bytes[lane];
				return lane;
			}
		}
		vl_next_entry(table);
	}
}

/* Returns the lane that is to send, of those whose bit is set in `ready` (not 0) and whose frames have `bytes`. */
static inline u8 vl_arbitrate(struct vl_arbiter *arbiter, u32 ready, const u32 *bytes)
{
	bool high = ready & arbiter->high.lanes, low = ready & arbiter->low.lanes;
	u8 lane;

	if (ready & BIT(VL_MANAGEMENT))
		return VL_MANAGEMENT;
	if (high && (!low || arbiter->high_limit == VL_HIGH_UNLIMITED || arbiter->high_left > 0)) {
		lane = vl_turn(&arbiter->high, ready, bytes);
		arbiter->high_left = max_t(s64, arbiter->high_left - bytes[lane], 0);
		return lane;
	}
	arbiter->high_left = vl_high_allowance(arbiter);
	return vl_turn(&arbiter->low, ready, bytes);
}

#endif
