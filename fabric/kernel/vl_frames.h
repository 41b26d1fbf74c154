/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames at the other end of a link, which carry their records (vl_link.h) through whatever that end does with them:
 * a table of records by the frame's address, and the frame's destructor.
 */
#ifndef VL_FRAMES_H
#define VL_FRAMES_H

#include <linux/skbuff.h>

#include "vl_link.h"

/* Takes a frame's record over from the frame; NULL: it has none. */
struct vl_record *vl_take_over(struct sk_buff *frame);

/* Lets a frame carry its record through the other end. */
void vl_hand_over(struct vl_record *record, struct sk_buff *frame);

void vl_frames_module_init(void);

#endif
