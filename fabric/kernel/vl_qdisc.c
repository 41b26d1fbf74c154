// SPDX-License-Identifier: GPL-2.0
/*
 * The qdisc `vl`: a port of a lossless fabric and the link behind it.
 *
 * Frames wait in virtual lanes, chosen by DSCP. The port sends one at a time, taken from the lanes by InfiniBand's
 * arbitration (vl_arbiter.h). Sending takes exactly as long as the rate says, and the frame is delivered, whole, when
 * its last bit has been under way for the link's delay. A lane may send only while the input buffer at the other end
 * has room for the frame (vl_link.h), be it by credits or by PFC; lane 15 always may.
 * vl_enqueue.c has the frames that come, vl_port.c those that are sent, vl_budget.c limits that ports share,
 * vl_options.c and vl_stats.c what is said over netlink.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>

#include "vl_enqueue.h"
#include "vl_frames.h"
#include "vl_guests.h"
#include "vl_loss.h"
#include "vl_port.h"
#include "vl_stats.h"

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

/* --- Options --- */

static void vl_configure_link(struct vl_link *link, const struct vl_config *config, const struct vl_lane_options *lanes)
{
	unsigned long flags;
	int lane;

	spin_lock_irqsave(&link->lock, flags);
	link->mode = config->port.mode;
	link->return_ns = config->port.return_ns;
	link->paused = config->port.paused;
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

static void vl_apply(struct Qdisc *sch, struct vl_change *change)
{
	struct vl_sched *q = qdisc_priv(sch);

	sch_tree_lock(sch);
	if (q->config.port.paused != change->config.port.paused)
		vl_send(q, ktime_get_ns());	/* What it does to frames begins now. */
	q->config = change->config;
	q->arbiter = change->arbiter;
	swap(q->draws, change->draws);
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
	error = vl_parse(options, change, extack);
	if (!error)
		vl_apply(sch, change);
	vl_draws_put(&change->draws);	/* Those of before. */
	kfree(change);
	return error;
}

/* --- Life --- */

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

static void vl_reset(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);
	const struct net_device *device = qdisc_dev(sch);

	if (!q->link)
		return;
	vl_purge(sch, netif_carrier_ok(device) && netif_running(device) ? VL_DROP_RESET : VL_DROP_LINK_DOWN);
	hrtimer_cancel(&q->link->timer);
}

static void vl_destroy(struct Qdisc *sch)
{
	struct vl_sched *q = qdisc_priv(sch);

	if (q->link)
		vl_link_end(q->link);
	vl_draws_put(&q->draws);
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
	    nla_put(answer, VL_OPTION_LANES, sizeof(q->link->options), q->link->options) ||
	    vl_draws_dump(&q->draws, answer))
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
	error = vl_budget_module_init();
	if (!error)
		error = vl_guests_module_init();
	if (!error) {
		error = register_qdisc(&vl_ops);
		if (!error)
			return 0;
		vl_budget_module_exit();
	}
	vl_link_module_exit();
	return error;
}

static void __exit vl_module_exit(void)
{
	unregister_qdisc(&vl_ops);
	synchronize_net();
	vl_budget_module_exit();
	vl_link_module_exit();
}

module_init(vl_module_init);
module_exit(vl_module_exit);
MODULE_ALIAS("net-sch-vl");
MODULE_DESCRIPTION("Ports of a lossless fabric: virtual lanes, credits or PFC, exact links");
MODULE_LICENSE("GPL");
