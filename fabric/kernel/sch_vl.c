// SPDX-License-Identifier: GPL-2.0
/*
 * The qdisc `vl`: a port of a lossless fabric and the link behind it.
 *
 * Frames wait in virtual lanes, chosen by DSCP. The port sends one at a time, taken from the lanes by InfiniBand's
 * arbitration (vl_arbiter.h). Sending takes exactly as long as the rate says, and the frame is delivered, whole, when
 * its last bit has been under way for the link's delay. A lane may send only while the input buffer at the other end
 * has room for the frame (vl_link.h), be it by credits or by PFC; lane 15 always may.
 * vl_port.h has the sending side, vl_options.h and vl_stats.h what is said over netlink.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif

#include "sch_vl.h"
#include "vl_classify.h"
#include "vl_frames.h"
#include "vl_link.h"
#include "vl_options.h"
#include "vl_port.h"
#include "vl_stats.h"

#define VL_LATE_NS 200000	/* A frame that came here from a port of ours later than this was held by something. */

static void vl_purge(struct Qdisc *sch, enum vl_cause cause);

/* --- Cuts --- */

/* Loses what waited or was under way when the link was cut, also if the cut is over: nothing may have looked in it. */
static void vl_notice_cuts(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	int cuts = atomic_read(&qdisc_dev(sch)->carrier_down_count);

	if (cuts != q->cuts || !netif_carrier_ok(qdisc_dev(sch)))
		vl_purge(sch, VL_DROP_LINK_DOWN);
	q->cuts = cuts;
}

/*
 * Whether the other end merges frames (GRO). For that it takes them off whom they belong to as they come: they would
 * hold nothing of its input buffer, and nothing would ever be pushed back. (veth does so; the merging itself would lose
 * the destructor, and with that the credit, of what it merges.)
 */
static bool vl_is_merged(struct net_device *device)
{
	struct net_device *peer = NULL;
	bool merged;

	rcu_read_lock();
	if (device->netdev_ops->ndo_get_peer_dev)
		peer = device->netdev_ops->ndo_get_peer_dev(device);
	merged = peer && peer->features & NETIF_F_GRO;
	rcu_read_unlock();
	return merged;
}

/* --- Waiting --- */

static void vl_count_drop(struct vl_sched *q, u8 lane, u32 bytes, enum vl_cause cause)
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

/* Returns why a frame cannot wait here, VL_CAUSES: it can. */
static enum vl_cause vl_refusal(const struct vl_sched *q, struct net_device *device, u8 lane, u32 bytes)
{
	if (!netif_carrier_ok(device))
		return VL_DROP_LINK_DOWN;
	if (q->link->mode == VL_LOSSY && q->lanes[lane].bytes + bytes > q->link->options[lane].limit_bytes)
		return VL_DROP_LIMIT;
	if (vl_is_controlled(q, lane) && bytes > q->link->buffers[lane].size)
		return VL_DROP_TOO_BIG;
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

	if (cause != VL_CAUSES)
		return vl_refuse(frame, sch, input, lane, cause, to_free);
	if (input || vl_is_controlled(q, lane)) {
		record = vl_record_new(q->link, lane, bytes);
		if (!record)
			return vl_refuse(frame, sch, input, lane, VL_DROP_NO_MEMORY, to_free);
		record->input = input;
		record->input_index = frame->skb_iif;
	}
	*vl_frame_of(frame) = (struct vl_frame){ record, vl_ready_at(q, lane, vl_came_at(input, ktime_get_ns())), lane };
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

static int vl_enqueue(struct sk_buff *frame, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct vl_record *input = vl_take_over(frame);

	vl_notice_cuts(sch);
	if (!skb_is_gso(frame))
		return vl_enqueue_frame(frame, sch, input, to_free);
	if (input)
		vl_release(input, ktime_get_ns());
	return vl_enqueue_segments(frame, sch, to_free);
}

/* --- Delivery --- */

static struct sk_buff *vl_take_landed(struct Qdisc *sch, u64 now_ns)
{
	struct vl_sched *q = qdisc_priv(sch);
	struct sk_buff *frame = skb_peek(&q->under_way);

