// SPDX-License-Identifier: GPL-2.0
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/dsfield.h>
#include <net/ip.h>

#include "vl_classify.h"

/*
 * Whether a segment carries no data and does not end its connection. One with data, however short, must not overtake
 * the data before it: TCP would take that for loss.
 */
static bool vl_is_bare_segment(struct sk_buff *frame, const struct iphdr *ip)
{
	struct tcphdr buffer;
	const struct tcphdr *tcp;

	if (ip->protocol != IPPROTO_TCP || ip_is_fragment(ip))
		return false;
	tcp = skb_header_pointer(frame, skb_network_offset(frame) + ip->ihl * 4, sizeof(buffer), &buffer);
	return tcp && !tcp->fin && ntohs(ip->tot_len) == (ip->ihl + tcp->doff) * 4;
}

static bool vl_is_control(struct sk_buff *frame)
{
	const struct iphdr *ip = ip_hdr(frame);

	return ip->protocol == IPPROTO_ICMP || vl_is_bare_segment(frame, ip);
}

u8 vl_lane_of(const struct vl_config *config, struct sk_buff *frame)
{
	u8 dscp = 0;

	switch (skb_protocol(frame, true)) {
	case htons(ETH_P_IP):
		if (!pskb_network_may_pull(frame, sizeof(struct iphdr)))
			break;
		if (config->control_lane != VL_NO_LANE && vl_is_control(frame))
			return config->control_lane;
		dscp = ipv4_get_dsfield(ip_hdr(frame)) >> 2;
		break;
	case htons(ETH_P_IPV6):
		if (pskb_network_may_pull(frame, sizeof(struct ipv6hdr)))
			dscp = ipv6_get_dsfield(ipv6_hdr(frame)) >> 2;
		break;
	}
	return config->lane_of_dscp[dscp];
}
