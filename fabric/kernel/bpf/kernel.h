/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the BPF programs here know of the kernel: the members that they use, whose places are found when a program is
 * loaded, in the description of its types that the kernel carries (BTF). So a program is compiled once for all kernels,
 * and without their headers.
 */
#ifndef FABRIC_BPF_KERNEL_H
#define FABRIC_BPF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

struct possible_net {
	struct net *net;
};

struct sock_common {
	unsigned char skc_state;
	struct possible_net skc_net;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
};

struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
};

struct tcp_sock {
	__u16 tcp_header_len;
	__u32 mss_cache;
	__u32 max_window;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 data_segs_out;
	__u64 bytes_sent;
	__u64 tcp_clock_cache;
	__u8 ecn_flags;
};

struct rate_sample;

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*min_tso_segs)(struct sock *sk);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*cwnd_event)(struct sock *sk, int event);
	void (*init)(struct sock *sk);
	char name[16];
	__u32 flags;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	__u32 handle;
	struct hlist_node hash;
	struct gnet_stats_queue qstats;
};

struct net_device {
	struct hlist_head qdisc_hash[16];
};

struct sk_buff {
	struct net_device *dev;
};

#pragma clang attribute pop

#endif