	if (!frame || vl_frame_of(frame)->at_ns > now_ns)
		return NULL;
	__skb_unlink(frame, &q->under_way);
	q->under_way_bytes -= qdisc_pkt_len(frame);
	qdisc_qstats_backlog_dec(sch, frame);
	sch->q.qlen--;
	return frame;
}

/* Returns whether the other end takes a frame; if not, it is gone. */
static bool vl_deliver(struct Qdisc *sch, struct sk_buff *frame)
{
	struct vl_frame *of = vl_frame_of(frame);
	struct vl_sched *q = qdisc_priv(sch);
	struct vl_record *record = of->record;
	struct vl_lane *lane = &q->lanes[of->lane];

	if (record) {
		record->at_ns = of->at_ns;
		if (!vl_arrive(record, of->at_ns)) {
			vl_count_drop(q, of->lane, qdisc_pkt_len(frame), VL_DROP_HEADROOM);
			qdisc_qstats_drop(sch);
			vl_abandon(record);
			kfree_skb(frame);
			return false;
		}
		vl_hand_over(record, frame);
	}
	lane->sent_packets++;
	lane->sent_bytes += qdisc_pkt_len(frame);
	qdisc_bstats_update(sch, frame);
	return true;
}

static struct sk_buff *vl_dequeue(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	u64 now_ns, next_ns;
	struct sk_buff *frame;

	if (!sch->q.qlen)
		return NULL;
	vl_notice_cuts(sch);
	if (!sch->q.qlen)
		return NULL;
	now_ns = ktime_get_ns();
	next_ns = vl_send(q, now_ns);
	while ((frame = vl_take_landed(sch, now_ns)))
		if (vl_deliver(sch, frame))
			return frame;
	vl_wake(q, next_ns);
	return NULL;
}

/* --- Loss --- */

static void vl_drop_all(struct Qdisc *sch, struct sk_buff_head *frames, enum vl_cause cause)
{
	struct vl_sched *q = qdisc_priv(sch);
	struct sk_buff *frame;

	while ((frame = __skb_dequeue(frames))) {
		vl_count_drop(q, vl_frame_of(frame)->lane, qdisc_pkt_len(frame), cause);
		qdisc_qstats_drop(sch);
		qdisc_qstats_backlog_dec(sch, frame);
		sch->q.qlen--;
		vl_let_go(vl_frame_of(frame)->record);
		kfree_skb(frame);
	}
}

/* Loses all that waits and all that is under way. */
static void vl_purge(struct Qdisc *sch, enum vl_cause cause)
{
	struct vl_sched *q = qdisc_priv(sch);
	int lane;

	for (lane = 0; lane < VL_LANES; lane++) {
		vl_drop_all(sch, &q->lanes[lane].frames, cause);
		q->lanes[lane].bytes = 0;
		q->lanes[lane].stalled_since_ns = 0;
	}
	vl_drop_all(sch, &q->under_way, cause);
	q->under_way_bytes = 0;
	q->waiting = 0;
	q->free_ns = q->rest = q->last_arrival_ns = 0;
}

static void vl_reset(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	const struct net_device *device = qdisc_dev(sch);

	if (!q->link)
		return;
	vl_purge(sch, netif_carrier_ok(device) && netif_running(device) ? VL_DROP_RESET : VL_DROP_LINK_DOWN);
	hrtimer_cancel(&q->link->timer);
}

/* --- Options --- */

static void vl_configure_link(struct vl_link *link, const struct vl_config *config, const struct vl_lane_options *lanes)
{
	unsigned long flags;
	int lane;

	spin_lock_irqsave(&link->lock, flags);
	link->mode = config->port.mode;
	link->return_ns = config->port.return_ns;
	memcpy(link->options, lanes, sizeof(link->options));
	for (lane = 0; lane < VL_LANES; lane++)
		link->buffers[lane].size = link->mode == VL_PFC ? lanes[lane].xoff_bytes + lanes[lane].headroom_bytes :
								  lanes[lane].credit_bytes;
	for (lane = 0; lane < VL_LANES; lane++)
		vl_update_pause(link, lane);
	spin_unlock_irqrestore(&link->lock, flags);
}

/* After a change: what waits in a lane that is no more, or could never be sent, would wait for ever. */
static bool vl_has_strays(const struct vl_sched *q)
{
	const struct sk_buff *frame;
	int lane;

	for (lane = 0; lane < VL_LANES; lane++)
		skb_queue_walk(&q->lanes[lane].frames, frame)
			if (!(q->config.lanes & BIT(lane)) ||
			    (vl_is_controlled(q, lane) && qdisc_pkt_len(frame) > q->link->buffers[lane].size))
				return true;
	return false;
}

static void vl_apply(struct Qdisc *sch, const struct vl_change *change)
{
	struct vl_sched *q = qdisc_priv(sch);

	sch_tree_lock(sch);
	q->config = change->config;
	q->arbiter = change->arbiter;
	vl_configure_link(q->link, &q->config, change->lanes);
	if (vl_has_strays(q))
		vl_purge(sch, VL_DROP_RESET);
	q->rest = 0;
	sch_tree_unlock(sch);
	if (sch->q.qlen)
		__netif_schedule(qdisc_root(sch));
}

static int vl_change(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	struct vl_change *change = kzalloc(sizeof(*change), GFP_KERNEL);
	int error;

	if (!change)
		return -ENOMEM;
	error = vl_parse(options, &change->config, &change->arbiter, change->lanes, extack);
	if (!error)
		vl_apply(sch, change);
	kfree(change);
	return error;
}

static int vl_init(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack)
{
	struct vl_sched *q = qdisc_priv(sch);
	int lane;

	if (sch->parent != TC_H_ROOT) {
		NL_SET_ERR_MSG(extack, "vl: is a port, so it must be the root qdisc of an interface");
		return -EOPNOTSUPP;
	}
	if (vl_is_merged(qdisc_dev(sch))) {
		NL_SET_ERR_MSG(extack, "vl: the other end merges frames; switch that off: ethtool -K INTERFACE gro off");
		return -EOPNOTSUPP;
	}
	for (lane = 0; lane < VL_LANES; lane++)
		__skb_queue_head_init(&q->lanes[lane].frames);
	__skb_queue_head_init(&q->under_way);
	q->cuts = atomic_read(&qdisc_dev(sch)->carrier_down_count);
	q->link = vl_link_new(sch);
	return q->link ? vl_change(sch, options, extack) : -ENOMEM;
}

static void vl_destroy(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);

