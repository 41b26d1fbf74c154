/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A port's head-of-queue lifetime, as InfiniBand's switches have one: a frame that has been the first of its lane for
 * `lifetime_ns`, and has lacked room at the other end for all of it, is dropped. The next one then has as long.
 */
#ifndef VL_LIFETIME_H
#define VL_LIFETIME_H

#include "vl_port.h"

/* Returns when the first of these lanes, which lack room, drops its first frame, U64_MAX: never. */
u64 vl_lifetime_due_ns(const struct vl_sched *q, u32 blocked);

/* Has lanes drop first frames that have waited for too long at that moment. Returns whether there was one. */
bool vl_lifetime(struct vl_sched *q, u32 blocked, u64 at_ns);

#endif
