/* SPDX-License-Identifier: GPL-2.0
 *
 * Carries what guests of one run share (peers.h.inc) between the machines that they are on:
 *
 *     carrier MEMORY GUESTS LOOKAHEAD_NS OWN PARENT [SOCKET THERE]...
 *
 * MEMORY and SOCKETs are descriptors, a connection to each other machine; OWN and THERE have a bit for each guest there.
 * Each machine has memory for all guests. A guest reads and writes that of its own machine only. Here what the guests of
 * this machine said is read, frames that are for another machine sent there, and then what was said: a promise holds once
 * all is there that was sent before it. What arrives is written where the guest itself would have written it.
 *
 * What one machine has of another is old, and so a guest's words hold together only with what it had written and taken then:
 * of each guest all of it is told at once. That a promise, or a time until which a guest is idle, is old does no harm
 * (time_travel_bound()).
 *
 * A thread sends, and sleeps while no guest says anything (TIME_TRAVEL_CARRIER); one per connection receives. If a
 * connection ends, so does this process, with FIRST_LOST and the number of the connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "peers.h.inc"

#define MOST TIME_TRAVEL_MOST_GUESTS
#define FIRST_LOST 10
#define LOOKS_BEFORE_SLEEP 100
#define LONGEST_SLEEP_S 1
#define READ_BYTES (1 << 18)

typedef unsigned long long u64;

/* What a guest said, and how much of what goes from and to it was written and taken. */
struct words {
	u64 promise, idle, until, turn;
	u64 written[MOST], taken[MOST];
};

/* On a connection: what a guest said, or `bytes` of the ring from it to another, which begin at `at` and follow. */
enum { WORDS, FRAMES };

struct header {
	unsigned int kind, guest, to, bytes;
	u64 at;
};

struct machine {
	int socket;
	unsigned int number, guests;
	struct words told[MOST];
	u64 sent[MOST][MOST];
	char *out;
	size_t filled, room;
	char in[READ_BYTES];
	size_t begin, end;
};

static struct time_travel_peers *peers;
static unsigned int guests, own, machine_count;
static u64 lookahead;
static struct machine *machines;

static void *checked(void *memory, const char *what)
{
	if (!memory || memory == MAP_FAILED) {
		perror(what);
		exit(1);
	}
	return memory;
}

static void lost(const struct machine *machine, const char *why)
{
	fprintf(stderr, "%s\n", why);
	fflush(stderr);
	_exit(FIRST_LOST + machine->number);
}

/* Sending --------------------------------------------------------------------------------------------------------------- */

/* Reads what a guest has said: of one that is idle, all as it was at one moment; else its promise before its rings. */
static void read_words(unsigned int guest, struct words *words)
{
	struct time_travel_clock *clock = &peers->clocks[guest];
	unsigned int other;

	memset(words, 0, sizeof(*words));
	words->turn = time_travel_load(&clock->turn);
	words->promise = time_travel_load(&clock->promise);
	words->idle = time_travel_load(&clock->idle);
	words->until = time_travel_load(&clock->until);
	for (other = 0; other < guests; other++) {
		words->taken[other] = time_travel_load(&time_travel_ring(peers, guests, other, guest)->taken);
		words->written[other] = time_travel_load(&time_travel_ring(peers, guests, guest, other)->written);
	}
	if (!words->idle || time_travel_load(&clock->turn) != words->turn)
		words->idle = words->until = 0;
}

static int says_the_same(const struct words *one, const struct words *other)
{
	return one->promise == other->promise && one->idle == other->idle && one->until == other->until &&
	       !memcmp(one->written, other->written, sizeof(one->written)) &&
	       !memcmp(one->taken, other->taken, sizeof(one->taken));
}

static void put(struct machine *machine, const void *what, size_t bytes)
{
	if (machine->filled + bytes > machine->room) {
		machine->room = 2 * (machine->filled + bytes);
		machine->out = checked(realloc(machine->out, machine->room), "memory for what is sent");
	}
	memcpy(machine->out + machine->filled, what, bytes);
	machine->filled += bytes;
}

static void put_frames(struct machine *machine, unsigned int from, unsigned int to, u64 until)
{
	struct time_travel_ring *ring = time_travel_ring(peers, guests, from, to);
	u64 *sent = &machine->sent[from][to];

	while (*sent < until) {
		u64 place = *sent % TIME_TRAVEL_RING_BYTES, left = TIME_TRAVEL_RING_BYTES - place;
		unsigned int bytes = until - *sent < left ? until - *sent : left;
		struct header header = { .kind = FRAMES, .guest = from, .to = to, .bytes = bytes, .at = *sent };

		put(machine, &header, sizeof(header));
		put(machine, ring->messages + place, bytes);
		*sent += bytes;
	}
}

/* Puts down for a machine what a guest has said since. */
static void put_words(struct machine *machine, unsigned int guest)
{
	struct header header = { .kind = WORDS, .guest = guest, .bytes = sizeof(struct words) };
	struct words words;
	unsigned int to;

	read_words(guest, &words);
	if (says_the_same(&words, &machine->told[guest]))
		return;
	for (to = 0; to < guests; to++)
		if (machine->guests & (1U << to))
			put_frames(machine, guest, to, words.written[to]);
	put(machine, &header, sizeof(header));
	put(machine, &words, sizeof(words));
	machine->told[guest] = words;
}

