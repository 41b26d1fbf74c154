// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP congestion control `line`: none. A flow sends at the rate of its host's link as long as the receiver's window
 * lets it, whatever happens on its way: RDMA with congestion control off, for links without loss. What is lost
 * nevertheless is sent again.
 */
#include <linux/module.h>

#include "tcp_line.h"

/* Of the rate that is no limit this makes 16 KB that may wait in the host: two large frames. */
#define LINE_UNPACED_SHIFT 50

static void line_start(struct sock *sk)
{
	line_init(sk, LINE_UNPACED_SHIFT);
	line_pace(sk, ~0UL);
}

static struct tcp_congestion_ops line_ops __read_mostly = {
	.name = "line",
	.owner = THIS_MODULE,
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = line_start,
	.ssthresh = line_ssthresh,
	.undo_cwnd = line_undo_cwnd,
	.cong_control = line_cong_control,
	.sndbuf_expand = line_sndbuf_expand,
	.min_tso_segs = line_min_tso_segs,
};

static int __init line_module_init(void)
{
	return tcp_register_congestion_control(&line_ops);
}

static void __exit line_module_exit(void)
{
	tcp_unregister_congestion_control(&line_ops);
}

module_init(line_module_init);
module_exit(line_module_exit);
MODULE_DESCRIPTION("No congestion control for TCP: the rate of the link, as far as the receiver's window lets it");
MODULE_LICENSE("GPL");
