/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What user space knows of guest_link: the attributes of an interface, and the size of what guests share
 * (fabric/world/virtual/joining.py has the same numbers).
 */
#ifndef GUEST_LINK_ABI_H
#define GUEST_LINK_ABI_H

#define GUEST_LINK_LINE 128		/* two lines of the cache, which are fetched together */
#define GUEST_LINK_RING_BYTES (16U << 20)
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