static void send_all(struct machine *machine)
{
	size_t sent = 0;

	while (sent < machine->filled) {
		ssize_t done = send(machine->socket, machine->out + sent, machine->filled - sent, MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			lost(machine, strerror(errno));
		sent += done;
	}
	machine->filled = 0;
}

/* Tells all machines what the guests here have said. Returns whether that was anything. */
static int told(void)
{
	unsigned int machine, guest;
	int anything = 0;

	for (machine = 0; machine < machine_count; machine++) {
		for (guest = 0; guest < guests; guest++)
			if (own & (1U << guest))
				put_words(&machines[machine], guest);
		anything |= machines[machine].filled > 0;
		send_all(&machines[machine]);
	}
	return anything;
}

static void sleep_until_told(void)
{
	struct time_travel_sleeper *sleeper = &peers->sleepers[TIME_TRAVEL_CARRIER];
	struct timespec longest = { .tv_sec = LONGEST_SLEEP_S };
	unsigned int heard = time_travel_load(&sleeper->bell), bit = 1U << TIME_TRAVEL_CARRIER;

	__atomic_fetch_or(&peers->asleep, bit, __ATOMIC_SEQ_CST);
	if (!told())
		syscall(SYS_futex, &sleeper->bell, FUTEX_WAIT, heard, &longest, NULL, 0);
	__atomic_fetch_and(&peers->asleep, ~bit, __ATOMIC_SEQ_CST);
}

static void send_for_ever(void)
{
	unsigned int looks = 0;

	for (;;) {
		if (told())
			looks = 0;
		else if (looks++ < LOOKS_BEFORE_SLEEP)
			asm volatile("pause");
		else
			sleep_until_told();
	}
}

/* Receiving ------------------------------------------------------------------------------------------------------------- */

static void get(struct machine *machine, void *to, size_t bytes)
{
	while (bytes) {
		size_t part = machine->end - machine->begin;

		if (!part) {
			ssize_t got = recv(machine->socket, machine->in, sizeof(machine->in), 0);

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				lost(machine, got ? strerror(errno) : "the connection was closed");
			machine->begin = 0;
			machine->end = got;
			continue;
		}
		part = part < bytes ? part : bytes;
		memcpy(to, machine->in + machine->begin, part);
		machine->begin += part;
		to = (char *)to + part;
		bytes -= part;
	}
}

static void take_frames(struct machine *machine, const struct header *header)
{
	struct time_travel_ring *ring = time_travel_ring(peers, guests, header->guest, header->to);
	u64 place = header->at % TIME_TRAVEL_RING_BYTES;

	if (ring->written != header->at || place + header->bytes > TIME_TRAVEL_RING_BYTES || !(own & (1U << header->to)))
		lost(machine, "frames came that are not the next ones");
	time_travel_set_busy(&peers->clocks[header->guest]);
	get(machine, ring->messages + place, header->bytes);
	time_travel_store(&ring->written, header->at + header->bytes);
}

static void take_words(struct machine *machine, unsigned int guest)
{
	struct time_travel_clock *clock = &peers->clocks[guest];
	struct words words;
	unsigned int other;

	get(machine, &words, sizeof(words));
	time_travel_set_busy(clock);
	for (other = 0; other < guests; other++) {
		if (!(own & (1U << other))) /* Those for guests here came with their frames. */
			time_travel_store(&time_travel_ring(peers, guests, guest, other)->written, words.written[other]);
		time_travel_store(&time_travel_ring(peers, guests, other, guest)->taken, words.taken[other]);
	}
	time_travel_store(&clock->promise, words.promise);
	if (words.idle)
		time_travel_set_idle(clock, words.until);
}

static void wake(void)
{
	unsigned int asleep, woken, who;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	asleep = time_travel_load(&peers->asleep) & ~(1U << TIME_TRAVEL_CARRIER);
	woken = asleep ? time_travel_woken(peers, guests, lookahead, asleep, 1) : 0;
	for (who = 0; woken >> who; who++)
		if (((woken >> who) & 1) && time_travel_is_called(peers, who))
			syscall(SYS_futex, &peers->sleepers[who].bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *receive_for_ever(void *which)
{
	struct machine *machine = which;
	struct header header;

	for (;;) {
		get(machine, &header, sizeof(header));
		if (header.guest >= guests || !(machine->guests & (1U << header.guest)) || header.to >= guests)
			lost(machine, "words came that are not of a guest there");
		if (header.kind == FRAMES) {
			take_frames(machine, &header);
		} else {
			take_words(machine, header.guest);
			wake();
		}
	}
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	unsigned int machine;
	size_t size;

	if (count < 8 || count % 2)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(arguments[5]))
		return 1; /* It has gone in the meantime. */
	guests = atoi(arguments[2]);
	lookahead = strtoull(arguments[3], NULL, 10);
	own = atoi(arguments[4]);
	size = TIME_TRAVEL_CLOCKS_BYTES + guests * guests * sizeof(struct time_travel_ring);
	peers = checked(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arguments[1]), 0), "the guests' memory");
	machine_count = (count - 6) / 2;
	machines = checked(calloc(machine_count, sizeof(*machines)), "memory for machines");
	for (machine = 0; machine < machine_count; machine++) {
		machines[machine].number = machine;
		machines[machine].socket = atoi(arguments[6 + 2 * machine]);
		machines[machine].guests = atoi(arguments[7 + 2 * machine]);
		if (pthread_create(&thread, NULL, receive_for_ever, &machines[machine])) {
			fprintf(stderr, "no thread for machine %u\n", machine);
			return 1;
		}
	}
	send_for_ever();
}
