// SPDX-License-Identifier: GPL-2.0
/*
 * Marks frames (ECN) on their way into the queues of an HTB, where the kernel has no RED: by how many bytes wait in the
 * frame's lane at the moment. It is the filter of the HTB, and so also says which lane that is, by the rules of
 * fabric/queueing/classifier.py. Each frame that may be marked has a toss of its own.
 */
#include "kernel.h"

#include <bpf/bpf_endian.h>

#define ETH_P_IP 0x0800
#define ETHERNET_HEADER_BYTES 14
#define IP_HEADER_BYTES 20
#define PLAIN_HEADER 0x45
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define TCP_FIN 1
#define ECN_BITS 3
#define CONTROL 256		/* Place of the control lane, behind those of all TOS bytes. */
#define MOST_QUEUES 65536
#define MOST_IN_BUCKET 64
#define GOLDEN_RATIO_32 0x61c88647	/* of the kernel's hash_32() */
#define BUCKET_BITS 4

char LICENSE[] SEC("license") = "GPL";

struct mark_lane {
	__u32 classid;		/* 0: there is no such lane */
	__u32 kmin;
	__u32 kmax;		/* 0: it does not mark */
	__u32 pmax;		/* in 2^-32 */
};

struct mark_queue {
	__u32 interface;
	__u32 minor;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CONTROL + 1);
	__type(key, __u32);
	__type(value, struct mark_lane);
} lanes SEC(".maps");

/* How many frames each queue has marked; that of interface 0: how many were to go into a queue that was not found. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_QUEUES);
	__type(key, struct mark_queue);
	__type(value, __u64);
} marks SEC(".maps");


extern void *bpf_cast_to_kern_ctx(void *frame) __ksym;

/* ICMP, and segments with nothing behind their header that do not end a connection. */
static inline int mark_is_control(struct __sk_buff *frame, const __u8 *ip)
{
	__u8 tcp[14];

	if (ip[9] == PROTOCOL_ICMP)
		return 1;
	if (ip[9] != PROTOCOL_TCP || ip[0] != PLAIN_HEADER)
		return 0;
	if (bpf_skb_load_bytes(frame, ETHERNET_HEADER_BYTES + IP_HEADER_BYTES, tcp, sizeof(tcp)))
		return 0;
	return !(tcp[13] & TCP_FIN) && ((ip[2] << 8) | ip[3]) == IP_HEADER_BYTES + (tcp[12] >> 4) * 4;
}

/*
 * Lets a frame be written to. What userspace switching sends is in pages, but for the Ethernet header, as soon as it does
 * not fit into one; so nothing else can mark it, RED included.
 */
static inline int mark_set(struct __sk_buff *frame)
{
	bpf_skb_pull_data(frame, ETHERNET_HEADER_BYTES + IP_HEADER_BYTES);
	return bpf_skb_ecn_set_ce(frame);
}

/* Returns how many bytes wait in a queue of the frame's port; less than 0: there is no such queue. */
static inline __s64 mark_waiting(struct __sk_buff *frame, __u32 handle)
{
	const struct sk_buff *kernel = bpf_cast_to_kern_ctx(frame);
	__u32 bucket = (handle * GOLDEN_RATIO_32) >> (32 - BUCKET_BITS);
	const void *place = (const void *)kernel->dev;
	const struct hlist_node *node = NULL;

	place += bpf_core_field_offset(struct net_device, qdisc_hash) + bucket * sizeof(struct hlist_head);
	bpf_probe_read_kernel(&node, sizeof(node), place);
	for (int turn = 0; turn < MOST_IN_BUCKET && node; turn++) {
		const struct Qdisc *queue = (const void *)node - bpf_core_field_offset(struct Qdisc, hash);

		if (BPF_CORE_READ(queue, handle) == handle)
			return BPF_CORE_READ(queue, qstats.backlog);
		node = BPF_CORE_READ(node, next);
	}
	return -1;
}

static inline int mark_is_due(const struct mark_lane *lane, __u64 waiting)
{
	if (waiting <= lane->kmin)
		return 0;
	if (waiting > lane->kmax)
		return 1;
	return bpf_get_prandom_u32() < (waiting - lane->kmin) * lane->pmax / (lane->kmax - lane->kmin);
}

static inline void mark_count(__u32 interface, __u32 minor)
{
	struct mark_queue queue = { .interface = interface, .minor = minor };
	__u64 none = 0, *count;

	bpf_map_update_elem(&marks, &queue, &none, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&marks, &queue);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static inline void mark_frame(struct __sk_buff *frame, const struct mark_lane *lane)
{
	__u32 minor = lane->classid & 0xffff;
	__s64 waiting = mark_waiting(frame, minor << 16);

	if (waiting < 0)
		mark_count(0, 0);
	else if (mark_is_due(lane, waiting) && mark_set(frame))
		mark_count(frame->ifindex, minor);
}

SEC("tc")
int mark(struct __sk_buff *frame)
{
	__u8 ip[IP_HEADER_BYTES];
	const struct mark_lane *lane;
	__u32 place = CONTROL;

	if (frame->protocol != bpf_htons(ETH_P_IP))
		return 0;
	if (bpf_skb_load_bytes(frame, ETHERNET_HEADER_BYTES, ip, sizeof(ip)))
		return 0;
	lane = bpf_map_lookup_elem(&lanes, &place);
	if (lane && lane->classid && mark_is_control(frame, ip))
		return lane->classid;
	place = ip[1] & ~ECN_BITS;
	lane = bpf_map_lookup_elem(&lanes, &place);
	if (!lane)
		return 0;
	if (lane->kmax && (ip[1] & ECN_BITS))
		mark_frame(frame, lane);
	return lane->classid;
}
