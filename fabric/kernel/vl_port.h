/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sending side of a port: which frame starts when.
 *
 * Everything has nominal times: a frame starts when the one before it ended, or it came, or room was heard of, also if
 * the timer that wakes this code is late. Lateness therefore neither costs rate nor adds up over hops.
 *
 * So the code need not run at each start. Where frames follow each other on a link with a delay, a start is worked off
 * when a frame before it arrives, if that is before the frame that starts has been sent: until then nobody can tell.
 * Who looks at the port, or brings it a frame, has it work off what has started by then.
 */
#ifndef VL_PORT_H
#define VL_PORT_H

#include <linux/skbuff.h>
#include <net/sch_generic.h>

#include "vl_arbiter.h"
#include "vl_link.h"
#include "vl_options.h"

struct vl_lane {
	struct sk_buff_head frames;
	u32 bytes;
	u64 sent_bytes, sent_packets;
	u64 dropped_bytes[VL_CAUSES], dropped_packets[VL_CAUSES];
	u64 marked_bytes, marked_packets;
	u64 trimmed_bytes, trimmed_packets;
	u64 stalls, stalled_ns, stalled_since_ns;
	u64 first_since_ns;	/* since when its first frame has lacked room */
	u64 room_since_ns;	/* while `dropping` (vl_watchdog.h): since when there has been room, 0: there is none */
	bool dropping;
};

struct vl_sched {
	/* What each frame needs comes first, and together: a fabric has thousands of ports, and no cache holds them all. */
	struct vl_link *link;
	u32 waiting;		/* a bit for each lane with frames */
	u32 stalled;		/* and for each that waited for room when that was last looked at */
	u64 free_ns;		/* when the last frame's last bit is sent, */
	u64 rest;		/* and the fraction of a ns to add to it, in 1 / rate_bps ns */
	u64 decided_ns;		/* until when arbitration is settled */
	u64 last_arrival_ns;
	struct sk_buff_head under_way;	/* being sent, or sent and not yet delivered */
	u64 under_way_bytes;
	int cuts;		/* how often the link had been cut when this was last looked at */
	struct vl_config config;
	struct vl_arbiter arbiter;
	struct vl_lane lanes[VL_LANES];
	struct vl_draws draws;
};

struct vl_frame {		/* what qdisc_skb_cb has room for */
	struct vl_record *record;
	u64 at_ns;		/* when it came; when it is under way: when it arrives */
	u8 lane;
} __packed __aligned(4);

static inline struct vl_frame *vl_frame_of(const struct sk_buff *frame)
{
	BUILD_BUG_ON(sizeof(struct vl_frame) > QDISC_CB_PRIV_LEN);
	return (struct vl_frame *)qdisc_skb_cb(frame)->data;
}

static inline bool vl_is_controlled(const struct vl_sched *q, u8 lane)
{
	return q->link->mode != VL_LOSSY && lane != VL_MANAGEMENT_LANE;
}

/* Sends all that can start by now. Returns when to look again, U64_MAX: when something comes. */
u64 vl_send(struct vl_sched *q, u64 now_ns);

/* Has the qdisc run at the time that vl_send returned, or when something under way arrives, whichever is first. */
void vl_wake(struct vl_sched *q, u64 at_ns);

#endif
