/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over datagrams: what messages.c, which knows neither sockets nor clocks, and messages_port.c, which has both, share.
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SLOTS 4096 /* Packets from the first one that is missing on. */
#define WORDS 16 /* Of 64 packets, that an answer names at most. */
#define MOST_PATHS 256

enum kind { KIND_DATA = 1, KIND_PROBE, KIND_ANSWER };
enum flag {
	FLAG_LAST = 1, /* Of a message. */
	FLAG_ASKS = 2, /* For an answer. */
	FLAG_TRIMMED = 4, /* Answers the header of a packet whose payload a switch cut off, */
	FLAG_PROBED = 8, /* a probe, */
	FLAG_MARKED = 16, /* a packet that a switch marked. */
};
enum control { CONTROL_LINE, CONTROL_CREDITS, CONTROL_NSCC };

/* Each datagram begins so. Answers say in `number` which packet is the first one missing, in `offset` up to where there is
 * room, in `credits` how many packets may be sent in all; path, order and sent_ns are those of what they answer. */
struct header {
	uint32_t connection; /* The number of it at the end that the datagram goes to. */
	uint32_t token;
	uint8_t kind, flags;
	uint16_t path;
	uint32_t size; /* Of the payload, also if it was cut off; of answers: words behind the header. */
	uint64_t number; /* Of the packet, from 0. */
	uint64_t offset; /* Of the payload. */
	uint64_t order; /* How many packets had been sent before, those sent again included. */
	uint64_t credits; /* How many packets there are to be sent in all, as known so far. */
	uint64_t sent_ns;
};

struct options { /* Of a port. As Options of messages.py. */
	uint64_t rate_bps, delay_ns; /* Of the NIC's link. */
	uint32_t mtu_bytes, paths;
	uint32_t control, unsolicited; /* Packets that are sent before there are credits. */
	uint32_t reordering; /* Later packets that have come make a missing one count as lost; of one path if there are several. */
	uint32_t data_tos, control_tos;
	uint64_t timeout_ns; /* Without news, until a probe is sent. */
	uint64_t target_ns; /* NSCC: delay in queues, */
	uint64_t trip_ns; /* and the round trip without any. */
};

struct sent {
	uint64_t offset, order, sent_ns;
	uint32_t size;
	uint16_t path;
	uint8_t state;
	bool last, again;
};

struct came {
	uint64_t end;
	bool came, last;
};

struct counts { /* As Counts of messages.py. */
	uint64_t resent, trimmed, timeouts, duplicates, round_trip_ns, marked, credits_given, late;
};

struct port;

struct connection {
	struct port *port;
	uint32_t number, token, peer_number, peer_token, peer_address;
	uint16_t peer_port;
	uint32_t ring_bytes, room_bytes;
	char *outward, *inward;
	bool ended, is_ready, pulls, was_cut;
	struct connection *next_ready, *next_pull;
	struct counts counts;
	/* Outward: bytes that the program has sent, those in packets, those acknowledged; packets. */
	uint64_t written, packed, acknowledged, room_until, first, next, orders, credits, said_wanted;
	uint64_t ends[SLOTS]; /* Of messages, that no packet has reached. */
	uint64_t ends_first, ends_next;
	struct sent sent[SLOTS];
	uint64_t latest[MOST_PATHS]; /* The highest order + 1 that came, by path. */
	uint64_t lost, in_flight, deadline_ns;
	uint32_t backoff, turn;
	/* NSCC and REPS. */
	double window;
	uint16_t good[8];
	uint32_t goods, good_next;
	uint64_t cut_number, adapt_number, adapt_acknowledged, trims_since; /* Packets, until which it is not done again. */
	double undelayed; /* Bytes that came without delay, in a row. */
	/* Inward: packets, bytes in order, bytes that the program has taken. */
	uint64_t expected, highest, arrived, complete, received, told, wanted, given;
	uint64_t asked_until; /* Packets before this one are answered each. */
	uint32_t unanswered;
	struct header answers; /* The latest packet that came. */
	struct came came[SLOTS];
};

struct port {
	struct options options;
	uint32_t payload_bytes;
	uint64_t frame_ns, pull_ns; /* How long a frame takes, and when the next credit may be given. */
	uint64_t due_ns; /* When a connection has to be ticked, at the earliest. */
	struct connection *ready, *ready_end, *pulling, *pulling_end;
	/* Send a datagram by a path, or beside them (-1). Returns 0, or a negative errno: EAGAIN if the path is full. */
	int (*transmit)(struct port *port, struct connection *to, const struct iovec *parts, int count, int path);
	uint64_t (*now)(struct port *port);
	void (*news)(struct connection *of, bool outward); /* There is room, or something to receive. */
	void *context;
};

void port_init(struct port *port, const struct options *options);
bool connection_init(struct connection *it, struct port *port, uint32_t ring_bytes);
void connection_free(struct connection *it);
void connection_forget(struct connection *it); /* In lists of its port. */
uint64_t connection_room(const struct connection *it);
uint64_t connection_write(struct connection *it, const struct iovec *from, uint64_t skip, uint64_t all);
uint64_t connection_take(struct connection *it, char *into, uint64_t most);
void connection_arrive(struct connection *it, const struct header *header, const char *payload, size_t size, bool marked);
void connection_tick(struct connection *it, uint64_t now_ns); /* Once it is due; all, with due_ns at UINT64_MAX before. */
bool port_pump(struct port *port); /* Returns false if a path is full. */
uint64_t port_pull(struct port *port, uint64_t now_ns); /* Returns when next; UINT64_MAX: never. */

#endif
