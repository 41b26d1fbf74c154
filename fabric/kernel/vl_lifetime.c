// SPDX-License-Identifier: GPL-2.0
#include <linux/bitops.h>

#include "vl_lifetime.h"
#include "vl_loss.h"

static u64 vl_first_due_ns(const struct vl_sched *q, int lane)
{
	return q->lanes[lane].first_since_ns + q->config.port.lifetime_ns;
}

u64 vl_lifetime_due_ns(const struct vl_sched *q, u32 blocked)
{
	unsigned long lanes = q->config.port.lifetime_ns ? blocked : 0;
	u64 due_ns = U64_MAX;
	int lane;

	for_each_set_bit(lane, &lanes, VL_LANES)
		due_ns = min(due_ns, vl_first_due_ns(q, lane));
	return due_ns;
}

bool vl_lifetime(struct vl_sched *q, u32 blocked, u64 at_ns)
{
	unsigned long lanes = blocked;
	int lane;

	if (vl_lifetime_due_ns(q, blocked) > at_ns)
		return false;
	for_each_set_bit(lane, &lanes, VL_LANES) {
		if (vl_first_due_ns(q, lane) > at_ns)
			continue;
		q->lanes[lane].first_since_ns = at_ns;
		vl_drop_first(q->link->qdisc, lane, VL_DROP_LIFETIME);
	}
	return true;
}
