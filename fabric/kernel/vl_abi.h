/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* Written by python -m fabric.queueing.vl_abi; change fabric/queueing/vl_abi.py instead. */
#ifndef VL_ABI_H
#define VL_ABI_H

#include <linux/types.h>

#define VL_VERSION 7
#define VL_LANES 16	/* InfiniBand's: data lanes 0 to 14 and 15 */
#define VL_MANAGEMENT_LANE 15	/* before all others, and never subject to flow control */
#define VL_DSCPS 64
#define VL_MOST_ENTRIES 64	/* of an arbitration table */
#define VL_NO_LANE 255
#define VL_WEIGHT_BYTES 64
#define VL_HIGH_LIMIT_BYTES 4096
#define VL_HIGH_UNLIMITED 255
#define VL_MOST_DRAWS 24	/* budgets that a port draws on */
#define VL_WEIGHT_ONE 1000	/* the weight with which a byte takes a byte */
#define VL_MOST_DRAW_WEIGHT 100000
#define VL_MOST_BUDGET 1000000000000000ULL	/* in bytes a second */
#define VL_RESERVED_PIECE 65536	/* bytes that a program takes in one turn */
#define VL_BUDGETS_FILE "vl_budgets"	/* in /proc: write a vl_reservation, read a vl_budget_stats for each */

enum vl_mode {
	VL_LOSSY = 0,	/* a lane that is full drops what comes */
	VL_CREDIT = 1,	/* a frame is sent only if the other end has room for it */
	VL_PFC = 2,	/* the other end stops a lane that fills, and lets it go on */
	VL_MODES = 3,
};

/* TCA_OPTIONS; a change must bring all of them again. */
enum vl_option {
	VL_OPTION_UNSPEC = 0,
	VL_OPTION_PORT = 1,	/* struct vl_port_options */
	VL_OPTION_DSCP = 2,	/* __u8[VL_DSCPS]: the lane of each DSCP */
	VL_OPTION_HIGH = 3,	/* struct vl_entry[]: the tables of arbitration */
	VL_OPTION_LOW = 4,
	VL_OPTION_LANES = 5,	/* struct vl_lane_options[VL_LANES] */
	VL_OPTION_DRAWS = 6,	/* struct vl_draw_options[]; may be left out */
	VL_OPTION_COUNT = 7,
};

/* Why a frame was dropped. */
enum vl_cause {
	VL_DROP_LIMIT = 0,	/* its lane was full (VL_LOSSY) */
	VL_DROP_HEADROOM = 1,	/* the other end's input buffer was full (VL_PFC) */
	VL_DROP_TOO_BIG = 2,	/* it would not fit into the other end's input buffer when that is empty */
	VL_DROP_LINK_DOWN = 3,	/* it waited, or was under way, when the link went down */
	VL_DROP_RESET = 4,	/* the queues were replaced or taken away */
	VL_DROP_NO_MEMORY = 5,	/* this machine has no memory left */
	VL_DROP_WATCHDOG = 6,	/* its lane had stood still for longer than the watchdog lets it */
	VL_DROP_LIFETIME = 7,	/* it had lacked room for longer than the first of a lane may */
	VL_CAUSES = 8,
};

