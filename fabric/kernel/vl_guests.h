/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Links whose other end is in another guest of the run: a frame's record stays with the port that sent it, and the other
 * guest has one that stands for it and tells when it is released. The news takes no longer than the frame did, and so is
 * there before the port is to hear of it.
 */
#ifndef VL_GUESTS_H
#define VL_GUESTS_H

#ifdef VL_HAS_GUESTS
int vl_guests_module_init(void);
#else
static inline int vl_guests_module_init(void)
{
	return 0;
}
#endif

#endif
