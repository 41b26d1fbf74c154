// SPDX-License-Identifier: GPL-2.0
#include <linux/math64.h>
#include <linux/random.h>
#include <net/inet_ecn.h>
#include <net/pkt_sched.h>

#include "vl_marking.h"

static bool vl_is_to_be_marked(const struct vl_lane_options *options, u32 bytes)
{
	u32 min_bytes = options->mark_min_bytes, max_bytes = options->mark_max_bytes;

	if (!max_bytes || bytes <= min_bytes)
		return false;
	if (bytes > max_bytes)
		return true;
	return get_random_u32() < div_u64((u64)options->mark_probability * (bytes - min_bytes), max_bytes - min_bytes);
}

static u32 vl_ip_header_bytes(const struct sk_buff *frame)
{
	switch (skb_protocol(frame, true)) {
	case htons(ETH_P_IP):
		return sizeof(struct iphdr);
	case htons(ETH_P_IPV6):
		return sizeof(struct ipv6hdr);
	default:
		return 0;
	}
}

/* The two bits that say of IPv4 and IPv6 alike whether a frame's ends know ECN, and whether it is marked. */
static u8 vl_ecn_of(const struct sk_buff *frame)
{
	u8 field = skb_protocol(frame, true) == htons(ETH_P_IP) ? ipv4_get_dsfield(ip_hdr(frame)) :
								  ipv6_get_dsfield(ipv6_hdr(frame));

	return field & INET_ECN_MASK;
}

void vl_mark(struct vl_sched *q, u8 lane, struct sk_buff *frame)
{
	u32 bytes = vl_ip_header_bytes(frame);

	if (!vl_is_to_be_marked(&q->link->options[lane], q->lanes[lane].bytes) || !bytes)
		return;
	if (skb_ensure_writable(frame, skb_network_offset(frame) + bytes))
		return;
	if (vl_ecn_of(frame) == INET_ECN_CE || !INET_ECN_set_ce(frame))
		return;
	q->lanes[lane].marked_packets++;
	q->lanes[lane].marked_bytes += qdisc_pkt_len(frame);
}
