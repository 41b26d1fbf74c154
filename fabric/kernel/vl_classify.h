/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which lane a frame waits in: by its DSCP, which carries InfiniBand's service level; unless it is an acknowledgement
 * or the like, which no data of its lane may keep from its sender.
 */
#ifndef VL_CLASSIFY_H
#define VL_CLASSIFY_H

#include <linux/skbuff.h>

#include "vl_options.h"

u8 vl_lane_of(const struct vl_config *config, struct sk_buff *frame);

#endif
