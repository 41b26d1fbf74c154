// SPDX-License-Identifier: GPL-2.0
#include <linux/bitops.h>

#include "vl_loss.h"
#include "vl_watchdog.h"

static u64 vl_lane_due_ns(const struct vl_sched *q, int lane)
{
	return q->lanes[lane].stalled_since_ns + q->config.port.watchdog_ns;
}

u64 vl_watchdog_due_ns(const struct vl_sched *q, u32 blocked)
{
	unsigned long lanes = q->config.port.watchdog_ns ? blocked : 0;
	u64 due_ns = U64_MAX;
	int lane;

	for_each_set_bit(lane, &lanes, VL_LANES)
		due_ns = min(due_ns, vl_lane_due_ns(q, lane));
	return due_ns;
}

bool vl_watchdog(struct vl_sched *q, u32 blocked, u64 at_ns)
{
	unsigned long lanes = blocked;
	int lane;

	if (vl_watchdog_due_ns(q, blocked) > at_ns)
		return false;
	for_each_set_bit(lane, &lanes, VL_LANES) {
		if (vl_lane_due_ns(q, lane) > at_ns)
			continue;
		q->lanes[lane].dropping = true;
		q->lanes[lane].room_since_ns = 0;
		vl_drop_lane(q->link->qdisc, lane, VL_DROP_WATCHDOG);
	}
	return true;
}

bool vl_watchdog_drops(struct vl_sched *q, u8 lane, u32 bytes, u64 now_ns)
{
	struct vl_lane *of = &q->lanes[lane];
	unsigned long flags;
	bool has_room;

	if (!of->dropping)
		return false;
	spin_lock_irqsave(&q->link->lock, flags);
	vl_advance(q->link, now_ns);
	has_room = vl_has_room(q->link, lane, bytes);
	spin_unlock_irqrestore(&q->link->lock, flags);
	if (!has_room)
		of->room_since_ns = 0;
	else if (!of->room_since_ns)
		of->room_since_ns = now_ns;
	of->dropping = !has_room || now_ns - of->room_since_ns < q->config.port.watchdog_ns;
	return of->dropping;
}
