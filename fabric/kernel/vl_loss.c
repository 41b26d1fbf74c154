// SPDX-License-Identifier: GPL-2.0
#include <linux/netdevice.h>
#include <linux/timekeeping.h>
#include <net/pkt_sched.h>

#include "vl_loss.h"

void vl_count_drop(struct vl_sched *q, u8 lane, u32 bytes, enum vl_cause cause)
{
	q->lanes[lane].dropped_packets[cause]++;
	q->lanes[lane].dropped_bytes[cause] += bytes;
}

/* Gives back what a frame holds that this port will not deliver: of the link before it, and of this one. */
static void vl_let_go(struct vl_record *record)
{
	if (!record)
		return;
	if (record->input)
		vl_release(record->input, ktime_get_ns());
	record->input = NULL;
	vl_abandon(record);
}

static void vl_drop(struct Qdisc *sch, struct sk_buff *frame, enum vl_cause cause)
{
	vl_count_drop(qdisc_priv(sch), vl_frame_of(frame)->lane, qdisc_pkt_len(frame), cause);
	qdisc_qstats_drop(sch);
	qdisc_qstats_backlog_dec(sch, frame);
	sch->q.qlen--;
	vl_let_go(vl_frame_of(frame)->record);
	kfree_skb(frame);
}

static void vl_drop_all(struct Qdisc *sch, struct sk_buff_head *frames, enum vl_cause cause)
{
	struct sk_buff *frame;

	while ((frame = __skb_dequeue(frames)))
		vl_drop(sch, frame, cause);
}

static void vl_emptied(struct vl_sched *q, u8 lane)
{
	q->lanes[lane].stalled_since_ns = 0;
	q->waiting &= ~BIT(lane);
	q->stalled &= ~BIT(lane);
}

void vl_drop_first(struct Qdisc *sch, u8 lane, enum vl_cause cause)
{
	struct vl_sched *q = qdisc_priv(sch);
	struct sk_buff *frame = __skb_dequeue(&q->lanes[lane].frames);

	q->lanes[lane].bytes -= qdisc_pkt_len(frame);
	if (skb_queue_empty(&q->lanes[lane].frames))
		vl_emptied(q, lane);
	vl_drop(sch, frame, cause);
}

void vl_drop_lane(struct Qdisc *sch, u8 lane, enum vl_cause cause)
{
	struct vl_sched *q = qdisc_priv(sch);

	vl_drop_all(sch, &q->lanes[lane].frames, cause);
	q->lanes[lane].bytes = 0;
	vl_emptied(q, lane);
}

void vl_purge(struct Qdisc *sch, enum vl_cause cause)
{
	struct vl_sched *q = qdisc_priv(sch);
	int lane;

	for (lane = 0; lane < VL_LANES; lane++) {
		vl_drop_lane(sch, lane, cause);
		q->lanes[lane].dropping = false;
	}
	vl_drop_all(sch, &q->under_way, cause);
	q->under_way_bytes = 0;
	q->free_ns = q->rest = q->last_arrival_ns = 0;
}

void vl_notice_cuts(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	int cuts = atomic_read(&qdisc_dev(sch)->carrier_down_count);

	if (cuts != q->cuts || !netif_carrier_ok(qdisc_dev(sch)))
		vl_purge(sch, VL_DROP_LINK_DOWN);
	q->cuts = cuts;
}
