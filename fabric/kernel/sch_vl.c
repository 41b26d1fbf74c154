// SPDX-License-Identifier: GPL-2.0
/*
 * The qdisc `vl`: a port of a lossless fabric and the link behind it.
 *
 * Frames wait in virtual lanes, chosen by DSCP. The port sends one at a time, taken from the lanes by InfiniBand's
 * arbitration (vl_arbiter.h). Sending takes exactly as long as the rate says, and the frame is delivered, whole, when
 * its last bit has been under way for the link's delay. A lane may send only while the input buffer at the other end
 * has room for the frame (vl_link.h), be it by credits or by PFC; lane 15 always may.
 *
 * Events have nominal times: a frame starts when the one before it ended, or it arrived, or room was heard of, also
 * if the timer that wakes this code is late. Lateness therefore neither costs rate nor adds up over hops.
 */
#include <linux/errno.h>
#include <linux/hashtable.h>
#include <linux/icmp.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <net/dsfield.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif

#include "sch_vl.h"
#include "vl_arbiter.h"
#include "vl_link.h"

#define VL_SHORT_BYTES 80	/* A TCP segment without data is at most this long, less one byte, with its IP header. */
#define VL_LATE_NS 200000	/* A frame that came here from a port of ours later than this was held by something. */
#define VL_WAITS 512		/* pairs of an input buffer and a lane, at most, in one answer */

struct vl_lane {
	struct sk_buff_head frames;
	u32 bytes;
	u64 sent_bytes, sent_packets;
	u64 dropped_bytes[VL_CAUSES], dropped_packets[VL_CAUSES];
	u64 stalls, stalled_ns, stalled_since_ns;
};

struct vl_config {
	struct vl_port_options port;
	u8 lane_of_dscp[VL_DSCPS];
	u8 control_lane;
	u32 lanes;		/* a bit for each in use */
};

struct vl_sched {
	struct vl_config config;
	struct vl_arbiter arbiter;
	struct vl_link *link;
	struct vl_lane lanes[VL_LANES];
	u32 waiting;		/* a bit for each lane with frames */
	u64 free_ns;		/* when the last frame's last bit is sent, */
	u64 rest;		/* and the fraction of a ns to add to it, in 1 / rate_bps ns */
	u64 decided_ns;		/* until when arbitration is settled */
	u64 last_arrival_ns;
	struct sk_buff_head under_way;	/* being sent, or sent and not yet delivered */
	u64 under_way_bytes;
};

struct vl_frame {		/* what qdisc_skb_cb has room for */
	struct vl_record *record;
	u64 at_ns;		/* when it came; when it is under way: when it arrives */
	u8 lane;
} __packed __aligned(4);

static struct vl_frame *vl_frame_of(const struct sk_buff *frame)
{
	BUILD_BUG_ON(sizeof(struct vl_frame) > QDISC_CB_PRIV_LEN);
	return (struct vl_frame *)qdisc_skb_cb(frame)->data;
}

/* --- Lanes --- */

static bool vl_is_control(struct sk_buff *frame)
{
	const struct iphdr *ip = ip_hdr(frame);

	return ip->protocol == IPPROTO_ICMP ||
	       (ip->protocol == IPPROTO_TCP && ntohs(ip->tot_len) < VL_SHORT_BYTES);
}

static u8 vl_lane_of(const struct vl_config *config, struct sk_buff *frame)
{
	u8 dscp = 0;

	switch (skb_protocol(frame, true)) {
	case htons(ETH_P_IP):
		if (!pskb_network_may_pull(frame, sizeof(struct iphdr)))
			break;
		if (config->control_lane != VL_NO_LANE && vl_is_control(frame))
			return config->control_lane;
		dscp = ipv4_get_dsfield(ip_hdr(frame)) >> 2;
		break;
	case htons(ETH_P_IPV6):
		if (pskb_network_may_pull(frame, sizeof(struct ipv6hdr)))
			dscp = ipv6_get_dsfield(ipv6_hdr(frame)) >> 2;
		break;
	}
	return config->lane_of_dscp[dscp];
}

static bool vl_is_controlled(const struct vl_sched *q, u8 lane)
{
	return q->link->mode != VL_LOSSY && lane != VL_MANAGEMENT;
}

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
	*vl_frame_of(frame) = (struct vl_frame){ record, vl_came_at(input, ktime_get_ns()), lane };
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
	if (IS_ERR_OR_NULL(segment))
		return qdisc_drop(frame, sch, to_free);
	skb_list_walk_safe(segment, segment, next) {
		skb_mark_not_on_list(segment);
		qdisc_skb_cb(segment)->pkt_len = segment->len;
		taken += vl_enqueue_frame(segment, sch, NULL, to_free) == NET_XMIT_SUCCESS;
	}
	consume_skb(frame);
	return taken ? NET_XMIT_SUCCESS : NET_XMIT_DROP;
}

