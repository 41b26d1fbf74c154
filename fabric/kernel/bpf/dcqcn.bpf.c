// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP congestion control `dcqcn` as BPF programs: the reaction point of ../dcqcn.c, as ../dcqcn_tcp.c has it, which
 * says what stands for a CNP and why.
 */
#include "tcp_line.h"

#include "../dcqcn.h"

#pragma GCC visibility push(hidden)
#include "../dcqcn.c"
#pragma GCC visibility pop

#define CA_ACK_ECE 4
#define CA_EVENT_ECN_NO_CE 4
#define CA_EVENT_ECN_IS_CE 5
#define ICSK_ACK_NOW 32
#define TCP_ECN_OK 1
#define TCP_ECN_DEMAND_CWR 4

char LICENSE[] SEC("license") = "GPL";

struct dcqcn_flow {
	struct dcqcn state;
	__u64 payload_bytes;	/* sent when it was last looked at, */
	__u64 segments;		/* and in so many segments */
};

/* What a host's flows do by, and what they have counted. fabric/world/kernel_api/struct_ops.py and traffic/ know its layout. */
struct dcqcn_host {
	struct dcqcn_parameters parameters;
	__u64 flows;		/* ends of connections that have used it */
	__u64 flows_without_ecn;
	__u64 cnps;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, LINE_MOST_HOSTS);
	__type(key, __u64);
	__type(value, struct dcqcn_host);
} HOSTS SEC(".maps");

static inline struct dcqcn_host *dcqcn_host(const struct sock *sk)
{
	__u64 host = line_host(sk);

	return bpf_map_lookup_elem(&HOSTS, &host);
}

#define FLOW_WORDS (sizeof(struct dcqcn_flow) / sizeof(__u64))

union dcqcn_words {
	struct dcqcn_flow flow;
	__u64 words[FLOW_WORDS];
};

/* A socket has room for a flow, 13 words; the core works on a copy of it. */
static inline void dcqcn_take(struct sock *sk, union dcqcn_words *copy)
{
	const struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	_Static_assert(FLOW_WORDS <= 13, "a flow does not fit into icsk_ca_priv");
#pragma unroll
	for (int place = 0; place < FLOW_WORDS; place++)
		copy->words[place] = icsk->icsk_ca_priv[place];
}

static inline void dcqcn_put(struct sock *sk, const union dcqcn_words *copy)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

#pragma unroll
	for (int place = 0; place < FLOW_WORDS; place++)
		icsk->icsk_ca_priv[place] = copy->words[place];
}

static inline void dcqcn_note_sent(struct dcqcn_flow *flow, const struct tcp_sock *tp)
{
	flow->payload_bytes = tp->bytes_sent;
	flow->segments = tp->data_segs_out;
}

static inline void dcqcn_catch_up(struct sock *sk, struct dcqcn_flow *flow, const struct dcqcn_host *host)
{
	const struct tcp_sock *tp = line_tcp(sk);
	__u64 sent_bytes = tp->bytes_sent - flow->payload_bytes;

	sent_bytes += (__u64)(__u32)(tp->data_segs_out - (__u32)flow->segments) * line_overhead_bytes(tp);
	dcqcn_note_sent(flow, tp);
	dcqcn_advance(&flow->state, &host->parameters, tp->tcp_clock_cache, sent_bytes);
}

SEC("struct_ops/dcqcn_init")
void BPF_PROG(dcqcn_init, struct sock *sk)
{
	struct dcqcn_host *host = dcqcn_host(sk);
	union dcqcn_words copy = {};

	line_open_window(sk, host != NULL);
	if (!host)
		return;
	dcqcn_start(&copy.flow.state, &host->parameters);
	dcqcn_note_sent(&copy.flow, line_tcp(sk));
	line_pace(sk, copy.flow.state.rate_bps);
	dcqcn_put(sk, &copy);
	if (!line_is_connection(sk))
		return;
	__sync_fetch_and_add(&host->flows, 1);
	if (!(line_tcp(sk)->ecn_flags & TCP_ECN_OK))
		__sync_fetch_and_add(&host->flows_without_ecn, 1);
}

/* Called whenever something may be sent. */
SEC("struct_ops/dcqcn_min_tso_segs")
__u32 BPF_PROG(dcqcn_min_tso_segs, struct sock *sk)
{
	struct dcqcn_host *host = dcqcn_host(sk);
	union dcqcn_words copy;

	if (!host)
		return 1;
	dcqcn_take(sk, &copy);
	dcqcn_catch_up(sk, &copy.flow, host);
	line_pace(sk, copy.flow.state.rate_bps);
	dcqcn_put(sk, &copy);
	return 1;
}

SEC("struct_ops/dcqcn_in_ack_event")
void BPF_PROG(dcqcn_in_ack_event, struct sock *sk, __u32 flags)
{
	struct dcqcn_host *host = dcqcn_host(sk);
	union dcqcn_words copy;

	if (!host || !(flags & CA_ACK_ECE))
		return;
	dcqcn_take(sk, &copy);
	dcqcn_catch_up(sk, &copy.flow, host);
	if (dcqcn_hear(&copy.flow.state, &host->parameters, line_tcp(sk)->tcp_clock_cache))
		__sync_fetch_and_add(&host->cnps, 1);
	line_pace(sk, copy.flow.state.rate_bps);
	dcqcn_put(sk, &copy);
}

/* The receiver's end: acknowledgements say of each packet whether it was marked. */
SEC("struct_ops/dcqcn_cwnd_event")
void BPF_PROG(dcqcn_cwnd_event, struct sock *sk, int event)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	if (event == CA_EVENT_ECN_IS_CE)
		icsk->icsk_ack.pending |= ICSK_ACK_NOW;
	else if (event == CA_EVENT_ECN_NO_CE)
		line_tcp(sk)->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

/* Called with every acknowledgement. */
SEC("struct_ops/dcqcn_cong_control")
void BPF_PROG(dcqcn_cong_control, struct sock *sk)
{
	line_open_window(sk, dcqcn_host(sk) != NULL);
}

SEC("struct_ops/dcqcn_ssthresh")
__u32 BPF_PROG(dcqcn_ssthresh, struct sock *sk)
{
	return LINE_NO_THRESHOLD;
}

SEC("struct_ops/dcqcn_undo_cwnd")
__u32 BPF_PROG(dcqcn_undo_cwnd, struct sock *sk)
{
	return line_tcp(sk)->snd_cwnd;
}

SEC(".struct_ops")
struct tcp_congestion_ops dcqcn = {
	.ssthresh = (void *)dcqcn_ssthresh,
	.cong_control = (void *)dcqcn_cong_control,
	.undo_cwnd = (void *)dcqcn_undo_cwnd,
	.min_tso_segs = (void *)dcqcn_min_tso_segs,
	.in_ack_event = (void *)dcqcn_in_ack_event,
	.cwnd_event = (void *)dcqcn_cwnd_event,
	.init = (void *)dcqcn_init,
	.name = "dcqcn",
	.flags = TCP_CONG_NEEDS_ECN | TCP_CONG_NON_RESTRICTED,
};
