/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over datagrams, for traffic/transport/messages.py: the sockets, the clock and the thread of a port (messages.c has
 * what two ends do), and the connections that programs hold.
 *
 * A port is an address of a process. Data leaves by a socket per path, each with a UDP source port of its own, by which ECMP
 * tells paths; all comes to one more, from which answers leave. Sockets hold few packets, so that what is sent next is
 * decided once there is room in the NIC. TCP sockets, over which the ends met, tell of a peer's end.
 *
 * Functions return what is 0 or more, or a negative errno: EPIPE once the connection has ended, ETIMEDOUT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "messages.h"

#define BATCH 32
#define MOST_DATAGRAM 65536
#define RECEIVE_BUFFER (256 << 20)
#define CONTROL_BUFFER (16 << 20)
#define TRUE_SIZES 2 /* The kernel charges a packet up to twice its size. */
#define ECT 2
#define CE 3

enum { AT_TIMER = -1, AT_SOCKET = -2, AT_PATH = -3, AT_WAKE = -4 };

struct way { /* One direction of a connection, to who waits for it. */
	pthread_cond_t changed;
	int ready; /* For who polls; -1: nobody does. */
	bool is_ready;
};

struct stream {
	struct connection core; /* The first one: each is the other. */
	struct way out, in;
	int socket;
	bool closed;
};

struct io {
	struct port port;
	pthread_mutex_t lock;
	pthread_t thread;
	int epoll, timer, socket, wake;
	int paths[MOST_PATHS];
	int watched; /* The path whose room is waited for; -1: none. */
	uint16_t number;
	uint32_t address;
	struct stream **streams;
	uint32_t places;
	char *received;
};

struct description { /* Of an end, for the other one. */
	uint32_t address, port, number, token, ring_bytes;
};

static struct io *io_of(const struct stream *it)
{
	return it->core.port->context;
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t now(struct port *port)
{
	return clock_ns();
}

/* Sending ------------------------------------------------------------------------------------------------------------- */

static void watch_path(struct io *io, int path)
{
	struct epoll_event wanted = { .events = EPOLLOUT, .data.u64 = (uint64_t)AT_PATH };

	if (io->watched == path)
		return;
	if (io->watched >= 0)
		epoll_ctl(io->epoll, EPOLL_CTL_DEL, io->paths[io->watched], NULL);
	if (path >= 0)
		epoll_ctl(io->epoll, EPOLL_CTL_ADD, io->paths[path], &wanted);
	io->watched = path;
}

static int transmit(struct port *port, struct connection *to, const struct iovec *parts, int count, int path)
{
	struct io *io = port->context;
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(to->peer_port), .sin_addr = { to->peer_address } };
	struct msghdr message = { .msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = (struct iovec *)parts,
				  .msg_iovlen = count };
	ssize_t sent;

	do
		sent = sendmsg(path < 0 ? io->socket : io->paths[path], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent >= 0)
		return 0;
	if ((errno == EAGAIN || errno == ENOBUFS) && path >= 0) {
		watch_path(io, path);
		return -EAGAIN;
	}
	return -errno;
}

static void pump(struct io *io)
{
	if (port_pump(&io->port))
		watch_path(io, -1);
}

/* Telling programs ---------------------------------------------------------------------------------------------------- */

static void say_ready(struct way *way, bool is_ready)
{
	eventfd_t count;

	if (way->ready < 0 || way->is_ready == is_ready)
		return;
	if (is_ready)
		eventfd_write(way->ready, 1);
	else
		eventfd_read(way->ready, &count);
	way->is_ready = is_ready;
}

static bool has_arrivals(const struct stream *it)
{
	return it->core.arrived != it->core.received || it->core.ended;
}

static bool has_room(const struct stream *it)
{
	return connection_room(&it->core) > 0 || it->core.ended;
}

static void news(struct connection *of, bool outward)
{
	struct stream *it = (struct stream *)of;
	struct way *way = outward ? &it->out : &it->in;

	say_ready(way, outward ? has_room(it) : has_arrivals(it));
	pthread_cond_broadcast(&way->changed);
}

