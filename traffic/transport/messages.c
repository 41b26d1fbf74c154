/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over datagrams: what two ends do, for traffic/transport/messages.py. No sockets, no clock: messages_port.c.
 *
 * Programs write into a ring; packets are cut from it, none across the end of a message, and are placed into the receiver's
 * ring in whatever order they come. A program is told once all of a message is there. Receivers answer every fourth packet,
 * and those that ask for it, with the first packet missing and a bit for each later one that came. A packet counts as lost
 * if a switch has cut it down to its header, if later ones of its path have come, or if a probe that was sent long after it
 * is answered. What is lost is sent again, and nothing else.
 *
 * Who may send: `line` all that the receiver has room for; `credits` what a receiver has given credit for, a packet per
 * packet's time over all that send to it, after a first window that needs none (Olteanu et al., "An edge-queued datagram
 * service for all datacenter traffic", NSDI 2022); `nscc` a window by marks and delay (nscc_...).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

#define ANSWER_EVERY 4 /* 16 KiB, as EQDS in htsim. */
#define CREDITS_EACH 2 /* One would be an answer per packet, which the other way's data would have to share its link with. */
#define UDP_BYTES 28 /* IPv4 and UDP. */
#define FRAME_BYTES 14 /* Ethernet, as the queues of the emulator count it. */
#define MOST_BACKOFF 6

