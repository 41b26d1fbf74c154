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
#include <linux/netdevice.h>
#include <linux/version.h>
#include <net/pkt_sched.h>

#include "sch_vl.h"

#define VL_BUCKET_BITS 12

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
	u32 bytes;
	u32 input_index;			/* where it came in */
	u8 lane;
	bool taken;				/* counts in `used` */
	bool arrived;				/* counts in `buffered` */
	bool announced;				/* counts in `seen` */
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
	u64 return_ns;
	struct vl_lane_options options[VL_LANES];
	struct vl_buffer buffers[VL_LANES];
	struct list_head leaving, returning, arrivals;
};

struct vl_bucket {
	spinlock_t lock;
	struct hlist_head records;
};

static struct vl_bucket vl_buckets[1 << VL_BUCKET_BITS];
static struct kmem_cache *vl_records;

static void vl_link_put(struct vl_link *link)
{
	if (refcount_dec_and_test(&link->references)) {
		kfree(link);
		module_put(THIS_MODULE);
	}
}

static void vl_record_free(struct vl_record *record)
{
	struct vl_link *link = record->link;

	kmem_cache_free(vl_records, record);
	vl_link_put(link);
}

static struct vl_record *vl_record_new(struct vl_link *link, u8 lane, u32 bytes)
{
	struct vl_record *record = kmem_cache_zalloc(vl_records, GFP_ATOMIC);

	if (!record)
		return NULL;
	INIT_LIST_HEAD(&record->in_list);
	INIT_LIST_HEAD(&record->in_arrivals);
	refcount_inc(&link->references);
	record->link = link;
	record->lane = lane;
	record->bytes = bytes;
	return record;
}

static enum hrtimer_restart vl_timer_fired(struct hrtimer *timer)
{
	struct vl_link *link = container_of(timer, struct vl_link, timer);
	struct Qdisc *qdisc = READ_ONCE(link->qdisc);

	rcu_read_lock();
	if (qdisc)
		__netif_schedule(qdisc_root(qdisc));
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

static struct vl_link *vl_link_new(struct Qdisc *qdisc)
{
	struct vl_link *link = kzalloc(sizeof(*link), GFP_KERNEL);

	if (!link)
		return NULL;
	__module_get(THIS_MODULE);
	spin_lock_init(&link->lock);
	refcount_set(&link->references, 1);
	link->qdisc = qdisc;
	INIT_LIST_HEAD(&link->leaving);
	INIT_LIST_HEAD(&link->returning);
	INIT_LIST_HEAD(&link->arrivals);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&link->timer, vl_timer_fired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED);
#else
	hrtimer_init(&link->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED);
	link->timer.function = vl_timer_fired;
#endif
	return link;
}

/* Has the qdisc run at that time at the latest. With the link's lock. */
static void vl_wake_at(struct vl_link *link, u64 at_ns)
{
	bool off;

	if (!link->qdisc)
		return;
	rcu_read_lock();
	off = test_bit(__QDISC_STATE_DEACTIVATED, &qdisc_root_sleeping(link->qdisc)->state);
	rcu_read_unlock();
	if (off)
		return;
	if (!hrtimer_is_queued(&link->timer) || at_ns < (u64)ktime_to_ns(hrtimer_get_softexpires(&link->timer)))
		hrtimer_start(&link->timer, ns_to_ktime(at_ns), HRTIMER_MODE_ABS_PINNED);
}

/* Puts a record into a list that is in order of time, at its place, which is at the end or near it. */
static void vl_list_in_order(struct vl_record *record, struct list_head *list)
{
	struct vl_record *before;

	list_for_each_entry_reverse(before, list, in_list)
		if (before->at_ns <= record->at_ns)
			break;
	list_add(&record->in_list, &before->in_list);
}

static void vl_update_pause(struct vl_link *link, u8 lane)
{
	struct vl_buffer *buffer = &link->buffers[lane];

	if (buffer->seen > link->options[lane].xoff_bytes)
		buffer->paused = true;
	else if (buffer->seen <= link->options[lane].xon_bytes)
		buffer->paused = false;
}