static void end(struct stream *it)
{
	if (it->core.ended)
		return;
	epoll_ctl(io_of(it)->epoll, EPOLL_CTL_DEL, it->socket, NULL);
	connection_forget(&it->core);
	news(&it->core, true);
	news(&it->core, false);
}

/* The thread ---------------------------------------------------------------------------------------------------------- */

static bool is_marked(struct msghdr *message)
{
	for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one))
		if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_TOS)
			return (*CMSG_DATA(one) & CE) == CE;
	return false;
}

static void take(struct io *io, const char *datagram, size_t size, bool marked)
{
	struct header header;
	struct stream *it;

	if (size < sizeof(header))
		return;
	memcpy(&header, datagram, sizeof(header));
	it = header.connection < io->places ? io->streams[header.connection] : NULL;
	if (it && header.token == it->core.token && !it->core.ended && header.path < MOST_PATHS)
		connection_arrive(&it->core, &header, datagram + sizeof(header), size - sizeof(header), marked);
}

static void receive(struct io *io)
{
	static __thread struct mmsghdr messages[BATCH];
	static __thread char controls[BATCH][CMSG_SPACE(sizeof(int))];
	struct iovec parts[BATCH];
	int count;

	do {
		for (int i = 0; i < BATCH; i++) {
			parts[i] = (struct iovec){ io->received + (size_t)i * MOST_DATAGRAM, MOST_DATAGRAM };
			messages[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = controls[i],
							       .msg_controllen = sizeof(controls[i]) };
		}
		count = recvmmsg(io->socket, messages, BATCH, MSG_DONTWAIT, NULL);
		for (int i = 0; i < count; i++)
			take(io, parts[i].iov_base, messages[i].msg_len, is_marked(&messages[i].msg_hdr));
	} while (count == BATCH);
}

/* Do what is due, and set the timer for what is due next. */
static void tick(struct io *io)
{
	uint64_t now_ns = clock_ns(), next_ns = port_pull(&io->port, now_ns);

	if (now_ns >= io->port.due_ns) {
		io->port.due_ns = UINT64_MAX;
		for (uint32_t i = 0; i < io->places; i++)
			if (io->streams[i])
				connection_tick(&io->streams[i]->core, now_ns);
	}
	if (io->port.due_ns < next_ns)
		next_ns = io->port.due_ns;
	if (next_ns == UINT64_MAX)
		next_ns = 0; /* Never. */
	timerfd_settime(io->timer, TFD_TIMER_ABSTIME, &(struct itimerspec){
		.it_value = { next_ns / 1000000000, next_ns % 1000000000 } }, NULL);
}

static void handle(struct io *io, int64_t what)
{
	eventfd_t count;

	if (what >= 0 && what < io->places && io->streams[what])
		end(io->streams[what]);
	if (what == AT_SOCKET)
		receive(io);
	if (what == AT_TIMER)
		(void)!read(io->timer, &count, sizeof(count));
	if (what == AT_WAKE)
		eventfd_read(io->wake, &count);
}

static void *run(void *argument)
{
	struct io *io = argument;
	struct epoll_event found[16];

	for (;;) {
		int count = epoll_wait(io->epoll, found, 16, -1);

		pthread_mutex_lock(&io->lock);
		for (int i = 0; i < count; i++)
			handle(io, (int64_t)found[i].data.u64);
		pump(io);
		tick(io);
		pthread_mutex_unlock(&io->lock);
	}
	return NULL;
}

/* Making a port ------------------------------------------------------------------------------------------------------- */

static int set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value));
}

static int open_socket(struct io *io, uint32_t tos, int buffer)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = { io->address } };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0)
		return -1;
	set(fd, IPPROTO_IP, IP_TOS, tos);
	set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	set(fd, SOL_SOCKET, SO_NO_CHECK, 1); /* A packet that was trimmed has another sum. */
	if (set(fd, SOL_SOCKET, SO_SNDBUFFORCE, buffer) < 0)
		set(fd, SOL_SOCKET, SO_SNDBUF, buffer);
	return fd;
}

