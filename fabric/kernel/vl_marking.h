/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ECN: a port marks frames by what waits in their lane at the moment, as switches do for DCQCN: none while that is
 * little, all while it is much, and in between at random with a probability that grows with it. Decided as a frame is
 * begun to be sent, by what it leaves behind. Frames of connections without ECN stay as they are.
 */
#ifndef VL_MARKING_H
#define VL_MARKING_H

#include <linux/skbuff.h>

#include "vl_port.h"

void vl_mark(struct vl_sched *q, u8 lane, struct sk_buff *frame);

#endif
