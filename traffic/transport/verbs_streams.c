/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of bytes between two programs by RDMA writes, for traffic/transport/verbs.py.
 *
 * Each direction has a queue pair of its own, as a connection of NCCL has. The sender writes pieces, with their length as
 * immediate data, into a ring of memory of the receiver; both have the same offsets there, so a sender's copy of a piece is
 * free once the receiver has taken the piece out. The receiver says so by immediate data alone, and waits, as the sender
 * does, for events of its completion queue: nothing polls. A piece asks for an event if the sender stops behind it, or a
 * quarter of the ring. A socket beside the queue pairs tells of the peer's end.
 *
 * Functions return what is 0 or more, or a negative errno: EPIPE once the connection has ended, ETIMEDOUT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PORT 1
#define PIECES 64 /* That the receiver has not taken out. */
#define WORDS 16 /* About what was taken out, that are under way: at most 4 by bytes and 4 by pieces. */
#define SENDS (4 * PIECES)
#define PIECES_SHIFT 25 /* Of what was taken out: bytes below, pieces above. */
#define RNR_RETRIES 7 /* For ever. */
#define RNR_TIMER 12 /* 640 us; a receiver is always ready. */

struct nic {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int gid_index;
	enum ibv_mtu mtu;
};

struct description { /* Of an end, for the other one. */
	union ibv_gid gid;
	uint64_t ring;
	uint32_t key, ring_bytes, out, in;
};

struct path { /* What a program decides of queue pairs. */
	uint8_t traffic_class;
	uint32_t flow_label; /* 0: the NIC computes their source ports. */
	int timeout, retries; /* As verbs have them: of acknowledgements, 4.096 us << timeout. */
};

struct way {
	pthread_mutex_t lock;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	unsigned events; /* Not acknowledged to the library yet. */
	int epoll, ready; /* For who polls; -1: nobody does. */
	bool is_ready, failed;
};

struct connection {
	struct way out, in;
	struct nic *nic;
	struct ibv_mr *mr;
	char *memory; /* The ring, and behind it copies of what is under way to the peer's. */
	uint64_t peer_ring;
	uint32_t peer_key, ring_bytes, room_bytes;
	int socket;
	bool closed;
	/* Outward. */
	uint64_t sent, acknowledged, taken, asked_event_at;
	uint32_t pieces_sent, pieces_taken, unfinished;
	/* Inward. */
	uint64_t arrived, received, told, piece_ends[PIECES];
	uint32_t pieces_arrived, pieces_received, pieces_told;
};

/* NICs ---------------------------------------------------------------------------------------------------------------- */

/* Let the calling thread see the devices of its network namespace in /sys. */
static int own_sys(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -1;
	return mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static struct nic *nic_of(struct ibv_context *context, const union ibv_gid *wanted)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct nic *nic;

	if (ibv_query_port(context, PORT, &port))
		return NULL;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid(context, PORT, i, &gid) || memcmp(&gid, wanted, sizeof(gid)) != 0)
			continue;
		nic = calloc(1, sizeof(*nic));
		if (nic) {
			*nic = (struct nic){ .context = context, .gid = gid, .gid_index = i, .mtu = port.active_mtu };
			nic->pd = ibv_alloc_pd(context);
		}
		return nic;
	}
	return NULL;
}

static struct nic *find_nic(const union ibv_gid *wanted)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct nic *nic = NULL;

	for (struct ibv_device **device = devices; device && *device && !nic; device++) {
		struct ibv_context *context = ibv_open_device(*device);

		nic = context ? nic_of(context, wanted) : NULL;
		if (context && !nic)
			ibv_close_device(context);
	}
	if (devices)
		ibv_free_device_list(devices);
	errno = ENODEV;
	return nic;
}

/* Return the NIC of an IPv4 address, or NULL with errno. */
struct nic *fabric_nic(const char *address)
{
	union ibv_gid wanted = { .raw = { [10] = 0xff, [11] = 0xff } };
	struct nic *nic;

