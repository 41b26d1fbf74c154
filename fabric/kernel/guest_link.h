/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What goes with frames to another guest that is not in them: what the sending port is to be given back (vl_guests.c).
 */
#ifndef GUEST_LINK_H
#define GUEST_LINK_H

#include <linux/skbuff.h>

struct guest_link_claim {
	u64 record;	/* the sending guest's; 0: none */
	u32 bytes;
	u8 lane;
};

struct guest_link_cargo {
	/* A frame leaves this guest: takes its claim off it. */
	void (*leaves)(struct sk_buff *frame, struct guest_link_claim *claim);
	/* A frame with a claim has come to this guest by a link: the claim is its from here on. */
	void (*comes)(struct sk_buff *frame, u32 link, const struct guest_link_claim *claim);
	/* What a frame of this guest's took in another guest is free from that time on. */
	void (*returns)(u64 record, u64 at_ns);
};

/* Tells the guest at the other end of a link that what a frame of its took is free from that time on. */
typedef void guest_link_return_fn(u32 link, u64 record, u64 at_ns);

/* Has links carry this; returns what to tell by. */
guest_link_return_fn *guest_link_carry(const struct guest_link_cargo *cargo);

#endif
