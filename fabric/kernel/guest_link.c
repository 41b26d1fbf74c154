// SPDX-License-Identifier: GPL-2.0
/*
 * guest_link: an interface whose other end is in another guest of the same run.
 *
 * Guests share memory (peers.c.inc says how they share time): a ring of frames for each pair of guests and direction.
 * Sending puts a frame into the ring with the time of its arrival, a link's delay later. The other guest takes it before
 * its clock is there, and has it arrive then, as veth would have.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/time-internal.h>
#include <linux/version.h>
#include <net/rtnetlink.h>

#include "guest_link.h"
#include "guest_link_abi.h"

enum guest_link_kind {
	GUEST_LINK_FRAME,
	GUEST_LINK_NEWS,	/* what a frame took is free: no frame, but the claim, `at_ns` */
	GUEST_LINK_PADDING,	/* up to the end of the ring */
};

struct guest_link_message {		/* in a ring, before a frame's bytes; a whole number of lines in all */
	u64 arrival_ns;
	u32 link, size;			/* the size of all */
	u32 bytes, head_bytes, truesize;
	u16 csum_start, csum_offset;
	u8 ip_summed, kind, pieces;
	u64 at_ns;
	struct guest_link_claim claim;
	u32 head_size, headroom;	/* of the memory that its head is in, and of what is free in front of it there */
	u32 piece_bytes[MAX_SKB_FRAGS];	/* of what follows its head */
};

/* What arrives by a link, in order of time. */
struct guest_link_queue {
	struct guest_link *link;
	unsigned int order;		/* among what arrives at the same moment */
	struct sk_buff_head waiting;
	struct time_travel_event event;
};

struct guest_link {
	struct net_device *dev;
	u32 id, guest, peer_index;
	u64 delay_ns;
	struct guest_link_queue frames, news;
};

struct guest_link_arrival {		/* in a waiting frame's control block, */
	u64 arrival_ns, at_ns;
	struct guest_link_claim claim;
};

unsigned long find_iomem(char *driver, unsigned long *len_out);

static unsigned int self, guests;
static unsigned long long lookahead_ns;
static unsigned int looks;	/* how often this guest looks at others before it sleeps */
module_param(self, uint, 0444);
module_param(guests, uint, 0444);
module_param(lookahead_ns, ullong, 0444);
module_param(looks, uint, 0444);

/* Frames for which there was no memory: that must not be. */
static unsigned long lost;
module_param(lost, ulong, 0444);

static struct time_travel_peers *shared;
static struct guest_link *links[GUEST_LINK_MOST];
static const struct guest_link_cargo *cargo;

static struct guest_link_arrival *guest_link_arrival_of(struct sk_buff *skb)
{
	return (struct guest_link_arrival *)skb->cb;
}

static struct time_travel_ring *guest_link_ring_between(unsigned int from, unsigned int to)
{
	return time_travel_ring(shared, guests, from, to);
}

/* Receiving ------------------------------------------------------------------------------------------------------------ */

static void guest_link_frame_arrives(struct guest_link *link, struct sk_buff *frame)
{
	struct guest_link_arrival arrival = *guest_link_arrival_of(frame);
	unsigned int bytes = frame->len;

	memset(frame->cb, 0, sizeof(frame->cb));
	if (arrival.claim.record)
		cargo->comes(frame, link->id, &arrival.claim);
	if (!(link->dev->flags & IFF_UP)) {
		kfree_skb(frame);
		return;
	}
	frame->protocol = eth_type_trans(frame, link->dev);
	dev_sw_netstats_rx_add(link->dev, bytes);
	netif_rx(frame);
}

static void guest_link_news_arrives(struct sk_buff *news)
{
	struct guest_link_arrival *arrival = guest_link_arrival_of(news);

	cargo->returns(arrival->claim.record, arrival->at_ns);
	consume_skb(news);
}

static void guest_link_deliver(struct time_travel_event *event)
{
	struct guest_link_queue *queue = container_of(event, struct guest_link_queue, event);
	struct sk_buff *first;

	while ((first = skb_peek(&queue->waiting)) && guest_link_arrival_of(first)->arrival_ns <= time_travel_now()) {
		__skb_unlink(first, &queue->waiting);
		if (queue == &queue->link->news)
			guest_link_news_arrives(first);
		else
			guest_link_frame_arrives(queue->link, first);
	}
	if (first && !event->pending)
		time_travel_add_arrival(event, guest_link_arrival_of(first)->arrival_ns, queue->order);
}

