// SPDX-License-Identifier: GPL-2.0
#include <linux/hash.h>
#include <linux/ktime.h>
#include <linux/timekeeping.h>

#include "vl_frames.h"

#define VL_BUCKET_BITS 12

struct vl_bucket {
	spinlock_t lock;
	struct hlist_head records;
};

static struct vl_bucket vl_buckets[1 << VL_BUCKET_BITS];

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

struct vl_record *vl_take_over(struct sk_buff *frame)
{
	if (frame->destructor != vl_frame_gone)
		return NULL;
	frame->destructor = NULL;
	return vl_unlist(frame);
}

void vl_hand_over(struct vl_record *record, struct sk_buff *frame)
{
	struct vl_bucket *bucket = vl_bucket_of(frame);
	unsigned long flags;

	record->frame = frame;
	frame->destructor = vl_frame_gone;
	spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&record->in_table, &bucket->records);
	spin_unlock_irqrestore(&bucket->lock, flags);
}

void vl_frames_module_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(vl_buckets); i++) {
		spin_lock_init(&vl_buckets[i].lock);
		INIT_HLIST_HEAD(&vl_buckets[i].records);
	}
}
