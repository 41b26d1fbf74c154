/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits that are not a link: so many bytes a second for several ports together, and for programs.
 *
 * A budget is a server that is busy for as long as the bytes that it gave take at its rate. A frame asks for its size
 * times a weight at the moment when it could begin, and begins when its turn has come: those who ask take turns in the
 * order in which they ask. A port has one frame at a time, so ports that contend are served in rounds.
 *
 * Budgets are known by a number, in all network namespaces, and live for as long as a qdisc draws on them.
 */
#ifndef VL_BUDGET_H
#define VL_BUDGET_H

#include <linux/netlink.h>
#include <linux/types.h>

#include "vl_abi.h"

struct vl_budget;

struct vl_drawn {
	struct vl_budget *budget;
	u32 input_index;	/* draws only what came in by this interface, 0: everything */
	u32 weight;
};

struct vl_draws {
	u8 count;
	struct vl_drawn of[VL_MOST_DRAWS];
};

/* Reads what a port draws on (NULL: nothing), and makes the budgets that are new. Returns 0 or a negative error. */
int vl_draws_parse(const struct nlattr *attribute, struct vl_draws *draws, struct netlink_ext_ack *extack);

/* Lets go of what vl_draws_parse made. May sleep. */
void vl_draws_put(struct vl_draws *draws);

/* Writes them as they were read. Returns 0 or a negative error. */
int vl_draws_dump(const struct vl_draws *draws, struct sk_buff *answer);

/* Returns when a frame of that size, which came by an interface and could begin at `at_ns`, may begin. */
u64 vl_draw(struct vl_draws *draws, u32 input_index, u32 bytes, u64 at_ns);

int vl_budget_module_init(void);
void vl_budget_module_exit(void);

#endif
