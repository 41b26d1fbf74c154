// SPDX-License-Identifier: GPL-2.0
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/pkt_sched.h>

#include "vl_loss.h"
#include "vl_port.h"
#include "vl_stats.h"

/* Pairs of an input buffer and a lane, at most: 64 ports of 15 lanes have 945, and an answer has room for 32 KB. */
#define VL_WAITS 1536

/* Adds to the wait of a pair of lanes; `count` goes on when there is no room for another one, so that this shows. */
static void vl_add_wait(struct vl_wait *waits, u32 *count, const struct vl_record *input, u32 index, u8 lane)
{
	struct vl_wait *end = waits + min_t(u32, *count, VL_WAITS), *wait;

	for (wait = waits; wait < end; wait++)
		if (wait->input_index == index && wait->input_lane == input->lane && wait->lane == lane)
			break;
	if (wait == end && (*count)++ < VL_WAITS)
		*wait = (struct vl_wait){ .input_index = index, .input_lane = input->lane, .lane = lane };
	if (wait < waits + VL_WAITS)
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
		.marked_bytes = lane->marked_bytes,
		.marked_packets = lane->marked_packets,
		.trimmed_bytes = lane->trimmed_bytes,
		.trimmed_packets = lane->trimmed_packets,
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

int vl_dump_stats(struct Qdisc *sch, struct gnet_dump *dump)
{
	struct vl_sched *q = qdisc_priv(sch);
	size_t fixed = sizeof(struct vl_port_stats) + hweight32(q->config.lanes) * sizeof(struct vl_lane_stats);
	struct vl_port_stats *answer = kvmalloc(fixed + VL_WAITS * sizeof(struct vl_wait), GFP_KERNEL);
	int error = -1, fitting;
	void *waits;

	if (!answer)
		return -1;
	sch_tree_lock(sch);
	vl_notice_cuts(sch);
	vl_send(q, ktime_get_ns());
	waits = vl_fill(sch, answer);
	answer->all_waits = vl_collect_waits(q, waits);
	sch_tree_unlock(sch);
	fitting = vl_room_for_waits(dump, fixed, min_t(u32, answer->all_waits, VL_WAITS));
	if (fitting >= 0) {
		answer->waits = fitting;
		dump->compat_xstats = 0;	/* Once is enough. */
		error = gnet_stats_copy_app(dump, answer, fixed + fitting * sizeof(struct vl_wait));
	}
	kvfree(answer);
	return error;
}
