/* SPDX-License-Identifier: Apache-2.0
 *
 * A network in memory for two ends of traffic/transport/messages.c: it loses packets, cuts off payloads, delays, repeats and
 * cuts paths, by a seed; and programs that send and check what comes. For test_message_core.py, which has the same structs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../../traffic/transport/messages.h"

#define MOST_DATAGRAM 10000
#define REACH_NS 200000 /* Of random delays, */
#define LATE_NS 20000000 /* and of what comes once more. */
#define CUT_NS 431000 /* Of which probes are no multiple. */

struct network { /* Probabilities in millionths. */
	uint64_t seed;
	uint32_t lost, trimmed, repeated, cut_paths, ordered, forged, messages, most_bytes, ring_bytes, both;
	struct options options;
};

struct outcome {
	uint64_t ended_ns, wrong_at, received, sent, packets, resent, late, duplicates, trimmed, timeouts;
};

struct datagram {
	uint64_t at_ns, number;
	struct connection *to;
	size_t size;
	_Alignas(8) char bytes[MOST_DATAGRAM];
};

struct play {
	const struct network *network;
	uint64_t now_ns, state, number, packets, latest_ns[2][MOST_PATHS + 1];
	struct datagram **heap;
	uint32_t count, room;
	struct connection *ends[2];
};

static uint64_t draw(struct play *play, uint64_t below)
{
	play->state += 0x9E3779B97F4A7C15ull;
	uint64_t x = play->state;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return (x ^ x >> 31) % below;
}

static bool earlier(const struct datagram *one, const struct datagram *other)
{
	return one->at_ns != other->at_ns ? one->at_ns < other->at_ns : one->number < other->number;
}

static void push(struct play *play, struct datagram *it)
{
	uint32_t place = play->count++;

	if (play->count > play->room) {
		play->room = 2 * play->room + 64;
		play->heap = realloc(play->heap, play->room * sizeof(*play->heap));
	}
	for (; place && earlier(it, play->heap[(place - 1) / 2]); place = (place - 1) / 2)
		play->heap[place] = play->heap[(place - 1) / 2];
	play->heap[place] = it;
}

static struct datagram *pop(struct play *play)
{
	struct datagram *first = play->heap[0], *last = play->heap[--play->count];
	uint32_t place = 0, child;

	while ((child = 2 * place + 1) < play->count) {
		if (child + 1 < play->count && earlier(play->heap[child + 1], play->heap[child]))
			child++;
		if (!earlier(play->heap[child], last))
			break;
		play->heap[place] = play->heap[child];
		place = child;
	}
	play->heap[place] = last;
	return first;
}

static void deliver_at(struct play *play, struct connection *to, const char *bytes, size_t size, uint64_t at_ns)
{
	struct datagram *it = malloc(sizeof(*it));

	*it = (struct datagram){ .at_ns = at_ns, .number = play->number++, .to = to, .size = size };
	memcpy(it->bytes, bytes, size);
	push(play, it);
}

static uint64_t arrival_ns(struct play *play, int direction, int path)
{
	uint64_t at_ns = play->now_ns + 1000 + draw(play, REACH_NS), *latest_ns = &play->latest_ns[direction][path + 1];

	if (path < 0 || !play->network->ordered)
		return at_ns;
	*latest_ns = at_ns > *latest_ns ? at_ns : *latest_ns;
	return *latest_ns;
}

/* A path is cut for a quarter of the time. */
static bool is_cut(const struct play *play, int path)
{
	return path >= 0 && (uint32_t)path < play->network->cut_paths && play->now_ns / CUT_NS % 4 == 1;
}

static int transmit(struct port *port, struct connection *from, const struct iovec *parts, int count, int path)
{
	struct play *play = port->context;
	const struct network *network = play->network;
	int direction = from == play->ends[1];
	struct connection *to = play->ends[!direction];
	_Alignas(8) char bytes[MOST_DATAGRAM] = { 0 };
	struct header *header = (struct header *)bytes;
	uint64_t at_ns = arrival_ns(play, direction, path);
	size_t size = 0;

	for (int i = 0; i < count; size += parts[i++].iov_len)
		memcpy(bytes + size, parts[i].iov_base, parts[i].iov_len);
	play->packets += header->kind == KIND_DATA;
	if (draw(play, 50) == 0 && path >= 0)
		return -EAGAIN;
	if (draw(play, 1000000) < network->lost || is_cut(play, path))
		return 0;
	if (network->forged && header->kind == KIND_DATA && play->number > network->forged && header->offset > 8)
		header->offset -= 8;
	if (header->kind == KIND_DATA && draw(play, 1000000) < network->trimmed)
		size = sizeof(*header);
	deliver_at(play, to, bytes, size, at_ns);
	if (draw(play, 1000000) < network->repeated)
		deliver_at(play, to, bytes, size, at_ns + draw(play, LATE_NS));
	return 0;
}

