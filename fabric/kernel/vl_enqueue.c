// SPDX-License-Identifier: GPL-2.0
#include <linux/math64.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/timekeeping.h>
#include <linux/version.h>
#include <net/pkt_sched.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif

#include "vl_classify.h"
#include "vl_enqueue.h"
#include "vl_frames.h"
#include "vl_loss.h"
#include "vl_trim.h"
#include "vl_watchdog.h"

#define VL_LATE_NS 200000	/* A frame that came here from a port of ours later than this was held by something. */

/* Returns why a frame cannot wait here, VL_CAUSES: it can. */
static enum vl_cause vl_refusal(struct vl_sched *q, struct net_device *device, u8 lane, u32 bytes)
{
	if (!netif_carrier_ok(device))
		return VL_DROP_LINK_DOWN;
	if (q->link->mode == VL_LOSSY && q->lanes[lane].bytes + bytes > q->link->options[lane].limit_bytes)
		return VL_DROP_LIMIT;
	if (vl_is_controlled(q, lane) && bytes > q->link->buffers[lane].size)
		return VL_DROP_TOO_BIG;
	if (vl_watchdog_drops(q, lane, bytes, ktime_get_ns()))
		return VL_DROP_WATCHDOG;
	return VL_CAUSES;
}

static u64 vl_came_at(const struct vl_record *input, u64 now_ns)
{
	if (input && input->at_ns <= now_ns && now_ns - input->at_ns < VL_LATE_NS)
		return input->at_ns;
	return now_ns;
}

/* Returns when a frame that came at that time may be sent: after its jitter, and not before those that came earlier. */
static u64 vl_ready_at(const struct vl_sched *q, u8 lane, u64 came_ns)
{
	const struct sk_buff *before = skb_peek_tail(&q->lanes[lane].frames);
	u64 jitter_ns = q->config.port.jitter_ns;

	if (!jitter_ns)
		return came_ns;
	came_ns += reciprocal_scale(get_random_u32(), jitter_ns + 1);
	return before ? max_t(u64, came_ns, vl_frame_of(before)->at_ns) : came_ns;
}

/* Returns when a frame that came at that time may start: if its last bit has yet to come (cut-through), no earlier than so
 * that this is there when it is to be sent. */
static u64 vl_start_with_tail(const struct vl_sched *q, const struct vl_record *input, u32 bytes, u64 came_ns)
{
	u64 takes_ns;

	if (!input || input->tail_ns <= came_ns)
		return came_ns;
	takes_ns = div64_u64((u64)(bytes + q->config.port.framing_bytes) * 8 * NSEC_PER_SEC, q->config.port.rate_bps);
	return input->tail_ns > takes_ns ? max(came_ns, input->tail_ns - takes_ns) : came_ns;
}

static int vl_refuse(struct sk_buff *frame, struct Qdisc *sch, struct vl_record *input, u8 lane, enum vl_cause cause,
		     struct sk_buff **to_free)
{
	vl_count_drop(qdisc_priv(sch), lane, qdisc_pkt_len(frame), cause);
	if (input)
		vl_release(input, ktime_get_ns());
	return qdisc_drop(frame, sch, to_free);
}

static int vl_enqueue_frame(struct sk_buff *frame, struct Qdisc *sch, struct vl_record *input, struct sk_buff **to_free)
{
	struct vl_sched *q = qdisc_priv(sch);
	u8 lane = vl_lane_of(&q->config, frame);
	u32 bytes = qdisc_pkt_len(frame);
	enum vl_cause cause = vl_refusal(q, qdisc_dev(sch), lane, bytes);
	struct vl_record *record = NULL;
	u64 ready_ns;

	if (cause == VL_DROP_LIMIT && vl_trim(q, lane, frame)) {
		lane = vl_lane_of(&q->config, frame);
		bytes = qdisc_pkt_len(frame);
		cause = vl_refusal(q, qdisc_dev(sch), lane, bytes);
	}
	if (cause != VL_CAUSES)
		return vl_refuse(frame, sch, input, lane, cause, to_free);
	if (input || vl_is_controlled(q, lane)) {
		record = vl_record_new(q->link, lane, bytes);
		if (!record)
			return vl_refuse(frame, sch, input, lane, VL_DROP_NO_MEMORY, to_free);
		record->input = input;
		record->input_index = frame->skb_iif;
	}
	ready_ns = vl_start_with_tail(q, input, bytes, vl_came_at(input, ktime_get_ns()));
	*vl_frame_of(frame) = (struct vl_frame){ record, vl_ready_at(q, lane, ready_ns), lane };
	__skb_queue_tail(&q->lanes[lane].frames, frame);
	q->lanes[lane].bytes += bytes;
	q->waiting |= BIT(lane);
	qdisc_qstats_backlog_inc(sch, frame);
	sch->q.qlen++;
	return NET_XMIT_SUCCESS;
}

/* A super-packet is cut as the device would do: neither rates nor credits can be had for 64 KB at once. */
static int vl_enqueue_segments(struct sk_buff *frame, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct sk_buff *segment, *next;
	int taken = 0;

	segment = skb_gso_segment(frame, netif_skb_features(frame) & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segment)) {
		u8 lane = vl_lane_of(&((struct vl_sched *)qdisc_priv(sch))->config, frame);

		return vl_refuse(frame, sch, NULL, lane, VL_DROP_NO_MEMORY, to_free);
	}
	skb_list_walk_safe(segment, segment, next) {
		skb_mark_not_on_list(segment);
		qdisc_skb_cb(segment)->pkt_len = segment->len;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
		qdisc_skb_cb(segment)->pkt_segs = 1;
#endif
		taken += vl_enqueue_frame(segment, sch, NULL, to_free) == NET_XMIT_SUCCESS;
	}
	consume_skb(frame);
	return taken ? NET_XMIT_SUCCESS : NET_XMIT_DROP;
}

int vl_enqueue(struct sk_buff *frame, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct vl_record *input = vl_take_over(frame);

	vl_notice_cuts(sch);
	vl_send(qdisc_priv(sch), ktime_get_ns());	/* What comes now finds only what still waits. */
	if (!skb_is_gso(frame))
		return vl_enqueue_frame(frame, sch, input, to_free);
	if (input)
		vl_release(input, ktime_get_ns());
	return vl_enqueue_segments(frame, sch, to_free);
}
