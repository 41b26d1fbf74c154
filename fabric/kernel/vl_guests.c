// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>
#include <linux/timekeeping.h>

#include "guest_link.h"
#include "vl_frames.h"
#include "vl_guests.h"
#include "vl_link.h"

/* The link of all records that stand for those of other guests. */
static struct vl_link *vl_elsewhere;
static guest_link_return_fn *vl_tell;

static void vl_released_elsewhere(struct vl_record *record, u64 at_ns)
{
	vl_tell(record->guest_link, record->elsewhere, at_ns);
	vl_record_free(record);
}

static void vl_frame_leaves(struct sk_buff *frame, struct guest_link_claim *claim)
{
	struct vl_record *record = vl_take_over(frame);

	if (record)
		*claim = (struct guest_link_claim){ .record = (u64)record, .bytes = record->bytes, .lane = record->lane };
}

static void vl_frame_comes(struct sk_buff *frame, u32 link, const struct guest_link_claim *claim)
{
	struct vl_record *record = vl_record_new(vl_elsewhere, claim->lane, claim->bytes);

	if (!record) {
		vl_tell(link, claim->record, ktime_get_ns());
		return;
	}
	record->at_ns = ktime_get_ns();
	record->guest_link = link;
	record->elsewhere = claim->record;
	record->released = vl_released_elsewhere;
	vl_hand_over(record, frame);
}

static void vl_frame_returns(u64 record, u64 at_ns)
{
	vl_release((struct vl_record *)record, at_ns);
}

static const struct guest_link_cargo vl_cargo = {
	.leaves = vl_frame_leaves,
	.comes = vl_frame_comes,
	.returns = vl_frame_returns,
};

/* Where a run has one guest, the module guest_link is not there. */
int vl_guests_module_init(void)
{
	typeof(&guest_link_carry) carry = symbol_get(guest_link_carry);

	if (!carry)
		return 0;
	vl_elsewhere = vl_link_new(NULL);
	if (!vl_elsewhere)
		return -ENOMEM;
	vl_tell = carry(&vl_cargo);
	return 0;
}
