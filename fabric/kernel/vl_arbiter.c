// SPDX-License-Identifier: GPL-2.0
#include <linux/bits.h>
#include <linux/minmax.h>

#include "vl_arbiter.h"

s64 vl_high_allowance(const struct vl_arbiter *arbiter)
{
	return max(1, arbiter->high_limit * VL_HIGH_LIMIT_BYTES);	/* A limit of 0 is a single frame. */
}

static void vl_next_entry(struct vl_table *table)
{
	u8 entry = (table->current_entry + 1) % table->count;

	table->current_entry = entry;
	table->left[entry] = min(table->left[entry], 0) + table->entries[entry].weight * VL_WEIGHT_BYTES;
}

/* Returns the lane among `ready`, of which the table has at least one, that is to send `bytes[lane]` now. */
static u8 vl_turn(struct vl_table *table, u32 ready, const u32 *bytes)
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

u8 vl_arbitrate(struct vl_arbiter *arbiter, u32 ready, const u32 *bytes)
{
	bool high = ready & arbiter->high.lanes, low = ready & arbiter->low.lanes;
	u8 lane;

	if (ready & BIT(VL_MANAGEMENT_LANE))
		return VL_MANAGEMENT_LANE;
	if (high && (!low || arbiter->high_limit == VL_HIGH_UNLIMITED || arbiter->high_left > 0)) {
		lane = vl_turn(&arbiter->high, ready, bytes);
		arbiter->high_left = max_t(s64, arbiter->high_left - bytes[lane], 0);
		return lane;
	}
	arbiter->high_left = vl_high_allowance(arbiter);
	return vl_turn(&arbiter->low, ready, bytes);
}