struct vl_port_options {
	__u32 version;
	__u8 mode;
	__u8 control_lane;	/* of ICMP and of TCP segments without data or FIN; VL_NO_LANE: as their DSCP says */
	__u8 high_limit;	/* in VL_HIGH_LIMIT_BYTES */
	__u8 crosses;	/* 1: to another guest of the run, by a link that delays by itself (guest_link) */
	__u64 rate_bps;
	__u64 delay_ns;	/* from the last bit sent to the last bit received */
	__u64 return_ns;	/* from a frame's leaving the other end's buffer until this end knows */
	__u64 jitter_ns;	/* a frame waits up to so long, at random, before it may be sent; order stays */
	__u64 watchdog_ns;	/* a lane that has stood still for so long drops what it has; 0: it never does */
	__u64 lifetime_ns;	/* a frame that lacks room, first in its lane, for so long is dropped; 0: never */
	__u32 paused;	/* a bit for each lane that the other end has stopped, whatever room it has */
	__u16 trim_bytes;	/* VL_LOSSY: to so many, of IP, a UDP datagram without checksum is cut that finds no room */
	__u8 trim_dscp;	/* and it goes on with this DSCP; if trim_bytes is 0 it is dropped */
	__u8 reserved;
	__u16 framing_bytes;	/* of the wire that each frame takes beside its own */
	__u16 cut_through_bytes;	/* VL_CREDIT, VL_PFC: once so much of a frame has come, the other end has it; 0: once all has */
	__u32 reserved_too;
};
_Static_assert(sizeof(struct vl_port_options) == 72, "vl_port_options");
_Static_assert(__builtin_offsetof(struct vl_port_options, version) == 0, "vl_port_options.version");
_Static_assert(__builtin_offsetof(struct vl_port_options, mode) == 4, "vl_port_options.mode");
_Static_assert(__builtin_offsetof(struct vl_port_options, control_lane) == 5, "vl_port_options.control_lane");
_Static_assert(__builtin_offsetof(struct vl_port_options, high_limit) == 6, "vl_port_options.high_limit");
_Static_assert(__builtin_offsetof(struct vl_port_options, crosses) == 7, "vl_port_options.crosses");
_Static_assert(__builtin_offsetof(struct vl_port_options, rate_bps) == 8, "vl_port_options.rate_bps");
_Static_assert(__builtin_offsetof(struct vl_port_options, delay_ns) == 16, "vl_port_options.delay_ns");
_Static_assert(__builtin_offsetof(struct vl_port_options, return_ns) == 24, "vl_port_options.return_ns");
_Static_assert(__builtin_offsetof(struct vl_port_options, jitter_ns) == 32, "vl_port_options.jitter_ns");
_Static_assert(__builtin_offsetof(struct vl_port_options, watchdog_ns) == 40, "vl_port_options.watchdog_ns");
_Static_assert(__builtin_offsetof(struct vl_port_options, lifetime_ns) == 48, "vl_port_options.lifetime_ns");
_Static_assert(__builtin_offsetof(struct vl_port_options, paused) == 56, "vl_port_options.paused");
_Static_assert(__builtin_offsetof(struct vl_port_options, trim_bytes) == 60, "vl_port_options.trim_bytes");
_Static_assert(__builtin_offsetof(struct vl_port_options, trim_dscp) == 62, "vl_port_options.trim_dscp");
_Static_assert(__builtin_offsetof(struct vl_port_options, reserved) == 63, "vl_port_options.reserved");
_Static_assert(__builtin_offsetof(struct vl_port_options, framing_bytes) == 64, "vl_port_options.framing_bytes");
_Static_assert(__builtin_offsetof(struct vl_port_options, cut_through_bytes) == 66, "vl_port_options.cut_through_bytes");
_Static_assert(__builtin_offsetof(struct vl_port_options, reserved_too) == 68, "vl_port_options.reserved_too");

struct vl_entry {
	__u8 lane;
	__u8 weight;	/* in VL_WEIGHT_BYTES */
};
_Static_assert(sizeof(struct vl_entry) == 2, "vl_entry");
_Static_assert(__builtin_offsetof(struct vl_entry, lane) == 0, "vl_entry.lane");
_Static_assert(__builtin_offsetof(struct vl_entry, weight) == 1, "vl_entry.weight");

struct vl_lane_options {
	__u32 limit_bytes;	/* VL_LOSSY: what may wait in this port */
	__u32 credit_bytes;	/* VL_CREDIT: the other end's input buffer */
	__u32 xoff_bytes;	/* VL_PFC: above this in the other end's input buffer the lane is stopped, */
	__u32 xon_bytes;	/* at this it goes on, */
	__u32 headroom_bytes;	/* and so much above xoff_bytes there is room for. */
	__u32 mark_min_bytes;	/* a frame that leaves more than this behind in its lane may be marked, */
	__u32 mark_max_bytes;	/* above this it is (0: none is), */
	__u32 mark_probability;	/* and at this by so much of 2^32; in between linearly */
};
_Static_assert(sizeof(struct vl_lane_options) == 32, "vl_lane_options");
_Static_assert(__builtin_offsetof(struct vl_lane_options, limit_bytes) == 0, "vl_lane_options.limit_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, credit_bytes) == 4, "vl_lane_options.credit_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, xoff_bytes) == 8, "vl_lane_options.xoff_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, xon_bytes) == 12, "vl_lane_options.xon_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, headroom_bytes) == 16, "vl_lane_options.headroom_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, mark_min_bytes) == 20, "vl_lane_options.mark_min_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, mark_max_bytes) == 24, "vl_lane_options.mark_max_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_options, mark_probability) == 28, "vl_lane_options.mark_probability");