static void vl_hear_of_arrival(struct vl_link *link, struct vl_record *record)
{
	list_del_init(&record->in_arrivals);
	record->announced = true;
	link->buffers[record->lane].seen += record->bytes;
	vl_update_pause(link, record->lane);
}

static void vl_return(struct vl_link *link, struct vl_record *record)
{
	struct vl_buffer *buffer = &link->buffers[record->lane];

	if (!list_empty(&record->in_arrivals))
		list_del_init(&record->in_arrivals);
	if (record->taken)
		buffer->used -= record->bytes;
	if (record->announced) {
		buffer->seen -= record->bytes;
		vl_update_pause(link, record->lane);
	}
	record->taken = record->announced = false;
}

static void vl_leave(struct vl_link *link, struct vl_record *record)
{
	if (record->arrived)
		link->buffers[record->lane].buffered -= record->bytes;
	record->arrived = false;
	record->at_ns += link->return_ns;
	list_del(&record->in_list);
	vl_list_in_order(record, &link->returning);
}

static struct vl_record *vl_first(struct list_head *list)
{
	return list_first_entry_or_null(list, struct vl_record, in_list);
}

static void vl_hear_of_arrivals(struct vl_link *link, u64 now_ns)
{
	struct vl_record *record;

	while ((record = list_first_entry_or_null(&link->arrivals, struct vl_record, in_arrivals)) &&
	       record->arrival_ns <= now_ns)
		vl_hear_of_arrival(link, record);
}

/* Brings a link to a moment. With its lock. */
static void vl_advance(struct vl_link *link, u64 now_ns)
{
	struct vl_record *record;

	while ((record = vl_first(&link->leaving)) && record->at_ns <= now_ns)
		vl_leave(link, record);
	while ((record = vl_first(&link->returning)) && record->at_ns <= now_ns) {
		vl_hear_of_arrivals(link, record->at_ns);
		list_del(&record->in_list);
		vl_return(link, record);
		vl_record_free(record);		/* Not the last reference: the caller has one. */
	}
	vl_hear_of_arrivals(link, now_ns);
}

/* Returns when the sender will hear something next, U64_MAX: not as far as is known. With the link's lock. */
static u64 vl_next_news_ns(struct vl_link *link)
{
	struct vl_record *leaving = vl_first(&link->leaving), *returning = vl_first(&link->returning);
	u64 next_ns = U64_MAX;

	if (leaving)
		next_ns = leaving->at_ns + link->return_ns;
	if (returning)
		next_ns = min(next_ns, returning->at_ns);
	return next_ns;
}

/* The frame of a record leaves the other end's input buffer at that time. The record is the link's from here on. */
static void vl_release(struct vl_record *record, u64 at_ns)
{
	struct vl_link *link = record->link;
	unsigned long flags;

	if (!record->taken) {
		vl_record_free(record);
		return;
	}
	spin_lock_irqsave(&link->lock, flags);
	if (!link->qdisc) {
		spin_unlock_irqrestore(&link->lock, flags);
		vl_record_free(record);
		return;
	}
	record->at_ns = at_ns;
	vl_list_in_order(record, &link->leaving);
	if (link->waiting)
		vl_wake_at(link, at_ns + link->return_ns);
	spin_unlock_irqrestore(&link->lock, flags);
}

/* Gives back what a frame has taken that never arrived, at once. */
static void vl_abandon(struct vl_record *record)
{
	struct vl_link *link = record->link;
	unsigned long flags;

	spin_lock_irqsave(&link->lock, flags);
	vl_return(link, record);
	spin_unlock_irqrestore(&link->lock, flags);
	vl_record_free(record);
}

static bool vl_has_room(const struct vl_link *link, u8 lane, u32 bytes)
{
	const struct vl_buffer *buffer = &link->buffers[lane];

	if (lane == VL_MANAGEMENT || link->mode == VL_LOSSY)
		return true;
	if (link->mode == VL_PFC)
		return !buffer->paused;
	return buffer->used + bytes <= buffer->size;
}