/* Gives a frame pieces of memory as it had, each in one. Returns false if there is none. */
static bool guest_link_add_pieces(struct sk_buff *frame, const struct guest_link_message *message)
{
	unsigned int piece;

	for (piece = 0; piece < message->pieces; piece++) {
		u32 bytes = message->piece_bytes[piece];
		struct page *page = alloc_pages(GFP_ATOMIC | __GFP_COMP, get_order(bytes));

		if (!page)
			return false;
		skb_add_rx_frag(frame, piece, page, 0, bytes, bytes);
	}
	return true;
}

/*
 * Returns a frame as it was, in all that a receiver is charged for: TCP merges frames by their pieces, then charges what is
 * left without their heads, and opens its window by that. NULL: no memory.
 */
static struct sk_buff *guest_link_made_of(const struct guest_link_message *message)
{
	struct sk_buff *frame = alloc_skb(message->head_size, GFP_ATOMIC);

	if (!frame || message->kind == GUEST_LINK_NEWS)
		return frame;
	skb_reserve(frame, message->headroom);
	skb_put(frame, message->head_bytes);
	if (!guest_link_add_pieces(frame, message)) {
		kfree_skb(frame);
		return NULL;
	}
	skb_store_bits(frame, 0, message + 1, message->bytes);
	frame->truesize = message->truesize;
	frame->ip_summed = message->ip_summed;
	if (frame->ip_summed == CHECKSUM_PARTIAL) {
		frame->csum_start = skb_headroom(frame) + message->csum_start;
		frame->csum_offset = message->csum_offset;
	}
	return frame;
}

static void guest_link_take_message(const struct guest_link_message *message)
{
	struct guest_link *link = links[message->link];
	struct sk_buff *frame = link ? guest_link_made_of(message) : NULL;
	struct guest_link_queue *queue;

	if (!frame) {
		lost++;
		return;
	}
	queue = message->kind == GUEST_LINK_NEWS ? &link->news : &link->frames;
	frame->dev = link->dev;
	*guest_link_arrival_of(frame) = (struct guest_link_arrival){
		.arrival_ns = message->arrival_ns,
		.at_ns = message->at_ns,
		.claim = message->claim,
	};
	__skb_queue_tail(&queue->waiting, frame);
	if (!queue->event.pending)
		time_travel_add_arrival(&queue->event, guest_link_arrival_of(skb_peek(&queue->waiting))->arrival_ns,
					queue->order);
}

static void guest_link_take_from(struct time_travel_ring *ring)
{
	u64 written = time_travel_load(&ring->written), taken = ring->taken;

	while (taken != written) {
		const struct guest_link_message *message = (void *)(ring->messages + taken % TIME_TRAVEL_RING_BYTES);

		if (message->kind != GUEST_LINK_PADDING)
			guest_link_take_message(message);
		taken += message->size;
		time_travel_store(&ring->taken, taken);
	}
}

/* Takes all that others have sent to this guest. */
static void guest_link_take(void)
{
	unsigned int guest;

	for (guest = 0; guest < guests; guest++)
		if (guest != self)
			guest_link_take_from(guest_link_ring_between(guest, self));
}

/* Sending -------------------------------------------------------------------------------------------------------------- */

/* Waits until a ring has room: the other guest takes what is in it whenever it waits or comes to its next event. */
static void guest_link_wait_for_room(unsigned int to, u64 size)
{
	struct time_travel_ring *ring = guest_link_ring_between(self, to);

	while (ring->written + size - time_travel_load(&ring->taken) > TIME_TRAVEL_RING_BYTES) {
		guest_link_take();
		time_travel_waits_for_room(to);
	}
}

/* Returns where a message of that size in all begins; each is in one piece. */
static struct guest_link_message *guest_link_room(unsigned int to, u32 size)
{
	struct time_travel_ring *ring = guest_link_ring_between(self, to);
	u32 left = TIME_TRAVEL_RING_BYTES - ring->written % TIME_TRAVEL_RING_BYTES;
	struct guest_link_message *padding;

	if (left < size) {
		guest_link_wait_for_room(to, left);
		padding = (void *)(ring->messages + ring->written % TIME_TRAVEL_RING_BYTES);
		padding->kind = GUEST_LINK_PADDING;
		padding->size = left;
		time_travel_store(&ring->written, ring->written + left);
	}
	guest_link_wait_for_room(to, size);
	return (void *)(ring->messages + ring->written % TIME_TRAVEL_RING_BYTES);
}