/* TCA_STATS_APP: a vl_port_stats, vl_lane_stats for each lane in use, then vl_waits. */
struct vl_port_stats {
	__u32 version;
	__u32 index;	/* of this interface and of the one at the other end */
	__u32 peer_index;
	__u32 lanes;	/* how many vl_lane_stats follow */
	__u32 waits;	/* how many vl_wait follow those, */
	__u32 all_waits;	/* and how many there would be if they had fitted into the answer */
	__u32 mode;
	__u32 link_packets;	/* being sent or under way, */
	__u64 link_bytes;	/* in no lane's backlog any more */
	__u64 now_ns;	/* CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct vl_port_stats) == 48, "vl_port_stats");
_Static_assert(__builtin_offsetof(struct vl_port_stats, version) == 0, "vl_port_stats.version");
_Static_assert(__builtin_offsetof(struct vl_port_stats, index) == 4, "vl_port_stats.index");
_Static_assert(__builtin_offsetof(struct vl_port_stats, peer_index) == 8, "vl_port_stats.peer_index");
_Static_assert(__builtin_offsetof(struct vl_port_stats, lanes) == 12, "vl_port_stats.lanes");
_Static_assert(__builtin_offsetof(struct vl_port_stats, waits) == 16, "vl_port_stats.waits");
_Static_assert(__builtin_offsetof(struct vl_port_stats, all_waits) == 20, "vl_port_stats.all_waits");
_Static_assert(__builtin_offsetof(struct vl_port_stats, mode) == 24, "vl_port_stats.mode");
_Static_assert(__builtin_offsetof(struct vl_port_stats, link_packets) == 28, "vl_port_stats.link_packets");
_Static_assert(__builtin_offsetof(struct vl_port_stats, link_bytes) == 32, "vl_port_stats.link_bytes");
_Static_assert(__builtin_offsetof(struct vl_port_stats, now_ns) == 40, "vl_port_stats.now_ns");

struct vl_lane_stats {
	__u32 lane;
	__u32 backlog_packets;
	__u64 backlog_bytes;
	__u64 sent_bytes;	/* delivered to the other end */
	__u64 sent_packets;
	__u64 dropped_bytes[VL_CAUSES];
	__u64 dropped_packets[VL_CAUSES];
	__u64 stalls;	/* how often the frame in front found no room at the other end */
	__u64 stalled_ns;	/* how long the link was free, a frame waited, and there was no room */
	__u64 stalled_since_ns;	/* since when there has been no room, 0: there is */
	__u64 buffer_bytes;	/* the other end's input buffer: its size, */
	__u64 used_bytes;	/* what is taken of it, as far as this end knows, */
	__u64 buffered_bytes;	/* what is in it */
	__u64 most_buffered_bytes;
	__u64 marked_bytes;	/* by this port */
	__u64 marked_packets;
	__u64 trimmed_bytes;	/* what this port cut off, */
	__u64 trimmed_packets;	/* and of how many */
};
_Static_assert(sizeof(struct vl_lane_stats) == 248, "vl_lane_stats");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, lane) == 0, "vl_lane_stats.lane");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, backlog_packets) == 4, "vl_lane_stats.backlog_packets");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, backlog_bytes) == 8, "vl_lane_stats.backlog_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, sent_bytes) == 16, "vl_lane_stats.sent_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, sent_packets) == 24, "vl_lane_stats.sent_packets");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, dropped_bytes) == 32, "vl_lane_stats.dropped_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, dropped_packets) == 96, "vl_lane_stats.dropped_packets");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, stalls) == 160, "vl_lane_stats.stalls");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, stalled_ns) == 168, "vl_lane_stats.stalled_ns");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, stalled_since_ns) == 176, "vl_lane_stats.stalled_since_ns");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, buffer_bytes) == 184, "vl_lane_stats.buffer_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, used_bytes) == 192, "vl_lane_stats.used_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, buffered_bytes) == 200, "vl_lane_stats.buffered_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, most_buffered_bytes) == 208, "vl_lane_stats.most_buffered_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, marked_bytes) == 216, "vl_lane_stats.marked_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, marked_packets) == 224, "vl_lane_stats.marked_packets");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, trimmed_bytes) == 232, "vl_lane_stats.trimmed_bytes");
_Static_assert(__builtin_offsetof(struct vl_lane_stats, trimmed_packets) == 240, "vl_lane_stats.trimmed_packets");

