/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames that a port does not deliver: each is counted with its cause, and what it holds is given back.
 */
#ifndef VL_LOSS_H
#define VL_LOSS_H

#include <net/sch_generic.h>

#include "vl_port.h"

void vl_count_drop(struct vl_sched *q, u8 lane, u32 bytes, enum vl_cause cause);

/* Loses the first frame that waits in a lane. */
void vl_drop_first(struct Qdisc *sch, u8 lane, enum vl_cause cause);

/* Loses what waits in a lane. */
void vl_drop_lane(struct Qdisc *sch, u8 lane, enum vl_cause cause);

/* Loses all that waits and all that is under way. */
void vl_purge(struct Qdisc *sch, enum vl_cause cause);

/* Loses what waited or was under way when the link was cut, also if the cut is over: nothing may have looked in it. */
void vl_notice_cuts(struct Qdisc *sch);

#endif
