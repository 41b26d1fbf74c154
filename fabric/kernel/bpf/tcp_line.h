/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What `line` and `dcqcn` have in common as BPF programs: no congestion window to speak of, frames one by one.
 *
 * What the modules set and a BPF program may not is there in another way. Frames are single because the links of hosts
 * are made so (gso_max_segs 1). Of a socket two frames or 1 ms of its rate wait in its host. And since a send buffer
 * grows with the congestion window, that is no fixed large one but twice the receiver's window, which never binds.
 *
 * The kernel has one list of congestion controls for all its network namespaces. What a flow is to do depends on the
 * host that it is in: each has an entry in a map. A socket anywhere else has a window of ten segments.
 */
#ifndef FABRIC_BPF_TCP_LINE_H
#define FABRIC_BPF_TCP_LINE_H

#include "kernel.h"

#define LINE_MOST_HOSTS 65536
#define LINE_LEAST_WINDOW 64	/* Before the receiver has opened its window. */
#define LINE_WINDOW_ELSEWHERE 10
#define LINE_MOST_WINDOW 16384
#define LINE_NO_THRESHOLD 0x7fffffff
#define ETHERNET_HEADER_BYTES 14
#define IP_HEADER_BYTES 20

#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define TCP_CONG_NON_RESTRICTED 1
#define TCP_CONG_NEEDS_ECN 2

static inline struct tcp_sock *line_tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline __u64 line_host(const struct sock *sk)
{
	return sk->__sk_common.skc_net.net->net_cookie;
}

static inline __u32 line_overhead_bytes(const struct tcp_sock *tp)
{
	return tp->tcp_header_len + IP_HEADER_BYTES + ETHERNET_HEADER_BYTES;
}

/* Whether a socket is an end of a connection, or about to be one. */
static inline int line_is_connection(const struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;

	return state != TCP_CLOSE && state != TCP_LISTEN;
}

/* Paces by a rate of frames, within what the program itself has set (SO_MAX_PACING_RATE). */
static inline void line_pace(struct sock *sk, __u64 rate_bps)
{
	const struct tcp_sock *tp = line_tcp(sk);
	__u64 mss = tp->mss_cache ? tp->mss_cache : 1, most = sk->sk_max_pacing_rate;
	__u64 rate = rate_bps / 8 * mss / (mss + line_overhead_bytes(tp));

	sk->sk_pacing_rate = rate < most ? rate : most;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

static inline void line_open_window(struct sock *sk, int is_host)
{
	struct tcp_sock *tp = line_tcp(sk);
	__u32 mss = tp->mss_cache ? tp->mss_cache : 1, window = 2 * (tp->max_window / mss);

	if (window < LINE_LEAST_WINDOW)
		window = LINE_LEAST_WINDOW;
	if (window > LINE_MOST_WINDOW)
		window = LINE_MOST_WINDOW;
	*(volatile __u32 *)&tp->snd_cwnd = is_host ? window : LINE_WINDOW_ELSEWHERE;
	*(volatile __u32 *)&tp->snd_ssthresh = LINE_NO_THRESHOLD;
}

#endif
