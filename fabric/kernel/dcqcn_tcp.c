// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP congestion control `dcqcn`: DCQCN's reaction point (dcqcn.h) sets the rate at which TCP paces each packet, and
 * its notification point tells of every marked packet at once. There is no congestion window to speak of: as with RDMA,
 * the receiver's window alone bounds what is under way.
 *
 * A CNP is a packet of its own in RoCE. Here ECE on an acknowledgement stands for it. The receiver acknowledges every
 * marked packet at once, with ECE, and every other one without; the sender takes what comes within `cnp_ns` of a CNP
 * for a part of that. So CNPs are as many as a receiver would send that counts the time itself, and come when the
 * acknowledgement does, in the lane of acknowledgements.
 *
 * Frames are sent one by one, each at its time. What a socket may have waiting in its host is two frames or so, as a
 * network card fetches a queue pair's next frame when it is about to send it.
 */
#include <linux/module.h>
#include <net/inet_ecn.h>
#include <net/tcp.h>

#include "dcqcn.h"
#include "dcqcn_parameters.h"
#include "tcp_line.h"

#ifndef TCP_ECN_OK
#define TCP_ECN_OK TCP_ECN_MODE_ANY	/* Since AccECN, of which a connection may agree instead. */
#endif
#define DCQCN_PACING_SHIFT 20	/* 24 KB may wait in the host at 200 Gbit/s, two frames at less than some 100. */

struct dcqcn_flow {
	struct dcqcn state;
	u64 payload_bytes;	/* sent when it was last looked at, */
	u32 segments;		/* and in so many segments */
};

static ulong flows, flows_without_ecn, cnps;

module_param(flows, ulong, 0444);
MODULE_PARM_DESC(flows, "ends of connections that have used it");
module_param(flows_without_ecn, ulong, 0444);
MODULE_PARM_DESC(flows_without_ecn, "of these, ends that had not agreed on ECN, and hear of no congestion");
module_param(cnps, ulong, 0444);
MODULE_PARM_DESC(cnps, "congestion notifications that cut a rate");

static u32 dcqcn_overhead_bytes(const struct tcp_sock *tp)
{
	return tp->tcp_header_len + sizeof(struct iphdr) + ETH_HLEN;
}

/* The rate of frames as one of payload, which is what TCP paces by. */
static void dcqcn_pace(struct sock *sk, const struct dcqcn_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 mss = max(tp->mss_cache, 1U);
	u64 rate = div_u64(flow->state.rate_bps, 8) * mss;

	line_pace(sk, div_u64(rate, mss + dcqcn_overhead_bytes(tp)));
}

static void dcqcn_catch_up(struct sock *sk, struct dcqcn_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 sent_bytes = tp->bytes_sent - flow->payload_bytes;

	sent_bytes += (u64)(tp->data_segs_out - flow->segments) * dcqcn_overhead_bytes(tp);
	flow->payload_bytes = tp->bytes_sent;
	flow->segments = tp->data_segs_out;
	dcqcn_advance(&flow->state, &parameters, tp->tcp_clock_cache, sent_bytes);
}

static void dcqcn_init(struct sock *sk)
{
	struct dcqcn_flow *flow = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	BUILD_BUG_ON(sizeof(*flow) > ICSK_CA_PRIV_SIZE);
	line_init(sk, DCQCN_PACING_SHIFT);
	dcqcn_start(&flow->state, &parameters);
	flow->payload_bytes = tp->bytes_sent;
	flow->segments = tp->data_segs_out;
	dcqcn_pace(sk, flow);
	if ((1 << sk->sk_state) & (TCPF_CLOSE | TCPF_LISTEN))
		return;
	flows++;
	if (!(tp->ecn_flags & TCP_ECN_OK)) {
		flows_without_ecn++;
		pr_warn_once("dcqcn: a connection has not agreed on ECN and hears of no congestion; both ends need dcqcn\n");
	}
}

/* Called whenever something may be sent. */
static u32 dcqcn_min_tso_segs(struct sock *sk)
{
	struct dcqcn_flow *flow = inet_csk_ca(sk);

	dcqcn_catch_up(sk, flow);
	dcqcn_pace(sk, flow);
	return line_min_tso_segs(sk);
}

static void dcqcn_in_ack_event(struct sock *sk, u32 flags)
{
	struct dcqcn_flow *flow = inet_csk_ca(sk);

	if (!(flags & CA_ACK_ECE))
		return;
	dcqcn_catch_up(sk, flow);
	if (dcqcn_hear(&flow->state, &parameters, tcp_sk(sk)->tcp_clock_cache))
		cnps++;
	dcqcn_pace(sk, flow);
}

/* The receiver's end: acknowledgements say of each packet whether it was marked. */
static void dcqcn_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_ECN_IS_CE)
		inet_csk(sk)->icsk_ack.pending |= ICSK_ACK_NOW;
	else if (event == CA_EVENT_ECN_NO_CE)
		tcp_sk(sk)->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

static struct tcp_congestion_ops dcqcn_ops __read_mostly = {
	.name = "dcqcn",
	.owner = THIS_MODULE,
	.flags = TCP_CONG_NEEDS_ECN | TCP_CONG_NON_RESTRICTED,
	.init = dcqcn_init,
	.ssthresh = line_ssthresh,
	.undo_cwnd = line_undo_cwnd,
	.cong_control = line_cong_control,
	.sndbuf_expand = line_sndbuf_expand,
	.min_tso_segs = dcqcn_min_tso_segs,
	.in_ack_event = dcqcn_in_ack_event,
	.cwnd_event = dcqcn_cwnd_event,
};

static int __init dcqcn_module_init(void)
{
	const char *fault = dcqcn_fault(&parameters);

	if (fault) {
		pr_err("dcqcn: %s\n", fault);
		return -EINVAL;
	}
	return tcp_register_congestion_control(&dcqcn_ops);
}

static void __exit dcqcn_module_exit(void)
{
	tcp_unregister_congestion_control(&dcqcn_ops);
}

module_init(dcqcn_module_init);
module_exit(dcqcn_module_exit);
MODULE_DESCRIPTION("DCQCN for TCP: rates by ECN marks, paced packet by packet");
MODULE_LICENSE("GPL");
