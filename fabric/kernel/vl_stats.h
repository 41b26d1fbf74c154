/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a port says of itself: TCA_STATS_APP of vl_abi.h.
 */
#ifndef VL_STATS_H
#define VL_STATS_H

#include <net/gen_stats.h>
#include <net/sch_generic.h>

int vl_dump_stats(struct Qdisc *sch, struct gnet_dump *dump);

#endif