static uint64_t now(struct port *port)
{
	return ((struct play *)port->context)->now_ns;
}

static void news(struct connection *of, bool outward)
{
}

static char byte_at(uint64_t offset, int direction)
{
	return (char)((offset * 2654435761u >> 13) + 97 * direction);
}

struct program { /* Of one end: what it sends, in messages, and what it has received. */
	uint32_t messages_left;
	uint64_t left, sent, all;
};

static void send_some(struct play *play, struct connection *it, struct program *program, int direction)
{
	char bytes[65536];
	struct iovec part = { bytes, 0 };

	while (connection_room(it) && (program->left || program->messages_left)) {
		if (!program->left) {
			program->messages_left--;
			program->left = 1 + draw(play, play->network->most_bytes);
			program->all += program->left;
		}
		part.iov_len = program->left < sizeof(bytes) ? program->left : sizeof(bytes);
		for (uint64_t i = 0; i < part.iov_len; i++)
			bytes[i] = byte_at(program->sent + i, direction);
		uint64_t taken = connection_write(it, &part, 0, part.iov_len);

		program->sent += taken;
		program->left -= taken;
	}
}

static void take_some(struct play *play, struct connection *it, int direction, struct outcome *outcome)
{
	char bytes[65536];
	uint64_t at = it->received, taken = connection_take(it, bytes, 1 + draw(play, sizeof(bytes)));

	for (uint64_t i = 0; i < taken && outcome->wrong_at == UINT64_MAX; i++)
		if (bytes[i] != byte_at(at + i, direction))
			outcome->wrong_at = at + i;
	outcome->received += taken;
}

static void step(struct play *play, struct port ports[2])
{
	uint64_t next_ns = play->now_ns + 50000, pull_ns;
	struct datagram *it;

	for (int i = 0; i < 2; i++) {
		while (!port_pump(&ports[i]))
			;
		pull_ns = port_pull(&ports[i], play->now_ns);
		next_ns = pull_ns < next_ns ? pull_ns : next_ns;
		if (play->now_ns >= ports[i].due_ns) {
			ports[i].due_ns = UINT64_MAX;
			connection_tick(play->ends[i], play->now_ns);
		}
		next_ns = ports[i].due_ns < next_ns ? ports[i].due_ns : next_ns;
	}
	if (!play->count || play->heap[0]->at_ns > next_ns) {
		play->now_ns = next_ns;
		return;
	}
	it = pop(play);
	play->now_ns = it->at_ns > play->now_ns ? it->at_ns : play->now_ns;
	connection_arrive(it->to, (struct header *)it->bytes, it->bytes + sizeof(struct header), it->size - sizeof(struct header),
			  draw(play, 20) == 0);
	free(it);
}

/* Play until all has come and is acknowledged, or until `limit_ns`. */
void play(const struct network *network, uint64_t limit_ns, struct outcome *outcome)
{
	struct play play = { .network = network, .state = network->seed, .now_ns = 1 };
	struct program programs[2] = { { .messages_left = network->messages },
				       { .messages_left = network->both ? network->messages : 0 } };
	struct port ports[2] = { 0 };

	*outcome = (struct outcome){ .wrong_at = UINT64_MAX };
	for (int i = 0; i < 2; i++) {
		port_init(&ports[i], &network->options);
		ports[i].transmit = transmit;
		ports[i].now = now;
		ports[i].news = news;
		ports[i].context = &play;
		play.ends[i] = calloc(1, sizeof(struct connection));
		connection_init(play.ends[i], &ports[i], network->ring_bytes);
	}
	while (play.now_ns < limit_ns) {
		bool done = true;

		for (int i = 0; i < 2; i++) {
			send_some(&play, play.ends[i], &programs[i], i);
			take_some(&play, play.ends[!i], i, outcome);
			done &= !programs[i].messages_left && !programs[i].left && play.ends[!i]->received == programs[i].all &&
				play.ends[i]->acknowledged == programs[i].all;
		}
		if (done && !play.count)
			break;
		if (!done)
			outcome->ended_ns = play.now_ns;
		step(&play, ports);
	}
	for (int i = 0; i < 2; i++) {
		struct counts *counts = &play.ends[i]->counts;

		outcome->sent += programs[i].all;
		outcome->resent += counts->resent;
		outcome->late += counts->late;
		outcome->duplicates += counts->duplicates;
		outcome->trimmed += counts->trimmed;
		outcome->timeouts += counts->timeouts;
		connection_free(play.ends[i]);
	}
	outcome->packets = play.packets;
	while (play.count)
		free(pop(&play));
	free(play.heap);
}