static void guest_link_send(unsigned int to, const struct guest_link_message *message)
{
	struct time_travel_ring *ring = guest_link_ring_between(self, to);

	time_travel_store(&ring->written, ring->written + message->size);
	time_travel_has_sent(to, message->arrival_ns);
}

/* Notes in how many pieces of memory a frame is. It is no list of frames: see features. */
static void guest_link_note_pieces(struct guest_link_message *message, const struct sk_buff *frame)
{
	const struct skb_shared_info *shared = skb_shinfo(frame);
	unsigned int piece;

	message->head_size = skb_end_offset(frame);
	message->headroom = skb_headroom(frame);
	message->pieces = shared->nr_frags;
	for (piece = 0; piece < shared->nr_frags; piece++)
		message->piece_bytes[piece] = skb_frag_size(&shared->frags[piece]);
}

static void guest_link_write(struct guest_link *link, struct sk_buff *frame)
{
	u32 size = ALIGN(sizeof(struct guest_link_message) + frame->len, TIME_TRAVEL_LINE);
	struct guest_link_message *message = guest_link_room(link->guest, size);
	bool is_unsummed = frame->ip_summed == CHECKSUM_PARTIAL;

	*message = (struct guest_link_message){
		.arrival_ns = time_travel_now() + link->delay_ns,
		.link = link->id,
		.size = size,
		.bytes = frame->len,
		.head_bytes = skb_headlen(frame),
		.truesize = frame->truesize,
		.csum_start = is_unsummed ? skb_checksum_start_offset(frame) : 0,
		.csum_offset = is_unsummed ? frame->csum_offset : 0,
		.ip_summed = is_unsummed ? CHECKSUM_PARTIAL : CHECKSUM_UNNECESSARY,
		.kind = GUEST_LINK_FRAME,
	};
	guest_link_note_pieces(message, frame);
	if (cargo)
		cargo->leaves(frame, &message->claim);
	skb_copy_bits(frame, 0, message + 1, frame->len);
	guest_link_send(link->guest, message);
}

static void guest_link_return(u32 id, u64 record, u64 at_ns)
{
	u32 size = ALIGN(sizeof(struct guest_link_message), TIME_TRAVEL_LINE);
	struct guest_link_message *message;
	unsigned long flags;

	local_irq_save(flags);
	if (links[id]) {
		message = guest_link_room(links[id]->guest, size);
		*message = (struct guest_link_message){
			.arrival_ns = time_travel_now() + lookahead_ns,
			.link = id,
			.size = size,
			.kind = GUEST_LINK_NEWS,
			.at_ns = at_ns,
			.claim = { .record = record },
		};
		guest_link_send(links[id]->guest, message);
	}
	local_irq_restore(flags);
}

guest_link_return_fn *guest_link_carry(const struct guest_link_cargo *what)
{
	cargo = what;
	return guest_link_return;
}
EXPORT_SYMBOL_GPL(guest_link_carry);

static netdev_tx_t guest_link_xmit(struct sk_buff *skb, struct net_device *dev)
{
	unsigned long flags;

	local_irq_save(flags);
	guest_link_write(netdev_priv(dev), skb);
	local_irq_restore(flags);
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	consume_skb(skb);
	return NETDEV_TX_OK;
}

/* The interface -------------------------------------------------------------------------------------------------------- */

static int guest_link_init(struct net_device *dev)
{
	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	return dev->tstats ? 0 : -ENOMEM;
}

static void guest_link_make_queue(struct guest_link *link, struct guest_link_queue *queue, unsigned int order)
{
	queue->link = link;
	queue->order = order;
	queue->event.fn = guest_link_deliver;
	skb_queue_head_init(&queue->waiting);
}

static void guest_link_end_queue(struct guest_link_queue *queue)
{
	time_travel_drop_arrival(&queue->event);
	skb_queue_purge(&queue->waiting);
}

static void guest_link_uninit(struct net_device *dev)
{
	struct guest_link *link = netdev_priv(dev);

	links[link->id] = NULL;
	guest_link_end_queue(&link->frames);
	guest_link_end_queue(&link->news);
	free_percpu(dev->tstats);
}

static int guest_link_peer_index(const struct net_device *dev)
{
	return ((const struct guest_link *)netdev_priv(dev))->peer_index;
}

