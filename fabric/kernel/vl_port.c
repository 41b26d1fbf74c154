// SPDX-License-Identifier: GPL-2.0
#include <linux/bitops.h>
#include <linux/math64.h>
#include <net/pkt_sched.h>

#include "vl_lifetime.h"
#include "vl_marking.h"
#include "vl_port.h"
#include "vl_watchdog.h"

/* Returns the lanes that can send at that moment, and tells those that lack room and when that may change. */
static u32 vl_ready_lanes(struct vl_sched *q, u64 at_ns, u32 *bytes, u32 *blocked, u64 *change_ns)
{
	unsigned long lanes = q->waiting, flags;
	u32 ready = 0;
	int lane;

	*blocked = 0;
	*change_ns = U64_MAX;
	spin_lock_irqsave(&q->link->lock, flags);
	vl_advance(q->link, at_ns);
	for_each_set_bit(lane, &lanes, VL_LANES) {
		const struct sk_buff *first = skb_peek(&q->lanes[lane].frames);

		bytes[lane] = qdisc_pkt_len(first);
		if (vl_frame_of(first)->at_ns > at_ns)
			*change_ns = min(*change_ns, vl_frame_of(first)->at_ns);
		else if (vl_has_room(q->link, lane, bytes[lane]))
			ready |= BIT(lane);
		else
			*blocked |= BIT(lane);
	}
	if (*blocked)
		*change_ns = min(*change_ns, vl_next_news_ns(q->link));
	q->link->waiting = *blocked && !ready;
	spin_unlock_irqrestore(&q->link->lock, flags);
	return ready;
}

static void vl_note_stalls(struct vl_sched *q, u32 blocked, u64 at_ns)
{
	unsigned long changed = blocked ^ q->stalled;
	int lane;

	for_each_set_bit(lane, &changed, VL_LANES) {
		q->lanes[lane].stalled_since_ns = blocked & BIT(lane) ? at_ns : 0;
		q->lanes[lane].first_since_ns = at_ns;
		if (blocked & BIT(lane))
			q->lanes[lane].stalls++;
	}
	q->stalled = blocked;
}

static void vl_add_stalled_time(struct vl_sched *q, u32 blocked, u64 duration_ns)
{
	unsigned long lanes = blocked;
	int lane;

	for_each_set_bit(lane, &lanes, VL_LANES)
		q->lanes[lane].stalled_ns += duration_ns;
}

static struct sk_buff *vl_take_first(struct vl_sched *q, u8 lane)
{
	struct sk_buff *frame = __skb_dequeue(&q->lanes[lane].frames);

	q->lanes[lane].bytes -= qdisc_pkt_len(frame);
	if (skb_queue_empty(&q->lanes[lane].frames))
		q->waiting &= ~BIT(lane);
	return frame;
}

/* Keeps the wire busy for as long as a frame takes, to the fraction of a ns as long as frames follow each other. */
static void vl_occupy(struct vl_sched *q, u32 bytes, u64 start_ns)
{
	u64 rest = start_ns > q->free_ns ? 0 : q->rest;
	u64 on_wire = bytes + q->config.port.framing_bytes;

	q->free_ns = start_ns + div64_u64_rem(on_wire * 8 * NSEC_PER_SEC + rest, q->config.port.rate_bps, &q->rest);
}

/* Returns when so much of a frame has been sent that the other end has it. */
static u64 vl_had_ns(const struct vl_sched *q, u32 bytes, u64 start_ns)
{
	u64 enough = q->config.port.cut_through_bytes;

	if (!enough || enough >= bytes)
		return q->free_ns;
	return start_ns + div64_u64(enough * 8 * NSEC_PER_SEC, q->config.port.rate_bps);
}

/* Settles the records of a frame that is being sent; returns the one that it takes to the other end, or NULL. */
static struct vl_record *vl_settle(struct vl_sched *q, struct vl_record *record, u64 arrival_ns)
{
	unsigned long flags;

	if (!record)
		return NULL;
	if (record->input)
		vl_release(record->input, q->free_ns);
	record->input = NULL;
	if (!vl_is_controlled(q, record->lane)) {
		vl_record_free(record);
		return NULL;
	}
	record->tail_ns = q->free_ns + q->config.port.delay_ns;
	spin_lock_irqsave(&q->link->lock, flags);
	vl_take(q->link, record, arrival_ns);
	spin_unlock_irqrestore(&q->link->lock, flags);
	return record;
}