static int vl_enqueue(struct sk_buff *frame, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct vl_record *input = vl_take_over(frame);

	if (!skb_is_gso(frame))
		return vl_enqueue_frame(frame, sch, input, to_free);
	if (input)
		vl_release(input, ktime_get_ns());
	return vl_enqueue_segments(frame, sch, to_free);
}

/* --- Sending --- */

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
	unsigned long lanes = q->config.lanes;
	int lane;

	for_each_set_bit(lane, &lanes, VL_LANES) {
		if (!(blocked & BIT(lane)))
			q->lanes[lane].stalled_since_ns = 0;
		else if (!q->lanes[lane].stalled_since_ns) {
			q->lanes[lane].stalled_since_ns = at_ns;
			q->lanes[lane].stalls++;
		}
	}
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

	q->free_ns = start_ns + div64_u64_rem((u64)bytes * 8 * NSEC_PER_SEC + rest, q->config.port.rate_bps, &q->rest);
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
	spin_lock_irqsave(&q->link->lock, flags);
	vl_take(q->link, record, arrival_ns);
	spin_unlock_irqrestore(&q->link->lock, flags);
	return record;
}

static void vl_start(struct vl_sched *q, u8 lane, u64 start_ns)
{
	struct sk_buff *frame = vl_take_first(q, lane);
	u64 arrival_ns;

	vl_occupy(q, qdisc_pkt_len(frame), start_ns);
	arrival_ns = max(q->free_ns + q->config.port.delay_ns, q->last_arrival_ns);
	q->last_arrival_ns = arrival_ns;
	vl_frame_of(frame)->record = vl_settle(q, vl_frame_of(frame)->record, arrival_ns);
	vl_frame_of(frame)->at_ns = arrival_ns;
	skb_orphan(frame);	/* As a network card does: what waits counts as its socket's, what is sent does not. */
	__skb_queue_tail(&q->under_way, frame);
	q->under_way_bytes += qdisc_pkt_len(frame);
}

