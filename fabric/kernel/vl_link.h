/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The link to the other end's input buffer: what of that is taken, and who gives it back.
 *
 * All of it is kept at the sending end, one struct vl_link a port. Each frame sent has a record that says how many
 * bytes of which lane it takes. The record goes with the frame: while the frame is this port's, in the frame's control
 * block; from its arrival at the other end on, in a table under the frame's address, with the frame's destructor set.
 * So whatever frees the frame there (a rule that drops it, a host's stack that consumes it, an interface that goes
 * away) gives the bytes back, and so does a port of that switch when it has sent the frame on. A clone has no
 * destructor: the frame that it was cloned from carries the record.
 *
 *   in flight  ->  buffered (in the table, or in a port of that switch)  ->  leaving  ->  returning  ->  free
 *
 * A port knows in advance when the frame that it begins to send will have left; `leaving` holds records until then,
 * `returning` for the time that the news takes back to the sender. Both are in order of time and are worked off when
 * somebody asks for the state at a moment, so no timer runs for them unless the sender waits.
 *
 * A link outlives its qdisc until its last record is gone, and holds the module until then.
 */
#ifndef VL_LINK_H
#define VL_LINK_H

#include <linux/hrtimer.h>
#include <linux/skbuff.h>
#include <net/sch_generic.h>

#include "vl_abi.h"

struct vl_record {
	union {
		struct hlist_node in_table;	/* buffered, */
		struct list_head in_list;	/* leaving or returning */
	};
	struct list_head in_arrivals;		/* VL_PFC: until the sender knows that it has arrived */
	struct vl_link *link;
	struct vl_record *input;		/* of the frame on the link by which it came, until it has been sent on */
	const struct sk_buff *frame;
	u64 at_ns;				/* when it leaves or returns, */
	u64 arrival_ns;				/* when the sender knows that it has arrived */
	u64 tail_ns;				/* when its last bit comes, which may be after its arrival (cut-through) */
	u32 bytes;
	u32 input_index;			/* where it came in */
	u8 lane;
	bool taken;				/* counts in `used` */
	bool arrived;				/* counts in `buffered` */
	bool announced;				/* counts in `seen` */
	/* Of a frame from another guest (vl_guests.c): what is called when it is released, by which link it came, and the
	 * record there. */
	void (*released)(struct vl_record *record, u64 at_ns);
	u32 guest_link;
	u64 elsewhere;
};

struct vl_buffer {				/* a lane of the other end's input buffer */
	u32 size;
	u32 used, buffered, most_buffered;
	s64 seen;				/* VL_PFC: what is in it, by the news that has reached the sender, */
	bool paused;				/* and what that end has asked for */
};

struct vl_link {
	spinlock_t lock;			/* the innermost of all */
	refcount_t references;
	struct Qdisc *qdisc;			/* NULL: gone; what returns is nobody's */
	struct hrtimer timer;
	bool waiting;				/* the sender wants to know what returns */
	u8 mode;
	u32 paused;				/* lanes that the other end has stopped, whatever room it has */
	u64 return_ns;
	struct vl_lane_options options[VL_LANES];
	struct vl_buffer buffers[VL_LANES];
	struct list_head leaving, returning, arrivals;
};

/* NULL: no memory. */
struct vl_link *vl_link_new(struct Qdisc *qdisc);

/* Ends a link with its qdisc; what is still at the other end no longer counts. */
void vl_link_end(struct vl_link *link);

/* Has the qdisc run at that time at the latest. With the link's lock. */
void vl_wake_at(struct vl_link *link, u64 at_ns);

/* Has a lane stop or go on (VL_PFC) by what is in its buffer as far as is known. With the link's lock. */
void vl_update_pause(struct vl_link *link, u8 lane);

/* Brings a link to a moment. With its lock. */
void vl_advance(struct vl_link *link, u64 now_ns);

/* Returns when the sender will hear something next, U64_MAX: not as far as is known. With the link's lock. */
u64 vl_next_news_ns(struct vl_link *link);

/* Whether a lane may send a frame of that size. With the link's lock. */
bool vl_has_room(const struct vl_link *link, u8 lane, u32 bytes);

/* NULL: no memory. */
struct vl_record *vl_record_new(struct vl_link *link, u8 lane, u32 bytes);

void vl_record_free(struct vl_record *record);

/* A frame sets out and will arrive at that time. With the link's lock. */
void vl_take(struct vl_link *link, struct vl_record *record, u64 arrival_ns);

/* A frame arrives. Returns false if there is no room for it. */
bool vl_arrive(struct vl_record *record, u64 now_ns);

/* The frame of a record leaves the other end's input buffer at that time. The record is the link's from here on. */
void vl_release(struct vl_record *record, u64 at_ns);

/* Gives back what a frame has taken that never arrived, at once. */
void vl_abandon(struct vl_record *record);

int vl_link_module_init(void);
void vl_link_module_exit(void);

#endif
