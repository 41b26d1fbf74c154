/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What programs and the qdisc `vl` say to each other over rtnetlink. All numbers are in the machine's byte order.
 * fabric/vl.py is the other end; VL_VERSION is raised when anything here changes.
 */
#ifndef SCH_VL_H
#define SCH_VL_H

#include <linux/types.h>

#define VL_VERSION 2
#define VL_LANES 16		/* InfiniBand's: data lanes 0 to 14 and 15 */
#define VL_MANAGEMENT 15	/* before all others, and never subject to flow control */
#define VL_DSCPS 64
#define VL_ENTRIES 64		/* of an arbitration table, at most */
#define VL_NO_LANE 255
#define VL_WEIGHT_BYTES 64
#define VL_HIGH_LIMIT_BYTES 4096
#define VL_HIGH_UNLIMITED 255

enum vl_mode {
	VL_LOSSY,	/* a lane that is full drops what comes */
	VL_CREDIT,	/* a frame is sent only if the other end has room for it */
	VL_PFC,		/* the other end stops a lane that fills, and lets it go on */
	VL_MODES,
};

enum {			/* TCA_OPTIONS; a change must bring all of them again */
	VL_OPTION_UNSPEC,
	VL_OPTION_PORT,	/* struct vl_port_options */
	VL_OPTION_DSCP,	/* __u8[VL_DSCPS]: the lane of each DSCP */
	VL_OPTION_HIGH,	/* struct vl_entry[]: the tables of arbitration */
	VL_OPTION_LOW,
	VL_OPTION_LANES,	/* struct vl_lane_options[VL_LANES] */
	VL_OPTION_COUNT,
};

struct vl_port_options {
	__u32 version;
	__u8 mode;
	__u8 control_lane;	/* of ICMP and of TCP segments without data or FIN; VL_NO_LANE: as their DSCP says */
	__u8 high_limit;	/* in VL_HIGH_LIMIT_BYTES */
	__u8 reserved;
	__u64 rate_bps;
	__u64 delay_ns;		/* from the last bit sent to the last bit received */
	__u64 return_ns;	/* from a frame's leaving the other end's buffer until this end knows */
	__u64 jitter_ns;	/* a frame waits up to so long, at random, before it may be sent; order stays */
};

struct vl_entry {
	__u8 lane;
	__u8 weight;		/* in VL_WEIGHT_BYTES */
};

struct vl_lane_options {
	__u32 limit_bytes;	/* VL_LOSSY: what may wait in this port */
	__u32 credit_bytes;	/* VL_CREDIT: the other end's input buffer */
	__u32 xoff_bytes;	/* VL_PFC: above this in the other end's input buffer the lane is stopped, */
	__u32 xon_bytes;	/* at this it goes on, */
	__u32 headroom_bytes;	/* and so much above xoff_bytes there is room for. */
	__u32 reserved;
};

enum vl_cause {		/* why a frame was dropped */
	VL_DROP_LIMIT,		/* its lane was full (VL_LOSSY) */
	VL_DROP_HEADROOM,	/* the other end's input buffer was full (VL_PFC) */
	VL_DROP_TOO_BIG,	/* it would not fit into the other end's input buffer when that is empty */
	VL_DROP_LINK_DOWN,	/* it waited, or was under way, when the link went down */
	VL_DROP_RESET,		/* the queues were replaced or taken away */
	VL_DROP_NO_MEMORY,	/* this machine has no memory left */
	VL_CAUSES,
};

/* TCA_STATS_APP: a vl_port_stats, vl_lane_stats for each lane in use, then a vl_wait for each pair that waits. */
struct vl_port_stats {
	__u32 version;
	__u32 index;		/* of this interface and of the one at the other end */
	__u32 peer_index;
	__u32 lanes;		/* how many vl_lane_stats follow */
	__u32 waits;		/* how many vl_wait follow those, */
	__u32 all_waits;	/* and how many there would be if they had fitted into the answer */
	__u32 mode;
	__u32 link_packets;	/* being sent or under way, */
	__u64 link_bytes;	/* in no lane's backlog any more */
	__u64 now_ns;		/* CLOCK_MONOTONIC */
};

struct vl_lane_stats {
	__u32 lane;
	__u32 backlog_packets;
	__u64 backlog_bytes;
	__u64 sent_bytes;	/* delivered to the other end */
	__u64 sent_packets;
	__u64 dropped_bytes[VL_CAUSES];
	__u64 dropped_packets[VL_CAUSES];
	__u64 stalls;		/* how often the frame in front found no room at the other end */
	__u64 stalled_ns;	/* how long the link was free, a frame waited, and there was no room */
	__u64 stalled_since_ns;	/* since when there has been no room, 0: there is */
	__u64 buffer_bytes;	/* the other end's input buffer: its size, */
	__u64 used_bytes;	/* what is taken of it, as far as this end knows, */
	__u64 buffered_bytes;	/* what is in it */
	__u64 most_buffered_bytes;
};

struct vl_wait {
	__u32 input_index;	/* of the interface by which frames came, */
	__u8 input_lane;	/* in whose input buffer for this lane they are */
	__u8 lane;		/* until this lane of this port has sent them */
	__u16 reserved;
	__u64 bytes;
};

#endif