/* Sends all that can start by now. Returns when to look again, U64_MAX: when something comes. */
static u64 vl_send(struct vl_sched *q, u64 now_ns)
{
	u32 bytes[VL_LANES], ready, blocked;
	u64 at_ns, change_ns, until_ns;

	while (q->waiting) {
		at_ns = max(q->free_ns, q->decided_ns);
		if (at_ns > now_ns)
			return at_ns;
		ready = vl_ready_lanes(q, at_ns, bytes, &blocked, &change_ns);
		vl_note_stalls(q, blocked, at_ns);
		if (ready) {
			vl_start(q, vl_arbitrate(&q->arbiter, ready, bytes), at_ns);
			continue;
		}
		until_ns = min(change_ns, now_ns);
		vl_add_stalled_time(q, blocked, until_ns - at_ns);
		q->decided_ns = until_ns;
		if (change_ns > now_ns)
			return change_ns;
	}
	return U64_MAX;
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

static void vl_wake(struct vl_sched *q, u64 at_ns)
{
	unsigned long flags;

	if (!skb_queue_empty(&q->under_way))
		at_ns = min(at_ns, vl_frame_of(skb_peek(&q->under_way))->at_ns);
	if (at_ns == U64_MAX)
		return;
	spin_lock_irqsave(&q->link->lock, flags);
	vl_wake_at(q->link, at_ns);
	spin_unlock_irqrestore(&q->link->lock, flags);
}

static void vl_purge(struct Qdisc *sch, enum vl_cause cause);

static struct sk_buff *vl_dequeue(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	u64 now_ns, next_ns;
	struct sk_buff *frame;

	if (!sch->q.qlen)
		return NULL;
	if (!netif_carrier_ok(qdisc_dev(sch))) {
		vl_purge(sch, VL_DROP_LINK_DOWN);
		return NULL;
	}
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

static const struct nla_policy vl_policy[VL_OPTION_COUNT] = {
	[VL_OPTION_PORT] = NLA_POLICY_EXACT_LEN(sizeof(struct vl_port_options)),
	[VL_OPTION_DSCP] = NLA_POLICY_EXACT_LEN(VL_DSCPS),
	[VL_OPTION_HIGH] = { .type = NLA_BINARY, .len = VL_ENTRIES * sizeof(struct vl_entry) },
	[VL_OPTION_LOW] = { .type = NLA_BINARY, .len = VL_ENTRIES * sizeof(struct vl_entry) },
	[VL_OPTION_LANES] = NLA_POLICY_EXACT_LEN(VL_LANES * sizeof(struct vl_lane_options)),
};

static int vl_parse_table(struct vl_table *table, const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	int i;

	if (nla_len(attribute) % sizeof(struct vl_entry)) {
		NL_SET_ERR_MSG(extack, "vl: an arbitration table is a row of pairs of lane and weight");
		return -EINVAL;
	}
	table->count = nla_len(attribute) / sizeof(struct vl_entry);
	memcpy(table->entries, nla_data(attribute), nla_len(attribute));
	for (i = 0; i < table->count; i++) {
		if (table->entries[i].lane >= VL_MANAGEMENT || !table->entries[i].weight) {
			NL_SET_ERR_MSG(extack, "vl: an arbitration table has lanes 0 to 14 and weights of 1 to 255");
			return -EINVAL;
		}
		table->lanes |= BIT(table->entries[i].lane);
	}
	return 0;
}

static int vl_parse_port(struct vl_config *config, const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	config->port = *(const struct vl_port_options *)nla_data(attribute);
	if (config->port.version != VL_VERSION) {
		NL_SET_ERR_MSG(extack, "vl: this module and the program are of different versions");
		return -EINVAL;
	}
	if (config->port.mode >= VL_MODES || !config->port.rate_bps || config->port.delay_ns > NSEC_PER_SEC ||
	    config->port.return_ns > NSEC_PER_SEC) {
		NL_SET_ERR_MSG(extack, "vl: unknown mode, no rate, or a delay above 1 s");
		return -EINVAL;
	}
	config->control_lane = config->port.control_lane;
	return 0;
}

/* Finds the lanes in use, and makes sure that each of them will be served. */
static int vl_parse_lanes(struct vl_config *config, const struct vl_arbiter *arbiter, struct netlink_ext_ack *extack)
{
	u32 served = arbiter->high.lanes | arbiter->low.lanes | BIT(VL_MANAGEMENT);
	int i;

	for (i = 0; i < VL_DSCPS; i++) {
		if (config->lane_of_dscp[i] >= VL_LANES)
			goto not_served;
		config->lanes |= BIT(config->lane_of_dscp[i]);
	}
	if (config->control_lane != VL_NO_LANE) {
		if (config->control_lane >= VL_LANES)
			goto not_served;
		config->lanes |= BIT(config->control_lane);
	}
	if (!(config->lanes & ~served))
		return 0;
not_served:
	NL_SET_ERR_MSG(extack, "vl: a DSCP is mapped to a lane that has no entry in a table of arbitration");
	return -EINVAL;
}

static int vl_parse(struct nlattr *options, struct vl_config *config, struct vl_arbiter *arbiter,
		    struct vl_lane_options *lanes, struct netlink_ext_ack *extack)
{
	struct nlattr *attributes[VL_OPTION_COUNT];
	int error, i;

	if (!options)
		return -EINVAL;
	error = nla_parse_nested_deprecated(attributes, VL_OPTION_COUNT - 1, options, vl_policy, extack);
	if (error)
		return error;
	for (i = VL_OPTION_UNSPEC + 1; i < VL_OPTION_COUNT; i++)
		if (!attributes[i]) {
			NL_SET_ERR_MSG(extack, "vl: an option is missing; all must be given");
			return -EINVAL;
		}
	memcpy(config->lane_of_dscp, nla_data(attributes[VL_OPTION_DSCP]), VL_DSCPS);
	memcpy(lanes, nla_data(attributes[VL_OPTION_LANES]), VL_LANES * sizeof(*lanes));
	error = vl_parse_port(config, attributes[VL_OPTION_PORT], extack) ?:
		vl_parse_table(&arbiter->high, attributes[VL_OPTION_HIGH], extack) ?:
		vl_parse_table(&arbiter->low, attributes[VL_OPTION_LOW], extack) ?:
		vl_parse_lanes(config, arbiter, extack);
	arbiter->high_limit = config->port.high_limit;
	arbiter->high_left = vl_high_allowance(arbiter);
	return error;
}

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

struct vl_change {
	struct vl_config config;
	struct vl_arbiter arbiter;
	struct vl_lane_options lanes[VL_LANES];
};

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
	for (lane = 0; lane < VL_LANES; lane++)
		__skb_queue_head_init(&q->lanes[lane].frames);
	__skb_queue_head_init(&q->under_way);
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

/* --- Statistics --- */

static void vl_add_wait(struct vl_wait *waits, u32 *count, const struct vl_record *input, u32 index, u8 lane)
{
	struct vl_wait *wait;

	for (wait = waits; wait < waits + *count; wait++)
		if (wait->input_index == index && wait->input_lane == input->lane && wait->lane == lane)
			break;
	if (wait == waits + *count) {
		if (*count == VL_WAITS)
			return;
		*wait = (struct vl_wait){ .input_index = index, .input_lane = input->lane, .lane = lane };
		++*count;
	}
	wait->bytes += input->bytes;
}

/* Finds whose input buffers the frames are in that wait in this port. */
static u32 vl_collect_waits(const struct vl_sched *q, struct vl_wait *waits)
{
	const struct sk_buff *frame;
	u32 count = 0;
	int lane;

	for (lane = 0; lane < VL_LANES; lane++)
		skb_queue_walk(&q->lanes[lane].frames, frame) {
			const struct vl_record *record = vl_frame_of(frame)->record;

			if (record && record->input)
				vl_add_wait(waits, &count, record->input, record->input_index, lane);
		}
	return count;
}

static void vl_fill_lane(const struct vl_sched *q, int number, u64 now_ns, struct vl_lane_stats *stats)
{
	const struct vl_lane *lane = &q->lanes[number];
	const struct vl_buffer *buffer = &q->link->buffers[number];
	u64 settled_ns = max(q->free_ns, q->decided_ns);

	*stats = (struct vl_lane_stats){
		.lane = number,
		.backlog_packets = lane->frames.qlen,
		.backlog_bytes = lane->bytes,
		.sent_bytes = lane->sent_bytes,
		.sent_packets = lane->sent_packets,
		.stalls = lane->stalls,
		.stalled_ns = lane->stalled_ns,
		.stalled_since_ns = lane->stalled_since_ns,
		.buffer_bytes = buffer->size,
		.used_bytes = buffer->used,
		.buffered_bytes = buffer->buffered,
		.most_buffered_bytes = buffer->most_buffered,
	};
	memcpy(stats->dropped_bytes, lane->dropped_bytes, sizeof(lane->dropped_bytes));
	memcpy(stats->dropped_packets, lane->dropped_packets, sizeof(lane->dropped_packets));
	if (lane->stalled_since_ns && now_ns > settled_ns)
		stats->stalled_ns += now_ns - settled_ns;
}

static void vl_fill_port(struct Qdisc *sch, u64 now_ns, struct vl_port_stats *stats)
{
	const struct vl_sched *q = qdisc_priv(sch);

	*stats = (struct vl_port_stats){
		.version = VL_VERSION,
		.index = qdisc_dev(sch)->ifindex,
		.peer_index = dev_get_iflink(qdisc_dev(sch)),
		.lanes = hweight32(q->config.lanes),
		.mode = q->link->mode,
		.link_packets = q->under_way.qlen,
		.link_bytes = q->under_way_bytes,
		.now_ns = now_ns,
	};
}

/* Writes the whole answer but the waits; returns where those go. */
static void *vl_fill(struct Qdisc *sch, void *answer)
{
	struct vl_sched *q = qdisc_priv(sch);
	struct vl_lane_stats *stats = answer + sizeof(struct vl_port_stats);
	unsigned long lanes = q->config.lanes, flags;
	u64 now_ns = ktime_get_ns();
	int lane;

	vl_fill_port(sch, now_ns, answer);
	spin_lock_irqsave(&q->link->lock, flags);
	vl_advance(q->link, now_ns);
	for_each_set_bit(lane, &lanes, VL_LANES)
		vl_fill_lane(q, lane, now_ns, stats++);
	spin_unlock_irqrestore(&q->link->lock, flags);
	return stats;
}

/*
 * Returns how many waits fit into the answer, -1: more of them in the next one, which will be empty.
 * The kernel answers a socket that has not yet received anything in pieces of less than 4 KB, others in 32 KB.
 */
static int vl_room_for_waits(const struct gnet_dump *dump, size_t fixed_bytes, u32 count)
{
	int room = skb_tailroom(dump->skb) - (int)fixed_bytes - 256;	/* for what follows in the message */
	int fitting = room / (int)sizeof(struct vl_wait);

	if (fitting >= (int)count)
		return count;
	if (dump->skb->len > 4096 || fitting < 0)
		return -1;
	return fitting;
}

static int vl_dump_stats(struct Qdisc *sch, struct gnet_dump *dump)
{
	struct vl_sched *q = qdisc_priv(sch);
	size_t fixed = sizeof(struct vl_port_stats) + hweight32(q->config.lanes) * sizeof(struct vl_lane_stats);
	struct vl_port_stats *answer = kvmalloc(fixed + VL_WAITS * sizeof(struct vl_wait), GFP_KERNEL);
	int error = -1, fitting;

	if (!answer)
		return -1;
	sch_tree_lock(sch);
	answer->all_waits = 0;
	{
		void *waits = vl_fill(sch, answer);

		answer->all_waits = vl_collect_waits(q, waits);
	}
	sch_tree_unlock(sch);
	fitting = vl_room_for_waits(dump, fixed, answer->all_waits);
	if (fitting >= 0) {
		answer->waits = fitting;
		dump->compat_xstats = 0;	/* Once is enough. */
		error = gnet_stats_copy_app(dump, answer, fixed + fitting * sizeof(struct vl_wait));
	}
	kvfree(answer);
	return error;
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
