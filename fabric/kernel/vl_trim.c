// SPDX-License-Identifier: GPL-2.0
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/pkt_sched.h>

#include "vl_trim.h"

/* Whether it is UDP over IPv4, whole, without a checksum, which would be another one, and longer than what would be left. */
static bool vl_can_be_trimmed(struct sk_buff *frame, u32 bytes)
{
	const struct iphdr *ip = ip_hdr(frame);
	struct udphdr buffer;
	const struct udphdr *udp;

	if (skb_protocol(frame, true) != htons(ETH_P_IP) || !pskb_network_may_pull(frame, sizeof(*ip)))
		return false;
	ip = ip_hdr(frame);
	if (ip->protocol != IPPROTO_UDP || ip_is_fragment(ip) || ntohs(ip->tot_len) <= bytes)
		return false;
	udp = skb_header_pointer(frame, skb_network_offset(frame) + ip->ihl * 4, sizeof(buffer), &buffer);
	return udp && !udp->check && bytes >= ip->ihl * 4 + sizeof(*udp);
}

bool vl_trim(struct vl_sched *q, u8 lane, struct sk_buff *frame)
{
	u32 bytes = q->config.port.trim_bytes, cut, left = skb_network_offset(frame) + bytes;
	struct iphdr *ip;
	struct udphdr *udp;

	if (!bytes || !vl_can_be_trimmed(frame, bytes) || skb_ensure_writable(frame, left))
		return false;
	cut = frame->len - left;
	if (pskb_trim(frame, left))
		return false;
	ip = ip_hdr(frame);
	udp = (struct udphdr *)((u8 *)ip + ip->ihl * 4);
	ip->tot_len = htons(bytes);
	udp->len = htons(bytes - ip->ihl * 4);
	ipv4_change_dsfield(ip, INET_ECN_MASK, q->config.port.trim_dscp << 2);
	ip_send_check(ip);
	frame->ip_summed = CHECKSUM_NONE;
	qdisc_skb_cb(frame)->pkt_len = frame->len;
	q->lanes[lane].trimmed_packets++;
	q->lanes[lane].trimmed_bytes += cut;
	return true;
}