static void vl_start(struct vl_sched *q, u8 lane, u64 start_ns)
{
	struct sk_buff *frame = vl_take_first(q, lane);
	u64 arrival_ns;

	vl_mark(q, lane, frame);
	start_ns = vl_draw(&q->draws, frame->skb_iif, qdisc_pkt_len(frame), start_ns);
	vl_occupy(q, qdisc_pkt_len(frame), start_ns);
	arrival_ns = vl_had_ns(q, qdisc_pkt_len(frame), start_ns) + q->config.port.delay_ns;
	arrival_ns = max(arrival_ns, q->last_arrival_ns);
	q->last_arrival_ns = arrival_ns;
	vl_frame_of(frame)->record = vl_settle(q, vl_frame_of(frame)->record, arrival_ns);
	/* A link to another guest delays by itself. */
	vl_frame_of(frame)->at_ns = q->config.port.crosses ? arrival_ns - q->config.port.delay_ns : arrival_ns;
	skb_orphan(frame);	/* As a network card does: what waits counts as its socket's, what is sent does not. */
	__skb_queue_tail(&q->under_way, frame);
	q->under_way_bytes += qdisc_pkt_len(frame);
}

u64 vl_send(struct vl_sched *q, u64 now_ns)
{
	u32 bytes[VL_LANES], ready, blocked;
	u64 at_ns, change_ns, until_ns;

	while (q->waiting) {
		at_ns = max(q->free_ns, q->decided_ns);
		if (at_ns > now_ns)
			return at_ns;
		ready = vl_ready_lanes(q, at_ns, bytes, &blocked, &change_ns);
		vl_note_stalls(q, blocked, at_ns);
		if (vl_watchdog(q, blocked, at_ns) || vl_lifetime(q, blocked, at_ns))
			continue;
		if (ready) {
			vl_start(q, vl_arbitrate(&q->arbiter, ready, bytes), at_ns);
			continue;
		}
		change_ns = min3(change_ns, vl_watchdog_due_ns(q, blocked), vl_lifetime_due_ns(q, blocked));
		until_ns = min(change_ns, now_ns);
		vl_add_stalled_time(q, blocked, until_ns - at_ns);
		q->decided_ns = until_ns;
		if (change_ns > now_ns)
			return change_ns;
	}
	return U64_MAX;
}

/* Returns how long it takes until the other end has the shortest of the frames that may start next. */
static u64 vl_shortest_ns(const struct vl_sched *q)
{
	unsigned long lanes = q->waiting;
	u32 bytes = U32_MAX;
	int lane;

	for_each_set_bit(lane, &lanes, VL_LANES)
		bytes = min(bytes, qdisc_pkt_len(skb_peek(&q->lanes[lane].frames)));
	if (q->config.port.cut_through_bytes && q->config.port.cut_through_bytes < bytes)
		bytes = q->config.port.cut_through_bytes;
	else
		bytes += q->config.port.framing_bytes;
	return div64_u64((u64)bytes * 8 * NSEC_PER_SEC, q->config.port.rate_bps);
}

/* Whether what `at_ns` is waited for is the start of a frame, which may wait for an arrival. Ports that draw on the same
 * budget take turns in the order in which their frames start. */
static bool vl_may_start_later(const struct vl_sched *q, u64 at_ns, u64 arrival_ns)
{
	return q->waiting && at_ns == max(q->free_ns, q->decided_ns) && arrival_ns > at_ns && !q->draws.count &&
	       arrival_ns - at_ns < vl_shortest_ns(q);
}

void vl_wake(struct vl_sched *q, u64 at_ns)
{
	unsigned long flags;
	u64 arrival_ns;

	if (!skb_queue_empty(&q->under_way)) {
		arrival_ns = vl_frame_of(skb_peek(&q->under_way))->at_ns;
		if (arrival_ns < at_ns || vl_may_start_later(q, at_ns, arrival_ns))
			at_ns = arrival_ns;
	}
	if (at_ns == U64_MAX)
		return;
	spin_lock_irqsave(&q->link->lock, flags);
	vl_wake_at(q->link, at_ns);
	spin_unlock_irqrestore(&q->link->lock, flags);
}
