/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What user space knows of guest_link: the attributes of an interface (fabric/world/virtual/joining.py has the same
 * numbers).
 */
#ifndef GUEST_LINK_ABI_H
#define GUEST_LINK_ABI_H

#define GUEST_LINK_MOST 8192		/* links between guests */

enum {
	GUEST_LINK_UNSPEC,
	GUEST_LINK_ID,			/* u32: the same at both ends */
	GUEST_LINK_GUEST,		/* u32: where the other end is */
	GUEST_LINK_DELAY_NS,		/* u64 */
	GUEST_LINK_PEER_INDEX,		/* u32: the interface's there */
	GUEST_LINK_ATTRIBUTES,
};

#endif
