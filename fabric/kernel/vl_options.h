/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a port is told over netlink: TCA_OPTIONS of vl_abi.h, verified as a whole before anything of it applies.
 */
#ifndef VL_OPTIONS_H
#define VL_OPTIONS_H

#include <linux/netlink.h>

#include "vl_abi.h"
#include "vl_arbiter.h"
#include "vl_budget.h"

struct vl_config {
	struct vl_port_options port;
	u8 lane_of_dscp[VL_DSCPS];
	u8 control_lane;
	u32 lanes;		/* a bit for each in use */
};

struct vl_change {
	struct vl_config config;
	struct vl_arbiter arbiter;
	struct vl_lane_options lanes[VL_LANES];
	struct vl_draws draws;		/* the caller's to keep or to put */
};

/* Reads all options. Returns 0 or a negative error, which `extack` then says in words. */
int vl_parse(struct nlattr *options, struct vl_change *change, struct netlink_ext_ack *extack);

#endif