static int watch(struct io *io, int fd, int64_t as, uint32_t events)
{
	struct epoll_event wanted = { .events = events, .data.u64 = (uint64_t)as };

	return epoll_ctl(io->epoll, EPOLL_CTL_ADD, fd, &wanted);
}

/* How much a path's socket holds: what covers the NIC's link and the wake-up at half of it, divided among the paths. */
static int path_buffer(const struct io *io)
{
	const struct options *options = &io->port.options;
	uint64_t packets = 4 + options->delay_ns / (io->port.frame_ns ? io->port.frame_ns : 1);

	return TRUE_SIZES * options->mtu_bytes * (packets + options->paths - 1) / options->paths;
}

static int open_sockets(struct io *io)
{
	const struct options *options = &io->port.options;
	struct sockaddr_in own;
	socklen_t length = sizeof(own);

	io->socket = open_socket(io, options->control_tos, CONTROL_BUFFER);
	if (io->socket < 0 || set(io->socket, IPPROTO_IP, IP_RECVTOS, 1) < 0)
		return -1;
	if (set(io->socket, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER) < 0)
		set(io->socket, SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER);
	if (getsockname(io->socket, (struct sockaddr *)&own, &length) < 0)
		return -1;
	io->number = ntohs(own.sin_port);
	for (uint32_t i = 0; i < options->paths; i++) {
		io->paths[i] = open_socket(io, options->data_tos | ECT, path_buffer(io));
		if (io->paths[i] < 0)
			return -1;
	}
	return watch(io, io->socket, AT_SOCKET, EPOLLIN);
}

/* Return the port of an IPv4 address, or NULL with errno. It lasts as long as the process. */
struct io *fabric_port(const char *address, const struct options *options)
{
	struct io *io = calloc(1, sizeof(*io));

	if (!io)
		return NULL;
	port_init(&io->port, options);
	io->port.context = io;
	io->port.transmit = transmit;
	io->port.now = now;
	io->port.news = news;
	io->watched = -1;
	io->received = malloc((size_t)BATCH * MOST_DATAGRAM);
	io->epoll = epoll_create1(EPOLL_CLOEXEC);
	io->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	io->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&io->lock, NULL);
	if (inet_pton(AF_INET, address, &io->address) != 1) {
		errno = EINVAL;
		return NULL;
	}
	if (!io->received || open_sockets(io) < 0 || watch(io, io->timer, AT_TIMER, EPOLLIN) < 0 ||
	    watch(io, io->wake, AT_WAKE, EPOLLIN) < 0 || pthread_create(&io->thread, NULL, run, io))
		return NULL;
	pthread_detach(io->thread);
	return io;
}

/* Making a connection ------------------------------------------------------------------------------------------------- */

static int place_of(struct io *io)
{
	struct stream **more;
	uint32_t place = 0;

	while (place < io->places && io->streams[place])
		place++;
	if (place < io->places)
		return place;
	more = realloc(io->streams, 2 * (place + 8) * sizeof(*more));
	if (!more)
		return -1;
	memset(more + place, 0, (2 * (place + 8) - place) * sizeof(*more));
	io->streams = more;
	io->places = 2 * (place + 8);
	return place;
}

static void way_init(struct way *way)
{
	pthread_condattr_t clock;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&way->changed, &clock);
	way->ready = -1;
}

/* Return an end whose peer is not known yet, with its description, or NULL with errno. `socket` stays the caller's. */
struct stream *fabric_end(struct io *io, uint32_t ring_bytes, int socket, struct description *own)
{
	static uint32_t tokens;
	struct stream *it = calloc(1, sizeof(*it));
	int place;

	if (!it || !connection_init(&it->core, &io->port, ring_bytes))
		return NULL;
	way_init(&it->out);
	way_init(&it->in);
	it->socket = socket;
	pthread_mutex_lock(&io->lock);
	place = place_of(io);
	if (place >= 0) {
		it->core.number = place;
		it->core.token = (uint32_t)clock_ns() ^ ++tokens * 2654435761u;
		io->streams[place] = it;
	}
	pthread_mutex_unlock(&io->lock);
	*own = (struct description){ io->address, io->number, place, it->core.token, ring_bytes };
	return place < 0 ? NULL : it;
}