static const struct net_device_ops guest_link_ops = {
	.ndo_init = guest_link_init,
	.ndo_uninit = guest_link_uninit,
	.ndo_start_xmit = guest_link_xmit,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_get_iflink = guest_link_peer_index,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

/* Of this end only: programs ask whether their NIC's link is up. */
static const struct ethtool_ops guest_link_ethtool_ops = {
	.get_link = ethtool_op_get_link,
};

static void guest_link_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &guest_link_ops;
	dev->ethtool_ops = &guest_link_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE | IFF_NO_QUEUE;
	dev->features |= NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM | NETIF_F_HIGHDMA;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	dev->lltx = true;
#else
	dev->features |= NETIF_F_LLTX;
#endif
	dev->hw_features |= dev->features | NETIF_F_ALL_TSO;	/* which is switched off, as at every port */
	dev->max_mtu = ETH_MAX_MTU;
}

static const struct nla_policy guest_link_policy[GUEST_LINK_ATTRIBUTES] = {
	[GUEST_LINK_ID] = { .type = NLA_U32 },
	[GUEST_LINK_GUEST] = { .type = NLA_U32 },
	[GUEST_LINK_DELAY_NS] = { .type = NLA_U64 },
	[GUEST_LINK_PEER_INDEX] = { .type = NLA_U32 },
};

static int guest_link_validate(struct nlattr *tb[], struct nlattr *data[], struct netlink_ext_ack *extack)
{
	u32 id;

	if (!data || !data[GUEST_LINK_ID] || !data[GUEST_LINK_GUEST] || !data[GUEST_LINK_DELAY_NS] ||
	    !data[GUEST_LINK_PEER_INDEX]) {
		NL_SET_ERR_MSG(extack, "a guest_link needs an id, a guest, a delay and the other end's index");
		return -EINVAL;
	}
	id = nla_get_u32(data[GUEST_LINK_ID]);
	if (id >= GUEST_LINK_MOST || links[id]) {
		NL_SET_ERR_MSG(extack, "the id of a guest_link is too large, or another one's");
		return -EINVAL;
	}
	if (nla_get_u32(data[GUEST_LINK_GUEST]) >= guests || nla_get_u32(data[GUEST_LINK_GUEST]) == self) {
		NL_SET_ERR_MSG(extack, "no such other guest");
		return -EINVAL;
	}
	if (nla_get_u64(data[GUEST_LINK_DELAY_NS]) < lookahead_ns) {
		NL_SET_ERR_MSG(extack, "the delay of a guest_link is shorter than the lookahead");
		return -EINVAL;
	}
	return 0;
}

static int guest_link_new(struct net *net, struct net_device *dev, struct nlattr *tb[], struct nlattr *data[],
			  struct netlink_ext_ack *extack)
{
	struct guest_link *link = netdev_priv(dev);
	int fault;

	link->dev = dev;
	link->id = nla_get_u32(data[GUEST_LINK_ID]);
	link->guest = nla_get_u32(data[GUEST_LINK_GUEST]);
	link->delay_ns = nla_get_u64(data[GUEST_LINK_DELAY_NS]);
	link->peer_index = nla_get_u32(data[GUEST_LINK_PEER_INDEX]);
	guest_link_make_queue(link, &link->news, 1 + 2 * link->id);
	guest_link_make_queue(link, &link->frames, 2 + 2 * link->id);
	fault = register_netdevice(dev);
	if (!fault)
		links[link->id] = link;
	return fault;
}

static struct rtnl_link_ops guest_link_kind __read_mostly = {
	.kind = "guest_link",
	.priv_size = sizeof(struct guest_link),
	.setup = guest_link_setup,
	.maxtype = GUEST_LINK_ATTRIBUTES - 1,
	.policy = guest_link_policy,
	.validate = guest_link_validate,
	.newlink = guest_link_new,
};

static int __init guest_link_start(void)
{
	unsigned long size;
	int fault;

	BUILD_BUG_ON(sizeof(struct time_travel_ring) % TIME_TRAVEL_LINE);
	BUILD_BUG_ON(sizeof(struct time_travel_peers) > TIME_TRAVEL_CLOCKS_BYTES);
	shared = (struct time_travel_peers *)find_iomem("peers", &size);
	if (!shared || guests < 2 || guests > TIME_TRAVEL_MOST_GUESTS || self >= guests || !lookahead_ns ||
	    size < TIME_TRAVEL_CLOCKS_BYTES + guests * guests * sizeof(struct time_travel_ring))
		return -EINVAL;
	fault = rtnl_link_register(&guest_link_kind);
	if (fault)
		return fault;
	time_travel_join(shared, self, guests, lookahead_ns, looks, guest_link_take);
	return 0;
}
module_init(guest_link_start);

/* There is no way out but the guest's end: the clock calls this module. */
MODULE_DESCRIPTION("interfaces between guests of one run");
MODULE_LICENSE("GPL");