/* A frame sets out and will arrive at that time. With the link's lock. */
static void vl_take(struct vl_link *link, struct vl_record *record, u64 arrival_ns)
{
	record->taken = true;
	link->buffers[record->lane].used += record->bytes;
	if (link->mode == VL_PFC) {
		record->arrival_ns = arrival_ns + link->return_ns;
		list_add_tail(&record->in_arrivals, &link->arrivals);
	}
}

static struct vl_bucket *vl_bucket_of(const struct sk_buff *frame)
{
	return &vl_buckets[hash_ptr(frame, VL_BUCKET_BITS)];
}

static struct vl_record *vl_unlist(struct sk_buff *frame)
{
	struct vl_bucket *bucket = vl_bucket_of(frame);
	struct vl_record *record;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(record, &bucket->records, in_table)
		if (record->frame == frame)
			break;
	if (record)
		hlist_del(&record->in_table);
	spin_unlock_irqrestore(&bucket->lock, flags);
	return record;
}

/* The frame is freed, or becomes a socket's. */
static void vl_frame_gone(struct sk_buff *frame)
{
	struct vl_record *record = vl_unlist(frame);

	if (!WARN_ON_ONCE(!record))
		vl_release(record, ktime_get_ns());
}

/* Takes a frame's record over from the frame; NULL: it has none. */
static struct vl_record *vl_take_over(struct sk_buff *frame)
{
	if (frame->destructor != vl_frame_gone)
		return NULL;
	frame->destructor = NULL;
	return vl_unlist(frame);
}

/* A frame arrives. Returns false if there is no room for it. */
static bool vl_arrive(struct vl_record *record, u64 now_ns)
{
	struct vl_link *link = record->link;
	struct vl_buffer *buffer = &link->buffers[record->lane];
	unsigned long flags;
	bool fits;

	spin_lock_irqsave(&link->lock, flags);
	vl_advance(link, now_ns);
	fits = link->mode != VL_PFC || buffer->buffered + record->bytes <= buffer->size;
	if (fits) {
		record->arrived = true;
		buffer->buffered += record->bytes;
		buffer->most_buffered = max(buffer->most_buffered, buffer->buffered);
	}
	spin_unlock_irqrestore(&link->lock, flags);
	return fits;
}

/* Lets a frame carry its record through the other end. */
static void vl_hand_over(struct vl_record *record, struct sk_buff *frame)
{
	struct vl_bucket *bucket = vl_bucket_of(frame);
	unsigned long flags;

	record->frame = frame;
	frame->destructor = vl_frame_gone;
	spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&record->in_table, &bucket->records);
	spin_unlock_irqrestore(&bucket->lock, flags);
}

/* Ends a link with its qdisc; what is still at the other end no longer counts. */
static void vl_link_end(struct vl_link *link)
{
	struct vl_record *record, *next;
	unsigned long flags;
	LIST_HEAD(ended);

	spin_lock_irqsave(&link->lock, flags);
	WRITE_ONCE(link->qdisc, NULL);
	list_splice_init(&link->leaving, &ended);
	list_splice_init(&link->returning, &ended);
	list_for_each_entry_safe(record, next, &link->arrivals, in_arrivals)
		list_del_init(&record->in_arrivals);	/* Its frame may be at the other end for long. */
	spin_unlock_irqrestore(&link->lock, flags);
	hrtimer_cancel(&link->timer);
	list_for_each_entry_safe(record, next, &ended, in_list)
		vl_record_free(record);
	vl_link_put(link);
}

static int vl_link_module_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(vl_buckets); i++) {
		spin_lock_init(&vl_buckets[i].lock);
		INIT_HLIST_HEAD(&vl_buckets[i].records);
	}
	vl_records = kmem_cache_create("vl_record", sizeof(struct vl_record), 0, 0, NULL);
	return vl_records ? 0 : -ENOMEM;
}

#endif