enum state { STATE_SENT = 1, STATE_LOST, STATE_CAME };

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static uint64_t most_of(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

void port_init(struct port *port, const struct options *options)
{
	port->options = *options;
	port->payload_bytes = options->mtu_bytes - UDP_BYTES - sizeof(struct header);
	port->due_ns = UINT64_MAX;
	port->frame_ns = (options->mtu_bytes + FRAME_BYTES) * 8ull * 1000000000 / options->rate_bps;
}

bool connection_init(struct connection *it, struct port *port, uint32_t ring_bytes)
{
	it->port = port;
	it->ring_bytes = it->room_bytes = ring_bytes;
	it->outward = malloc(ring_bytes);
	it->inward = malloc(ring_bytes);
	it->room_until = it->told = ring_bytes;
	it->credits = it->given = port->options.unsolicited;
	it->window = (double)port->options.unsolicited * port->payload_bytes;
	return it->outward && it->inward;
}

void connection_free(struct connection *it)
{
	free(it->outward);
	free(it->inward);
	free(it);
}

/* Lists of a port ----------------------------------------------------------------------------------------------------- */

static void get_ready(struct connection *it)
{
	struct port *port = it->port;

	if (it->is_ready || it->ended)
		return;
	it->is_ready = true;
	it->next_ready = NULL;
	*(port->ready ? &port->ready_end->next_ready : &port->ready) = it;
	port->ready_end = it;
}

static struct connection *next_ready(struct port *port)
{
	struct connection *it = port->ready;

	port->ready = it->next_ready;
	it->is_ready = false;
	return it;
}

static void get_credits(struct connection *it)
{
	struct port *port = it->port;

	if (port->options.control != CONTROL_CREDITS || it->pulls || it->ended || it->given >= it->wanted)
		return;
	it->pulls = true;
	it->next_pull = NULL;
	*(port->pulling ? &port->pulling_end->next_pull : &port->pulling) = it;
	port->pulling_end = it;
}

void connection_forget(struct connection *it)
{
	struct port *port = it->port;
	struct connection *one;

	it->ended = true;
	for (struct connection *list = port->ready, *next = (port->ready = NULL, list); (one = next);) {
		next = one->next_ready;
		one->is_ready = false;
		get_ready(one);
	}
	for (struct connection *list = port->pulling, *next = (port->pulling = NULL, list); (one = next);) {
		next = one->next_pull;
		one->pulls = false;
		get_credits(one);
	}
}

/* Outward ------------------------------------------------------------------------------------------------------------- */

static void due_at(struct connection *it, uint64_t at_ns)
{
	it->deadline_ns = at_ns;
	it->port->due_ns = least(it->port->due_ns, at_ns);
}

static struct sent *sent_of(struct connection *it, uint64_t number)
{
	return &it->sent[number % SLOTS];
}

uint64_t connection_room(const struct connection *it)
{
	uint64_t held = it->written - it->acknowledged;

	return held >= it->room_bytes || it->ends_next - it->ends_first >= SLOTS ? 0 : it->room_bytes - held;
}

/* Copy between a ring and memory: `into_ring` says which way. */
static void copy_ring(char *ring, uint32_t ring_bytes, uint64_t at, char *other, uint64_t size, bool into_ring)
{
	while (size) {
		uint64_t place = at % ring_bytes, part = least(size, ring_bytes - place);

		if (into_ring)
			memcpy(ring + place, other, part);
		else
			memcpy(other, ring + place, part);
		at += part;
		other += part;
		size -= part;
	}
}

/* Take what there is room for of buffers that have `all` bytes, of which `skip` are taken; return how many are by then. */
uint64_t connection_write(struct connection *it, const struct iovec *from, uint64_t skip, uint64_t all)
{
	uint64_t done = skip, size = least(connection_room(it), all - skip);

	for (; size; from++) {
		uint64_t part;

		if (skip >= from->iov_len) {
			skip -= from->iov_len;
			continue;
		}
		part = least(from->iov_len - skip, size);
		copy_ring(it->outward, it->ring_bytes, it->written, (char *)from->iov_base + skip, part, true);
		it->written += part;
		done += part;
		size -= part;
		skip = 0;
	}
	if (done == all && all)
		it->ends[it->ends_next++ % SLOTS] = it->written;
	get_ready(it);
	return done;
}

static uint64_t new_size(const struct connection *it)
{
	uint64_t until = it->ends_first < it->ends_next ? it->ends[it->ends_first % SLOTS] : it->written;
	uint64_t size = least(until - it->packed, it->port->payload_bytes);

	return it->packed + size <= it->room_until && it->next < it->first + SLOTS ? size : 0;
}

static uint64_t all_wanted(const struct connection *it)
{
	uint64_t payload = it->port->payload_bytes;

	return it->orders + it->lost + (it->written - it->packed + payload - 1) / payload;
}

static bool may_send(const struct connection *it, uint64_t size)
{
	switch (it->port->options.control) {
	case CONTROL_CREDITS:
		return it->orders < it->credits;
	case CONTROL_NSCC:
		return !it->in_flight || it->in_flight + size <= it->window;
	}
	return true;
}

/* REPS (Bonato et al., 2025): paths whose packets came unmarked are used again, once each; else paths in turn. */
static uint16_t path_of(struct connection *it)
{
	if (it->goods) {
		it->goods--;
		return it->good[it->good_next++ % 8];
	}
	return (it->turn + it->token) % it->port->options.paths;
}

static struct sent *next_packet(struct connection *it, uint64_t *number)
{
	struct sent *sent;
	uint64_t size;

	if (it->lost) {
		for (*number = it->first; sent_of(it, *number)->state != STATE_LOST; ++*number)
			;
		return sent_of(it, *number);
	}
	size = new_size(it);
	if (!size)
		return NULL;
	*number = it->next;
	sent = sent_of(it, it->next);
	*sent = (struct sent){ .offset = it->packed, .size = size };
	sent->last = it->ends_first < it->ends_next && it->packed + size == it->ends[it->ends_first % SLOTS];
	return sent;
}

static void now_sent(struct connection *it, struct sent *sent, uint64_t now_ns)
{
	if (sent->state == STATE_LOST) {
		it->lost--;
		it->counts.resent++;
		sent->again = true;
	} else {
		it->next++;
		it->packed += sent->size;
		it->ends_first += sent->last;
	}
	sent->state = STATE_SENT;
	sent->order = it->orders++;
	sent->sent_ns = now_ns;
	it->in_flight += sent->size;
	it->turn++;
	if (!it->deadline_ns)
		due_at(it, now_ns + it->port->options.timeout_ns);
}

static bool asks(struct connection *it, const struct sent *sent)
{
	bool sent_new = sent->state != STATE_LOST;
	uint64_t lost = it->lost - !sent_new;

	if (it->port->options.control == CONTROL_NSCC && it->in_flight + 2 * sent->size > it->window)
		return true;
	return !lost && (it->packed + (sent_new ? sent->size : 0) >= least(it->written, it->room_until));
}

static int send_probe(struct connection *it, uint64_t now_ns)
{
	struct header header = { .connection = it->peer_number, .token = it->peer_token, .kind = KIND_PROBE,
				 .path = it->turn++ % it->port->options.paths, .order = it->orders,
				 .credits = all_wanted(it), .sent_ns = now_ns };
	struct iovec part = { &header, sizeof(header) };
	int error = it->port->transmit(it->port, it, &part, 1, header.path);

	if (error != -EAGAIN)
		it->said_wanted = header.credits;
	return error;
}

static bool waits(const struct connection *it)
{
	return it->in_flight || it->lost || it->packed < it->written;
}

/* Ask for credits if the receiver has given all that it knows are wanted, and for news if none come. A window that was cut
 * may be less than what is under way, of which nobody need answer the last packets. */
static int wait_for_news(struct connection *it)
{
	uint64_t now_ns = it->port->now(it->port);
	bool lacks_credits = it->port->options.control == CONTROL_CREDITS && it->credits >= it->said_wanted &&
			     all_wanted(it) > it->said_wanted;
	int error;

	if (!waits(it))
		return 0;
	if (!it->deadline_ns)
		due_at(it, now_ns + it->port->options.timeout_ns);
	if (!lacks_credits && !it->was_cut)
		return 0;
	error = send_probe(it, now_ns);
	it->was_cut = it->was_cut && error == -EAGAIN;
	return error;
}

/* Returns 1 if a packet was sent, 0 if there is none that may be, or a negative errno. */
static int send_next(struct connection *it)
{
	struct port *port = it->port;
	struct header header = { .connection = it->peer_number, .token = it->peer_token, .kind = KIND_DATA };
	struct iovec parts[3] = { { &header, sizeof(header) } };
	uint32_t goods = it->goods, good_next = it->good_next;
	uint64_t number = 0, place;
	struct sent *sent = next_packet(it, &number);
	int error;

	if (!sent || !may_send(it, sent->size))
		return wait_for_news(it);
	sent->path = path_of(it);
	header.flags = (sent->last ? FLAG_LAST : 0) | (asks(it, sent) ? FLAG_ASKS : 0);
	header.path = sent->path;
	header.size = sent->size;
	header.number = number;
	header.offset = sent->offset;
	header.order = it->orders;
	header.credits = it->said_wanted = all_wanted(it);
	header.sent_ns = port->now(port);
	place = sent->offset % it->ring_bytes;
	parts[1] = (struct iovec){ it->outward + place, least(sent->size, it->ring_bytes - place) };
	parts[2] = (struct iovec){ it->outward, sent->size - parts[1].iov_len };
	error = port->transmit(port, it, parts, parts[2].iov_len ? 3 : 2, sent->path);
	if (error == -EAGAIN) {
		it->goods = goods;
		it->good_next = good_next;
		return error;
	}
	now_sent(it, sent, header.sent_ns); /* Whatever else went wrong: it is lost. */
	return 1;
}

bool port_pump(struct port *port)
{
	while (port->ready) {
		struct connection *it = next_ready(port);
		int sent = send_next(it);

		if (sent)
			get_ready(it);
		if (sent < 0)
			return false;
	}
	return true;
}

void connection_tick(struct connection *it, uint64_t now_ns)
{
	if (!waits(it) || it->ended)
		it->deadline_ns = 0;
	if (!it->deadline_ns)
		return;
	if (now_ns < it->deadline_ns) {
		due_at(it, it->deadline_ns);
		return;
	}
	it->counts.timeouts++;
	send_probe(it, now_ns);
	if (it->backoff < MOST_BACKOFF)
		it->backoff++;
	due_at(it, now_ns + (it->port->options.timeout_ns << it->backoff));
}

/* Answers that come --------------------------------------------------------------------------------------------------- */

static void now_lost(struct connection *it, struct sent *sent)
{
	if (sent->state != STATE_SENT)
		return;
	sent->state = STATE_LOST;
	it->lost++;
	it->in_flight -= sent->size;
}

static uint64_t *latest_of(struct connection *it, const struct sent *sent)
{
	return &it->latest[it->port->options.paths > 1 ? sent->path : 0];
}

static uint64_t now_came(struct connection *it, struct sent *sent)
{
	if (sent->state == STATE_CAME)
		return 0;
	if (sent->state == STATE_LOST) {
		it->lost--;
		it->counts.late++;
	} else {
		uint64_t *latest = latest_of(it, sent);

		it->in_flight -= sent->size;
		if (!sent->again) /* Else it may be the first one that came. */
			*latest = most_of(*latest, sent->order + 1);
	}
	sent->state = STATE_CAME;
	return sent->size;
}

static uint64_t see_what_came(struct connection *it, const struct header *header, const uint64_t *words, uint32_t count)
{
	uint64_t bytes = 0, until = least(header->number, it->next);

	for (uint64_t number = it->first; number < until; number++)
		bytes += now_came(it, sent_of(it, number));
	for (uint32_t bit = 0; bit < count * 64; bit++) {
		uint64_t number = header->number + 1 + bit;

		if (words[bit / 64] >> bit % 64 & 1 && number >= it->first && number < it->next)
			bytes += now_came(it, sent_of(it, number));
	}
	while (it->first < it->next && sent_of(it, it->first)->state == STATE_CAME) {
		struct sent *sent = sent_of(it, it->first++);

		it->acknowledged = sent->offset + sent->size;
	}
	return bytes;
}

static void see_what_is_lost(struct connection *it, const struct header *header)
{
	uint64_t timeout_ns = it->port->options.timeout_ns;
	uint32_t allowed = it->port->options.paths > 1 ? 1 : it->port->options.reordering;

	for (uint64_t number = it->first; number < it->next; number++) {
		struct sent *sent = sent_of(it, number);
		bool overtaken = sent->order + allowed < *latest_of(it, sent);
		bool cut = header->flags & FLAG_TRIMMED && sent->order == header->order;

		if (sent->state != STATE_SENT)
			continue;
		it->trims_since += cut;
		if (overtaken || cut || (header->flags & FLAG_PROBED && sent->sent_ns + timeout_ns <= header->sent_ns))
			now_lost(it, sent);
	}
}

/* NSCC of Ultra Ethernet 1.0, with the constants of UEC's htsim (uec.cpp, initNsccParams), in bytes: a packet that was neither
 * marked nor delayed for the target grows the window in proportion to what is left of the target, and fairly; one that was
 * delayed only, fairly; a marked one that was delayed shrinks it, once a round trip; one marked but not delayed is for REPS
 * alone. While there is no delay for a whole window, it grows by a quarter of what comes. Quick adapt: once a round trip, if
 * packets were trimmed, or delayed by four targets, the window becomes what came through in it. */
#define REFERENCE_BYTES 150000. /* 100 Gbit/s times 12 us. */
#define REFERENCE_NS 12000.
#define NO_DELAY_NS 1000

static void nscc_adapt(struct connection *it, double delay_ns, double payload)
{
	const struct options *options = &it->port->options;

	if (it->first < it->adapt_number)
		return;
	if (it->trims_since || delay_ns > 4 * options->target_ns) {
		it->window = least(it->window, most_of(it->acknowledged - it->adapt_acknowledged, payload));
		it->was_cut = true;
	}
	it->trims_since = 0;
	it->adapt_number = it->next;
	it->adapt_acknowledged = it->acknowledged;
}

static void nscc_grow(struct connection *it, double bytes, double delay_ns, double payload, double scale)
{
	double target_ns = it->port->options.target_ns, share = bytes / it->window;

	it->undelayed = delay_ns < NO_DELAY_NS ? it->undelayed + bytes : 0;
	if (it->undelayed > it->window) {
		it->window += .25 * scale * bytes;
		return;
	}
	it->window += 5 * scale * payload * share;
	if (delay_ns < target_ns)
		it->window += 4 * scale * payload * (target_ns - delay_ns) / REFERENCE_NS * share;
}

static void nscc(struct connection *it, double bytes, uint64_t trip_ns, bool marked)
{
	const struct options *options = &it->port->options;
	double payload = it->port->payload_bytes, target_ns = options->target_ns;
	double bdp_bytes = options->rate_bps / 8e9 * options->trip_ns, most_bytes = 1.5 * bdp_bytes + payload;
	double delay_ns = trip_ns > options->trip_ns ? trip_ns - options->trip_ns : 0;

	nscc_adapt(it, delay_ns, payload);
	if (!marked)
		nscc_grow(it, bytes, delay_ns, payload, bdp_bytes / REFERENCE_BYTES);
	else if (delay_ns >= target_ns && it->first >= it->cut_number) {
		double cut = .8 * (delay_ns - target_ns) / delay_ns;

		it->window *= cut < .5 ? 1 - cut : .5;
		it->cut_number = it->next;
		it->was_cut = true;
		it->undelayed = 0;
	}
	it->window = it->window < payload ? payload : it->window > most_bytes ? most_bytes : it->window;
}

static void see_path(struct connection *it, const struct header *header, uint64_t now_ns, uint64_t bytes)
{
	uint64_t trip_ns = now_ns - header->sent_ns;
	bool marked = header->flags & FLAG_MARKED;

	it->counts.marked += marked;
	it->counts.trimmed += (header->flags & FLAG_TRIMMED) != 0;
	if (header->flags & FLAG_PROBED || !header->sent_ns)
		return;
	it->counts.round_trip_ns = it->counts.round_trip_ns ? (7 * it->counts.round_trip_ns + trip_ns) / 8 : trip_ns;
	if (it->port->options.control != CONTROL_NSCC)
		return;
	if (!marked && !(header->flags & FLAG_TRIMMED) && it->goods < 8)
		it->good[(it->good_next + it->goods++) % 8] = header->path;
	nscc(it, bytes, trip_ns, marked);
}

static void hear_answer(struct connection *it, const struct header *header, const uint64_t *words, size_t size)
{
	uint64_t now_ns = it->port->now(it->port), bytes, had = it->acknowledged;

	if (header->size > WORDS || size < header->size * sizeof(*words) || header->number > it->next)
		return;
	it->room_until = most_of(it->room_until, header->offset);
	if (header->credits > it->credits || header->flags & FLAG_PROBED)
		due_at(it, now_ns + it->port->options.timeout_ns);
	it->credits = most_of(it->credits, header->credits);
	bytes = see_what_came(it, header, words, header->size);
	see_what_is_lost(it, header);
	see_path(it, header, now_ns, bytes);
	if (bytes) {
		it->backoff = 0;
		due_at(it, now_ns + it->port->options.timeout_ns);
	}
	get_ready(it);
	if (it->acknowledged > had && (connection_room(it) >= it->room_bytes / 4 || it->acknowledged == it->written))
		it->port->news(it, true);
}

/* Inward -------------------------------------------------------------------------------------------------------------- */

/* Say what came, with how much room and how many credits there are. */
static void answer(struct connection *it, uint8_t flags)
{
	struct header header = it->answers;
	uint64_t words[WORDS] = { 0 };
	struct iovec parts[2] = { { &header, sizeof(header) }, { words, 0 } };

	header.connection = it->peer_number;
	header.token = it->peer_token;
	header.kind = KIND_ANSWER;
	header.flags = flags;
	header.number = it->expected;
	header.offset = it->told = it->received + it->ring_bytes;
	header.credits = it->given;
	header.size = 0;
	for (uint64_t number = it->expected + 1; number < it->highest && number <= it->expected + 64 * WORDS; number++) {
		uint64_t bit = number - it->expected - 1;

		if (!it->came[number % SLOTS].came)
			continue;
		words[bit / 64] |= 1ull << bit % 64;
		header.size = bit / 64 + 1;
	}
	parts[1].iov_len = header.size * sizeof(*words);
	it->unanswered = 0;
	it->answers.sent_ns = 0; /* It is answered once. */
	it->port->transmit(it->port, it, parts, 2, -1);
}

static bool place(struct connection *it, const struct header *header, const char *payload)
{
	struct came *came = &it->came[header->number % SLOTS];

	if (header->number < it->expected || header->number >= it->expected + SLOTS || came->came ||
	    header->offset + header->size > it->received + it->ring_bytes) {
		it->counts.duplicates++;
		return false;
	}
	copy_ring(it->inward, it->ring_bytes, header->offset, (char *)payload, header->size, true);
	*came = (struct came){ header->offset + header->size, true, header->flags & FLAG_LAST };
	it->highest = most_of(it->highest, header->number + 1);
	while ((came = &it->came[it->expected % SLOTS])->came) {
		it->arrived = came->end;
		if (came->last)
			it->complete = came->end;
		came->came = false;
		it->expected++;
	}
	return true;
}

static void take_packet(struct connection *it, const struct header *header, const char *payload, size_t size, bool marked)
{
	uint64_t complete = it->complete;
	uint8_t flags = marked ? FLAG_MARKED : 0;
	bool is_whole = size == header->size, placed = false;

	it->answers = *header;
	it->wanted = most_of(it->wanted, header->credits);
	if (is_whole && header->kind == KIND_DATA)
		placed = place(it, header, payload);
	it->unanswered++;
	if (!is_whole)
		flags |= FLAG_TRIMMED;
	if (header->kind == KIND_PROBE)
		flags |= FLAG_PROBED;
	if (header->flags & FLAG_ASKS && header->kind == KIND_DATA)
		it->asked_until = most_of(it->asked_until, header->number + 1);
	if (flags || !placed || header->number < it->asked_until || it->unanswered >= ANSWER_EVERY)
		answer(it, flags);
	get_credits(it);
	if (placed && (it->complete > complete || it->arrived - it->received >= it->ring_bytes / 4))
		it->port->news(it, false);
}

uint64_t connection_take(struct connection *it, char *into, uint64_t most)
{
	uint64_t size = least(most, it->arrived - it->received);

	copy_ring(it->inward, it->ring_bytes, it->received, into, size, false);
	it->received += size;
	if (it->received + it->ring_bytes - it->told >= it->ring_bytes / 4)
		answer(it, 0);
	return size;
}

void connection_arrive(struct connection *it, const struct header *header, const char *payload, size_t size, bool marked)
{
	if (header->kind == KIND_ANSWER)
		hear_answer(it, header, (const uint64_t *)payload, size);
	else
		take_packet(it, header, payload, size, marked);
}

/* Give credits whose time has come, one connection after the other. */
uint64_t port_pull(struct port *port, uint64_t now_ns)
{
	while (port->pulling && port->pull_ns <= now_ns) {
		struct connection *it = port->pulling;
		uint64_t count = least(it->wanted - it->given, CREDITS_EACH);

		port->pulling = it->next_pull;
		it->pulls = false;
		it->given += count;
		it->counts.credits_given += count;
		port->pull_ns = most_of(port->pull_ns, now_ns - least(now_ns, port->frame_ns)) + count * port->frame_ns;
		answer(it, 0);
		get_credits(it);
	}
	return port->pulling ? port->pull_ns : UINT64_MAX;
}