/* Connect an end to the one that is described. */
int fabric_join(struct stream *it, const struct description *peer)
{
	struct io *io = io_of(it);
	int error = 0;

	if (peer->ring_bytes != it->core.ring_bytes)
		return -EPROTO;
	pthread_mutex_lock(&io->lock);
	it->core.peer_address = peer->address;
	it->core.peer_port = peer->port;
	it->core.peer_number = peer->number;
	it->core.peer_token = peer->token;
	pthread_mutex_unlock(&io->lock);
	return error;
}

/* Hear of the peer's end from now on, once the ends need their socket no more to meet. */
int fabric_heed(struct stream *it)
{
	return watch(io_of(it), it->socket, it->core.number, EPOLLIN | EPOLLRDHUP) < 0 ? -errno : 0;
}

/* Return the UDP source port of the first path. */
int fabric_source(const struct stream *it)
{
	struct sockaddr_in own;
	socklen_t length = sizeof(own);

	return getsockname(io_of(it)->paths[0], (struct sockaddr *)&own, &length) < 0 ? -errno : ntohs(own.sin_port);
}

/* What programs do ---------------------------------------------------------------------------------------------------- */

static struct timespec deadline_of(int timeout_ms)
{
	uint64_t at_ns = clock_ns() + timeout_ms * 1000000ull;

	return (struct timespec){ at_ns / 1000000000, at_ns % 1000000000 };
}

/* Wait, with the lock given back meanwhile, until `deadline` (NULL: for ever). */
static int wait_for(struct stream *it, struct way *way, const struct timespec *deadline)
{
	struct io *io = io_of(it);

	if (!deadline)
		return -pthread_cond_wait(&way->changed, &io->lock);
	return -pthread_cond_timedwait(&way->changed, &io->lock, deadline);
}

/* Send, and let the thread know if something is due sooner than it thinks. */
static void set_off(struct io *io)
{
	uint64_t due_ns = io->port.due_ns;

	pump(io);
	if (io->port.due_ns < due_ns)
		eventfd_write(io->wake, 1);
}

/* Send what there is room for of `count` buffers, within `timeout_ms` (-1: however long it takes); return how much. */
int64_t fabric_send(struct stream *it, const struct iovec *buffers, int count, int timeout_ms)
{
	struct timespec deadline = deadline_of(timeout_ms < 0 ? 0 : timeout_ms);
	uint64_t all = 0, done = 0;
	int error = 0;

	for (int i = 0; i < count; i++)
		all += buffers[i].iov_len;
	pthread_mutex_lock(&io_of(it)->lock);
	while (!error) {
		if (it->core.ended) {
			error = -EPIPE;
			break;
		}
		done = connection_write(&it->core, buffers, done, all);
		set_off(io_of(it));
		if (done == all || timeout_ms == 0)
			break;
		if (!connection_room(&it->core))
			error = wait_for(it, &it->out, timeout_ms < 0 ? NULL : &deadline);
	}
	say_ready(&it->out, has_room(it));
	pthread_mutex_unlock(&io_of(it)->lock);
	return error == 0 || error == -ETIMEDOUT ? (int64_t)done : error;
}

/* Return how much of what was sent has not come, or, while there is no room, the peer's program has not taken. */
int64_t fabric_unacknowledged(struct stream *it, int64_t *all)
{
	int64_t found = -EPIPE;

	pthread_mutex_lock(&io_of(it)->lock);
	if (!it->core.ended) {
		*all = it->core.acknowledged;
		found = it->core.written - it->core.acknowledged;
	}
	pthread_mutex_unlock(&io_of(it)->lock);
	return found;
}