	if (inet_pton(AF_INET, address, wanted.raw + 12) != 1) {
		errno = EINVAL;
		return NULL;
	}
	nic = find_nic(&wanted);
	if (nic || own_sys() < 0)
		return nic;
	return find_nic(&wanted);
}

/* Making a connection ------------------------------------------------------------------------------------------------- */

static int make_way(struct way *way, struct nic *nic, int sends, int receives)
{
	struct ibv_qp_init_attr wanted = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr first = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	way->channel = ibv_create_comp_channel(nic->context);
	if (!way->channel || fcntl(way->channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	way->cq = ibv_create_cq(nic->context, sends + receives, NULL, way->channel, 0);
	if (!way->cq)
		return -errno;
	wanted.send_cq = wanted.recv_cq = way->cq;
	way->qp = ibv_create_qp(nic->pd, &wanted);
	if (!way->qp)
		return -errno;
	return -ibv_modify_qp(way->qp, &first, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void end_way(struct way *way)
{
	if (way->qp)
		ibv_destroy_qp(way->qp);
	if (way->cq) {
		ibv_ack_cq_events(way->cq, way->events);
		ibv_destroy_cq(way->cq);
	}
	if (way->channel)
		ibv_destroy_comp_channel(way->channel);
	if (way->epoll >= 0) {
		close(way->epoll);
		close(way->ready);
	}
	way->epoll = -1;
}

static void give_back(struct connection *it)
{
	end_way(&it->out);
	end_way(&it->in);
	if (it->mr)
		ibv_dereg_mr(it->mr);
	if (it->memory != MAP_FAILED)
		munmap(it->memory, 2 * (size_t)it->ring_bytes);
}

static int receive_next(struct way *way)
{
	struct ibv_recv_wr next = { 0 }, *bad;

	return -ibv_post_recv(way->qp, &next, &bad);
}

/* Return an end whose peer is not known yet, with its description, or NULL with errno. `socket` stays the caller's. */
struct connection *fabric_end(struct nic *nic, uint32_t ring_bytes, int socket, struct description *own)
{
	struct connection *it = calloc(1, sizeof(*it));
	int error;

	if (!it)
		return NULL;
	*it = (struct connection){ .nic = nic, .ring_bytes = ring_bytes, .room_bytes = ring_bytes, .socket = socket };
	pthread_mutex_init(&it->out.lock, NULL);
	pthread_mutex_init(&it->in.lock, NULL);
	it->out.epoll = it->in.epoll = -1;
	it->memory = mmap(NULL, 2 * (size_t)ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	error = it->memory == MAP_FAILED ? -errno : make_way(&it->out, nic, SENDS, WORDS);
	if (!error)
		error = make_way(&it->in, nic, WORDS, PIECES);
	if (!error) {
		it->mr = ibv_reg_mr(nic->pd, it->memory, 2 * (size_t)ring_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		error = it->mr ? 0 : -errno;
	}
	for (int i = 0; i < WORDS && !error; i++)
		error = receive_next(&it->out);
	for (int i = 0; i < PIECES && !error; i++)
		error = receive_next(&it->in);
	if (error) {
		give_back(it);
		free(it);
		errno = -error;
		return NULL;
	}
	*own = (struct description){ nic->gid, (uintptr_t)it->memory, it->mr->rkey, ring_bytes, it->out.qp->qp_num,
				     it->in.qp->qp_num };
	return it;
}

static int join_way(struct way *way, struct nic *nic, const struct description *peer, uint32_t number, const struct path *path)
{
	struct ibv_qp_attr next = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = nic->mtu,
		.dest_qp_num = number,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = peer->gid, .sgid_index = nic->gid_index, .hop_limit = 64,
				 .traffic_class = path->traffic_class, .flow_label = path->flow_label },
		},
		.timeout = path->timeout,
		.retry_cnt = path->retries,
		.rnr_retry = RNR_RETRIES,
	};
	int error = ibv_modify_qp(way->qp, &next, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	next.qp_state = IBV_QPS_RTS;
	if (!error)
		error = ibv_modify_qp(way->qp, &next, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return -error;
}

/* Connect an end to the one that is described. */
int fabric_join(struct connection *it, const struct description *peer, uint8_t traffic_class, uint32_t flow_label,
		int timeout, int retries)
{
	const struct path path = { traffic_class, flow_label, timeout, retries };
	int error = join_way(&it->out, it->nic, peer, peer->in, &path);

	if (peer->ring_bytes != it->ring_bytes)
		return -EPROTO;
	it->peer_ring = peer->ring;
	it->peer_key = peer->key;
	return error ? error : join_way(&it->in, it->nic, peer, peer->out, &path);
}

/* What both directions do --------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

/* One: if there is another, it wakes once more, for nothing. */
static void fetch_event(struct way *way)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(way->channel, &cq, &context) == 0)
		way->events++;
}

static int has_ended(const struct connection *it)
{
	struct pollfd peer = { .fd = it->socket, .events = POLLIN | POLLRDHUP };

	return it->closed || poll(&peer, 1, 0) != 0;
}

/* Wait for an event, with the lock given back meanwhile. Returns 0, EPIPE if only the peer's end has come, ETIMEDOUT. */
static int wait_for_event(struct connection *it, struct way *way, int timeout_ms)
{
	struct pollfd wanted[] = { { .fd = way->channel->fd, .events = POLLIN },
				   { .fd = it->socket, .events = POLLIN | POLLRDHUP } };
	int found;

	pthread_mutex_unlock(&way->lock);
	do
		found = poll(wanted, 2, timeout_ms);
	while (found < 0 && errno == EINTR);
	pthread_mutex_lock(&way->lock);
	if (it->closed)
		return -EPIPE;
	if (found == 0)
		return -ETIMEDOUT;
	if (!wanted[0].revents)
		return -EPIPE;
	fetch_event(way);
	return 0;
}

static int watch(struct connection *it, struct way *way)
{
	struct epoll_event wanted = { .events = EPOLLIN };

	way->epoll = epoll_create1(EPOLL_CLOEXEC);
	way->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	way->is_ready = false;
	if (epoll_ctl(way->epoll, EPOLL_CTL_ADD, way->channel->fd, &wanted) < 0 ||
	    epoll_ctl(way->epoll, EPOLL_CTL_ADD, way->ready, &wanted) < 0)
		return -errno;
	wanted.events = EPOLLIN | EPOLLRDHUP;
	return epoll_ctl(way->epoll, EPOLL_CTL_ADD, it->socket, &wanted) < 0 ? -errno : 0;
}

static void say_ready(struct way *way, bool is_ready)
{
	eventfd_t count;

	if (is_ready && !way->is_ready)
		eventfd_write(way->ready, 1);
	if (!is_ready && way->is_ready)
		eventfd_read(way->ready, &count);
	way->is_ready = is_ready;
}

/* Outward ------------------------------------------------------------------------------------------------------------- */

static void look_outward(struct connection *it)
{
	struct ibv_wc found[16];
	int count;

	while ((count = ibv_poll_cq(it->out.cq, 16, found)) > 0)
		for (int i = 0; i < count; i++) {
			if (found[i].status != IBV_WC_SUCCESS) {
				it->out.failed = true;
			} else if (found[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
				uint32_t word = ntohl(found[i].imm_data);

				it->taken += word & ((1u << PIECES_SHIFT) - 1);
				it->pieces_taken += word >> PIECES_SHIFT;
				it->out.failed |= receive_next(&it->out) < 0;
			} else {
				it->acknowledged = found[i].wr_id;
				it->unfinished--;
			}
		}
	if (count < 0)
		it->out.failed = true;
}

static uint64_t room(const struct connection *it)
{
	uint64_t under_way = it->sent - it->taken;

	if (it->pieces_sent - it->pieces_taken >= PIECES || it->unfinished >= SENDS || under_way >= it->room_bytes)
		return 0;
	return it->room_bytes - under_way;
}

/* Look whether there is room; if not, an event tells of some. */
static uint64_t room_or_event(struct connection *it)
{
	look_outward(it);
	if (room(it) == 0 && !it->out.failed) {
		it->out.failed |= ibv_req_notify_cq(it->out.cq, it->unfinished < SENDS) != 0;
		look_outward(it);
	}
	return room(it);
}

/* Copy what comes next of some buffers, of which `skip` bytes were taken. */
static void gather(char *to, const struct iovec *from, uint64_t skip, uint64_t size)
{
	for (; size; from++) {
		uint64_t part;

		if (skip >= from->iov_len) {
			skip -= from->iov_len;
			continue;
		}
		part = least(from->iov_len - skip, size);
		memcpy(to, (char *)from->iov_base + skip, part);
		to += part;
		size -= part;
		skip = 0;
	}
}

static void write_piece(struct connection *it, uint64_t size, bool is_last)
{
	uint64_t offset = it->sent % it->ring_bytes;
	struct ibv_sge part = { .addr = (uintptr_t)it->memory + it->ring_bytes + offset, .length = size, .lkey = it->mr->lkey };
	struct ibv_send_wr piece = { .wr_id = it->sent + size, .sg_list = &part, .num_sge = 1, .imm_data = htonl(size),
				     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM }, *bad;

	piece.wr.rdma.remote_addr = it->peer_ring + offset;
	piece.wr.rdma.rkey = it->peer_key;
	it->sent += size;
	it->pieces_sent++;
	it->unfinished++;
	if (is_last || room(it) == 0 || it->sent - it->asked_event_at >= it->ring_bytes / 4) {
		piece.send_flags = IBV_SEND_SOLICITED;
		it->asked_event_at = it->sent;
	}
	if (ibv_post_send(it->out.qp, &piece, &bad))
		it->out.failed = true;
}

static uint64_t send_now(struct connection *it, const struct iovec *buffers, uint64_t done, uint64_t all)
{
	uint64_t size, has_room;

	look_outward(it);
	while (done < all && !it->out.failed && (has_room = room(it)) > 0) {
		uint64_t offset = it->sent % it->ring_bytes;

		size = least(least(all - done, has_room), least(it->ring_bytes - offset, it->ring_bytes / 4));
		gather(it->memory + it->ring_bytes + offset, buffers, done, size);
		write_piece(it, size, done + size == all);
		done += size;
	}
	return done;
}

/* Send what there is room for of `count` buffers, within `timeout_ms` (-1: however long it takes); return how much. */
int64_t fabric_send(struct connection *it, const struct iovec *buffers, int count, int timeout_ms)
{
	uint64_t all = 0, done = 0;
	int error = 0;

	for (int i = 0; i < count; i++)
		all += buffers[i].iov_len;
	pthread_mutex_lock(&it->out.lock);
	if (it->out.epoll >= 0 && !it->closed)
		fetch_event(&it->out);
	while (!error) {
		if (it->closed) {
			error = -EPIPE;
			break;
		}
		done = send_now(it, buffers, done, all);
		if (it->out.failed)
			error = -EPIPE;
		else if (done == all || timeout_ms == 0)
			break;
		else if (room_or_event(it) == 0)
			error = wait_for_event(it, &it->out, timeout_ms);
	}
	if (it->out.epoll >= 0 && !it->closed)
		say_ready(&it->out, room_or_event(it) > 0);
	pthread_mutex_unlock(&it->out.lock);
	return error == 0 || error == -ETIMEDOUT ? (int64_t)done : error;
}

/* Return how much of what was sent the peer's NIC has not acknowledged, or, while its ring is full, the peer has not taken
 * out: that moves as the peer does. `all`: how much its NIC has acknowledged. */
int64_t fabric_unacknowledged(struct connection *it, int64_t *all)
{
	int64_t found = -EPIPE;

	pthread_mutex_lock(&it->out.lock);
	if (!it->closed) {
		look_outward(it);
		*all = it->acknowledged;
		found = it->sent - (room(it) ? it->acknowledged : it->taken);
	}
	pthread_mutex_unlock(&it->out.lock);
	return found;
}

/* Have at most about `size` bytes under way: no less than half of the ring, since a receiver tells of quarters. */
void fabric_limit(struct connection *it, uint32_t size)
{
	pthread_mutex_lock(&it->out.lock);
	it->room_bytes = size < it->ring_bytes / 2 ? it->ring_bytes / 2 : least(size, it->ring_bytes);
	pthread_mutex_unlock(&it->out.lock);
}

/* Return a descriptor that is readable while there is room, or the peer has ended. */
int fabric_poll_room(struct connection *it)
{
	int found;

	pthread_mutex_lock(&it->out.lock);
	found = it->closed ? -EPIPE : it->out.epoll >= 0 ? 0 : watch(it, &it->out);
	if (!found) {
		say_ready(&it->out, room_or_event(it) > 0);
		found = it->out.epoll;
	}
	pthread_mutex_unlock(&it->out.lock);
	return found;
}

/* Inward -------------------------------------------------------------------------------------------------------------- */

static void look_inward(struct connection *it)
{
	struct ibv_wc found[16];
	int count;

	while ((count = ibv_poll_cq(it->in.cq, 16, found)) > 0)
		for (int i = 0; i < count; i++) {
			if (found[i].status != IBV_WC_SUCCESS) {
				it->in.failed = true;
			} else if (found[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
				it->arrived += ntohl(found[i].imm_data);
				it->piece_ends[it->pieces_arrived++ % PIECES] = it->arrived;
				it->in.failed |= receive_next(&it->in) < 0;
			}
		}
	if (count < 0)
		it->in.failed = true;
}

static void arrival_or_event(struct connection *it)
{
	look_inward(it);
	if (it->arrived == it->received && !it->in.failed) {
		it->in.failed |= ibv_req_notify_cq(it->in.cq, 1) != 0;
		look_inward(it);
	}
}

/* Tell the sender what was taken out, a quarter of the ring or of its pieces at a time. */
static void tell_taken(struct connection *it)
{
	struct ibv_send_wr word = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SOLICITED }, *bad;

	while (it->pieces_received != it->pieces_arrived && it->piece_ends[it->pieces_received % PIECES] <= it->received)
		it->pieces_received++;
	if (it->received - it->told < it->ring_bytes / 4 && it->pieces_received - it->pieces_told < PIECES / 4)
		return;
	word.imm_data = htonl((it->pieces_received - it->pieces_told) << PIECES_SHIFT | (it->received - it->told));
	word.wr.rdma.remote_addr = it->peer_ring;
	word.wr.rdma.rkey = it->peer_key;
	it->told = it->received;
	it->pieces_told = it->pieces_received;
	if (ibv_post_send(it->in.qp, &word, &bad))
		it->in.failed = true;
}

/* Take what has come into a buffer; return how much that was. */
static uint64_t take(struct connection *it, char *into, uint64_t most)
{
	uint64_t taken = 0;

	look_inward(it);
	while (taken < most && it->received < it->arrived) {
		uint64_t offset = it->received % it->ring_bytes;
		uint64_t size = least(least(most - taken, it->arrived - it->received), it->ring_bytes - offset);

		memcpy(into + taken, it->memory + offset, size);
		taken += size;
		it->received += size;
		tell_taken(it);
	}
	return taken;
}

/* Fill `count` buffers; a wait for something ends after `timeout_ms` (-1: never). */
int fabric_receive(struct connection *it, const struct iovec *buffers, int count, int timeout_ms)
{
	uint64_t done = 0;
	int error = 0;

	pthread_mutex_lock(&it->in.lock);
	while (!error && count) {
		bool was_told_of_end = false;

		if (it->closed) {
			error = -EPIPE;
			break;
		}
		done += take(it, (char *)buffers->iov_base + done, buffers->iov_len - done);
		if (done == buffers->iov_len) {
			buffers++;
			count--;
			done = 0;
			continue;
		}
		arrival_or_event(it);
		if (it->arrived != it->received)
			continue;
		if (it->in.failed)
			error = -EPIPE;
		else
			error = wait_for_event(it, &it->in, timeout_ms);
		was_told_of_end = error == -EPIPE && !it->closed;
		if (was_told_of_end) { /* What came before it is there by now. */
			look_inward(it);
			error = it->arrived != it->received ? 0 : -EPIPE;
		}
	}
	if (it->in.epoll >= 0 && !it->closed) {
		arrival_or_event(it);
		say_ready(&it->in, it->arrived != it->received);
	}
	pthread_mutex_unlock(&it->in.lock);
	return error;
}

/* Take what has come, at most `most`, without waiting; return how much that was. */
int64_t fabric_receive_now(struct connection *it, char *into, uint64_t most)
{
	int64_t found = -EPIPE;

	pthread_mutex_lock(&it->in.lock);
	if (!it->closed) {
		bool ended = has_ended(it);

		fetch_event(&it->in);
		found = take(it, into, most);
		arrival_or_event(it);
		if (found == 0 && it->arrived == it->received && (ended || it->in.failed))
			found = -EPIPE;
		if (it->in.epoll >= 0)
			say_ready(&it->in, it->arrived != it->received);
	}
	pthread_mutex_unlock(&it->in.lock);
	return found;
}

int64_t fabric_arrived(struct connection *it)
{
	int64_t found = 0;

	pthread_mutex_lock(&it->in.lock);
	if (!it->closed) {
		look_inward(it);
		found = it->arrived;
	}
	pthread_mutex_unlock(&it->in.lock);
	return found;
}

/* Return a descriptor that is readable while something is there to receive, or the peer has ended. */
int fabric_poll_arrivals(struct connection *it)
{
	int found;

	pthread_mutex_lock(&it->in.lock);
	found = it->closed ? -EPIPE : it->in.epoll >= 0 ? 0 : watch(it, &it->in);
	if (!found) {
		arrival_or_event(it);
		say_ready(&it->in, it->arrived != it->received);
		found = it->in.epoll;
	}
	pthread_mutex_unlock(&it->in.lock);
	return found;
}

/* The end ------------------------------------------------------------------------------------------------------------- */

/* Wait until all was acknowledged, for at most `timeout_ms`. */
void fabric_flush(struct connection *it, int timeout_ms)
{
	pthread_mutex_lock(&it->out.lock);
	while (!it->closed && !it->out.failed) {
		look_outward(it);
		if (it->acknowledged == it->sent || ibv_req_notify_cq(it->out.cq, 0))
			break;
		look_outward(it);
		if (it->acknowledged == it->sent || wait_for_event(it, &it->out, timeout_ms))
			break;
	}
	pthread_mutex_unlock(&it->out.lock);
}

/* Give back what the connection holds. Who waits in it has been woken by the end of its socket. */
void fabric_close(struct connection *it)
{
	pthread_mutex_lock(&it->out.lock);
	pthread_mutex_lock(&it->in.lock);
	if (!it->closed)
		give_back(it);
	it->closed = true;
	pthread_mutex_unlock(&it->in.lock);
	pthread_mutex_unlock(&it->out.lock);
}

void fabric_free(struct connection *it)
{
	fabric_close(it);
	free(it);
}
