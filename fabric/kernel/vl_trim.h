/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trimming: a datagram that finds its lane full loses its payload instead of all of it (NDP, SIGCOMM 2017; Ultra Ethernet
 * 1.0, 4.1). What is left, with another DSCP, tells its receiver at once what to ask for again.
 */
#ifndef VL_TRIM_H
#define VL_TRIM_H

#include "vl_port.h"

/* Cuts a frame that came for a lane, if that is asked for and the frame can be. Returns false if it is as it was. */
bool vl_trim(struct vl_sched *q, u8 lane, struct sk_buff *frame);

#endif
