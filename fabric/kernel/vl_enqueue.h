/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Frames come to a port: each waits in its lane, or is refused with a cause.
 */
#ifndef VL_ENQUEUE_H
#define VL_ENQUEUE_H

#include <net/sch_generic.h>

int vl_enqueue(struct sk_buff *frame, struct Qdisc *sch, struct sk_buff **to_free);

#endif