struct vl_wait {
	__u32 input_index;	/* of the interface by which frames came, */
	__u8 input_lane;	/* in whose input buffer for this lane they are */
	__u8 lane;	/* until this lane of this port has sent them */
	__u16 reserved;
	__u64 bytes;
};
_Static_assert(sizeof(struct vl_wait) == 16, "vl_wait");
_Static_assert(__builtin_offsetof(struct vl_wait, input_index) == 0, "vl_wait.input_index");
_Static_assert(__builtin_offsetof(struct vl_wait, input_lane) == 4, "vl_wait.input_lane");
_Static_assert(__builtin_offsetof(struct vl_wait, lane) == 5, "vl_wait.lane");
_Static_assert(__builtin_offsetof(struct vl_wait, reserved) == 6, "vl_wait.reserved");
_Static_assert(__builtin_offsetof(struct vl_wait, bytes) == 8, "vl_wait.bytes");

/* Budgets: limits that several ports, and programs, share. */
struct vl_draw_options {
	__u64 budget;	/* its number, the same in all network namespaces */
	__u64 rate;	/* in bytes a second, of the budget as a whole */
	__u32 input_index;	/* draws only what came in by this interface, 0: everything */
	__u32 weight;	/* what a byte takes, in 1 / VL_WEIGHT_ONE bytes */
};
_Static_assert(sizeof(struct vl_draw_options) == 24, "vl_draw_options");
_Static_assert(__builtin_offsetof(struct vl_draw_options, budget) == 0, "vl_draw_options.budget");
_Static_assert(__builtin_offsetof(struct vl_draw_options, rate) == 8, "vl_draw_options.rate");
_Static_assert(__builtin_offsetof(struct vl_draw_options, input_index) == 16, "vl_draw_options.input_index");
_Static_assert(__builtin_offsetof(struct vl_draw_options, weight) == 20, "vl_draw_options.weight");

struct vl_reservation {
	__u64 budget;
	__u64 bytes;
};
_Static_assert(sizeof(struct vl_reservation) == 16, "vl_reservation");
_Static_assert(__builtin_offsetof(struct vl_reservation, budget) == 0, "vl_reservation.budget");
_Static_assert(__builtin_offsetof(struct vl_reservation, bytes) == 8, "vl_reservation.bytes");

struct vl_budget_stats {
	__u64 budget;
	__u64 rate;	/* in bytes a second */
	__u64 drawn;	/* in 1 / VL_WEIGHT_ONE bytes */
	__u64 waited_ns;	/* from when frames and programs asked until their turns came, summed up */
	__u64 now_ns;	/* CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct vl_budget_stats) == 40, "vl_budget_stats");
_Static_assert(__builtin_offsetof(struct vl_budget_stats, budget) == 0, "vl_budget_stats.budget");
_Static_assert(__builtin_offsetof(struct vl_budget_stats, rate) == 8, "vl_budget_stats.rate");
_Static_assert(__builtin_offsetof(struct vl_budget_stats, drawn) == 16, "vl_budget_stats.drawn");
_Static_assert(__builtin_offsetof(struct vl_budget_stats, waited_ns) == 24, "vl_budget_stats.waited_ns");
_Static_assert(__builtin_offsetof(struct vl_budget_stats, now_ns) == 32, "vl_budget_stats.now_ns");

#endif