	if (q->link)
		vl_link_end(q->link);
}

static int vl_dump(struct Qdisc *sch, struct sk_buff *answer)
{
	struct vl_sched *q = qdisc_priv(sch);
	const struct vl_table *high = &q->arbiter.high, *low = &q->arbiter.low;
	struct nlattr *nest = nla_nest_start_noflag(answer, TCA_OPTIONS);

	if (!nest || nla_put(answer, VL_OPTION_PORT, sizeof(q->config.port), &q->config.port) ||
	    nla_put(answer, VL_OPTION_DSCP, VL_DSCPS, q->config.lane_of_dscp) ||
	    nla_put(answer, VL_OPTION_HIGH, high->count * sizeof(struct vl_entry), high->entries) ||
	    nla_put(answer, VL_OPTION_LOW, low->count * sizeof(struct vl_entry), low->entries) ||
	    nla_put(answer, VL_OPTION_LANES, sizeof(q->link->options), q->link->options))
		return -1;
	return nla_nest_end(answer, nest);
}

static struct Qdisc_ops vl_ops __read_mostly = {
	.id = "vl",
	.priv_size = sizeof(struct vl_sched),
	.enqueue = vl_enqueue,
	.dequeue = vl_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = vl_init,
	.change = vl_change,
	.reset = vl_reset,
	.destroy = vl_destroy,
	.dump = vl_dump,
	.dump_stats = vl_dump_stats,
	.owner = THIS_MODULE,
};

static int __init vl_module_init(void)
{
	int error = vl_link_module_init();

	if (error)
		return error;
	vl_frames_module_init();
	error = register_qdisc(&vl_ops);
	if (error)
		kmem_cache_destroy(vl_records);
	return error;
}

static void __exit vl_module_exit(void)
{
	unregister_qdisc(&vl_ops);
	synchronize_net();
	kmem_cache_destroy(vl_records);
}

module_init(vl_module_init);
module_exit(vl_module_exit);
MODULE_ALIAS("net-sch-vl");
MODULE_DESCRIPTION("Ports of a lossless fabric: virtual lanes, credits or PFC, exact links");
MODULE_LICENSE("GPL");
