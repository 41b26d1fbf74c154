// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <net/pkt_sched.h>

#include "vl_link.h"

static struct kmem_cache *vl_records;

static void vl_link_put(struct vl_link *link)
{
	if (refcount_dec_and_test(&link->references)) {
		kfree(link);
		module_put(THIS_MODULE);
	}
}

void vl_record_free(struct vl_record *record)
{
	struct vl_link *link = record->link;

	kmem_cache_free(vl_records, record);
	vl_link_put(link);
}

struct vl_record *vl_record_new(struct vl_link *link, u8 lane, u32 bytes)
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

struct vl_link *vl_link_new(struct Qdisc *qdisc)
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

void vl_wake_at(struct vl_link *link, u64 at_ns)
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

void vl_update_pause(struct vl_link *link, u8 lane)
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

void vl_advance(struct vl_link *link, u64 now_ns)
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

u64 vl_next_news_ns(struct vl_link *link)
{
	struct vl_record *leaving = vl_first(&link->leaving), *returning = vl_first(&link->returning);
	u64 next_ns = U64_MAX;

	if (leaving)
		next_ns = leaving->at_ns + link->return_ns;
	if (returning)
		next_ns = min(next_ns, returning->at_ns);
	return next_ns;
}

void vl_release(struct vl_record *record, u64 at_ns)
{
	struct vl_link *link = record->link;
	unsigned long flags;

	if (record->released) {
		record->released(record, at_ns);
		return;
	}
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

void vl_abandon(struct vl_record *record)
{
	struct vl_link *link = record->link;
	unsigned long flags;

	spin_lock_irqsave(&link->lock, flags);
	vl_return(link, record);
	spin_unlock_irqrestore(&link->lock, flags);
	vl_record_free(record);
}

bool vl_has_room(const struct vl_link *link, u8 lane, u32 bytes)
{
	const struct vl_buffer *buffer = &link->buffers[lane];

	if (lane == VL_MANAGEMENT_LANE || link->mode == VL_LOSSY)
		return true;
	if (link->paused & BIT(lane))
		return false;
	if (link->mode == VL_PFC)
		return !buffer->paused;
	return buffer->used + bytes <= buffer->size;
}

void vl_take(struct vl_link *link, struct vl_record *record, u64 arrival_ns)
{
	record->taken = true;
	link->buffers[record->lane].used += record->bytes;
	if (link->mode == VL_PFC) {
		record->arrival_ns = arrival_ns + link->return_ns;
		list_add_tail(&record->in_arrivals, &link->arrivals);
	}
}

bool vl_arrive(struct vl_record *record, u64 now_ns)
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

void vl_link_end(struct vl_link *link)
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

int vl_link_module_init(void)
{
	vl_records = kmem_cache_create("vl_record", sizeof(struct vl_record), 0, 0, NULL);
	return vl_records ? 0 : -ENOMEM;
}

void vl_link_module_exit(void)
{
	kmem_cache_destroy(vl_records);
}