/* Have at most about `size` bytes under way. */
void fabric_limit(struct stream *it, uint32_t size)
{
	pthread_mutex_lock(&io_of(it)->lock);
	it->core.room_bytes = size < it->core.ring_bytes ? size : it->core.ring_bytes;
	pthread_mutex_unlock(&io_of(it)->lock);
}

static int poll_way(struct stream *it, struct way *way, bool (*is_ready)(const struct stream *))
{
	pthread_mutex_lock(&io_of(it)->lock);
	if (way->ready < 0)
		way->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	say_ready(way, is_ready(it));
	pthread_mutex_unlock(&io_of(it)->lock);
	return way->ready < 0 ? -errno : way->ready;
}

/* Return a descriptor that is readable while there is room, or the connection has ended. */
int fabric_poll_room(struct stream *it)
{
	return poll_way(it, &it->out, has_room);
}

/* Return a descriptor that is readable while something is there to receive, or the connection has ended. */
int fabric_poll_arrivals(struct stream *it)
{
	return poll_way(it, &it->in, has_arrivals);
}

/* Fill `count` buffers; a wait for something ends after `timeout_ms` (-1: never). */
int fabric_receive(struct stream *it, const struct iovec *buffers, int count, int timeout_ms)
{
	uint64_t done = 0, taken;
	int error = 0;

	pthread_mutex_lock(&io_of(it)->lock);
	while (!error && count) {
		struct timespec deadline = deadline_of(timeout_ms < 0 ? 0 : timeout_ms);

		taken = connection_take(&it->core, (char *)buffers->iov_base + done, buffers->iov_len - done);
		done += taken;
		if (done == buffers->iov_len) {
			buffers++;
			count--;
			done = 0;
		} else if (it->core.ended) {
			error = -EPIPE;
		} else if (!taken) {
			error = wait_for(it, &it->in, timeout_ms < 0 ? NULL : &deadline);
		}
	}
	say_ready(&it->in, has_arrivals(it));
	pthread_mutex_unlock(&io_of(it)->lock);
	return error;
}

/* Take what has come, at most `most`, without waiting; return how much that was. */
int64_t fabric_receive_now(struct stream *it, char *into, uint64_t most)
{
	int64_t found;

	pthread_mutex_lock(&io_of(it)->lock);
	found = connection_take(&it->core, into, most);
	if (!found && it->core.ended)
		found = -EPIPE;
	say_ready(&it->in, has_arrivals(it));
	pthread_mutex_unlock(&io_of(it)->lock);
	return found;
}

int64_t fabric_arrived(struct stream *it)
{
	return it->closed ? 0 : it->core.arrived;
}

int fabric_counts(struct stream *it, struct counts *counts)
{
	pthread_mutex_lock(&io_of(it)->lock);
	*counts = it->core.counts;
	pthread_mutex_unlock(&io_of(it)->lock);
	return it->core.ended ? -EPIPE : 0;
}

/* The end ------------------------------------------------------------------------------------------------------------- */

/* Wait until all was acknowledged, for at most `timeout_ms`. */
void fabric_flush(struct stream *it, int timeout_ms)
{
	struct timespec deadline = deadline_of(timeout_ms);

	pthread_mutex_lock(&io_of(it)->lock);
	while (!it->core.ended && it->core.acknowledged != it->core.written)
		if (wait_for(it, &it->out, &deadline))
			break;
	pthread_mutex_unlock(&io_of(it)->lock);
}

/* Let nobody wait in it any more. */
void fabric_close(struct stream *it)
{
	pthread_mutex_lock(&io_of(it)->lock);
	end(it);
	it->closed = true;
	pthread_mutex_unlock(&io_of(it)->lock);
}

/* Give back what it holds. Nobody is in it. */
void fabric_free(struct stream *it)
{
	struct io *io = io_of(it);

	pthread_mutex_lock(&io->lock);
	end(it);
	io->streams[it->core.number] = NULL;
	pthread_mutex_unlock(&io->lock);
	if (it->out.ready >= 0)
		close(it->out.ready);
	if (it->in.ready >= 0)
		close(it->in.ready);
	connection_free(&it->core);
}
