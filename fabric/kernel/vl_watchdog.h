/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A port's watchdog, as switches have one against storms of PFC: a lane that has stood still for `watchdog_ns` drops what
 * it has and what comes, so that nothing else waits for it, until there has been room for as long again.
 */
#ifndef VL_WATCHDOG_H
#define VL_WATCHDOG_H

#include "vl_port.h"

/* Returns when the first of these lanes, which stand still, has done so for too long, U64_MAX: never. */
u64 vl_watchdog_due_ns(const struct vl_sched *q, u32 blocked);

/* Has lanes drop what they have that have stood still for too long at that moment. Returns whether there was one. */
bool vl_watchdog(struct vl_sched *q, u32 blocked, u64 at_ns);

/* Whether a lane drops what comes now. */
bool vl_watchdog_drops(struct vl_sched *q, u8 lane, u32 bytes, u64 now_ns);

#endif
