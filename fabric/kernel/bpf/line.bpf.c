// SPDX-License-Identifier: GPL-2.0
/*
 * The TCP congestion control `line` as BPF programs: none, see ../tcp_line.c. Paced by twice the rate of the links, which
 * never binds, so that little waits in a host beside what its port holds.
 */
#include "tcp_line.h"

char LICENSE[] SEC("license") = "GPL";

/* What a host's flows do by, and how many they were. */
struct line_host {
	__u64 line_rate_bps;
	__u64 flows;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, LINE_MOST_HOSTS);
	__type(key, __u64);
	__type(value, struct line_host);
} HOSTS SEC(".maps");

static inline struct line_host *line_parameters(const struct sock *sk)
{
	__u64 host = line_host(sk);

	return bpf_map_lookup_elem(&HOSTS, &host);
}

SEC("struct_ops/line_init")
void BPF_PROG(line_init, struct sock *sk)
{
	struct line_host *host = line_parameters(sk);

	line_open_window(sk, host != NULL);
	if (!host)
		return;
	line_pace(sk, 2 * host->line_rate_bps);
	if (line_is_connection(sk))
		__sync_fetch_and_add(&host->flows, 1);
}

SEC("struct_ops/line_min_tso_segs")
__u32 BPF_PROG(line_min_tso_segs, struct sock *sk)
{
	return 1;
}

/* Called with every acknowledgement. */
SEC("struct_ops/line_cong_control")
void BPF_PROG(line_cong_control, struct sock *sk)
{
	struct line_host *host = line_parameters(sk);

	line_open_window(sk, host != NULL);
	if (host)
		line_pace(sk, 2 * host->line_rate_bps);
}

SEC("struct_ops/line_ssthresh")
__u32 BPF_PROG(line_ssthresh, struct sock *sk)
{
	return LINE_NO_THRESHOLD;
}

SEC("struct_ops/line_undo_cwnd")
__u32 BPF_PROG(line_undo_cwnd, struct sock *sk)
{
	return line_tcp(sk)->snd_cwnd;
}

SEC(".struct_ops")
struct tcp_congestion_ops line = {
	.ssthresh = (void *)line_ssthresh,
	.cong_control = (void *)line_cong_control,
	.undo_cwnd = (void *)line_undo_cwnd,
	.min_tso_segs = (void *)line_min_tso_segs,
	.init = (void *)line_init,
	.name = "line",
	.flags = TCP_CONG_NON_RESTRICTED,
};
