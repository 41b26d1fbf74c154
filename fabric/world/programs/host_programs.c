/* SPDX-License-Identifier: Apache-2.0
 *
 * What users' programs find on a host beside its network, and how they get there:
 *
 *   fabric-host enter HOST DIRECTORY COMMAND...  runs a command on a host, in a directory, in the caller's session and group
 *   fabric-host serve                            starts what ssh asks for, on any host of the run
 *   ssh, rsh, remsh                              by these names: the client of `serve`, with OpenSSH's command line
 *   scp, sftp                                    by these names: the machine's own, over that client
 *
 * A host is furnished when the first program starts on it: it gets mount, IPC and PID namespaces of its own beside those
 * of its network and name, which the fabric has made. Process 1 there reaps, and is the host's server of names. What a host
 * shares with the others is listed in FOLDER/keep, a path a line, bound into its own /tmp and /run.
 *
 * A program's process on a host is a child of one that waits for it outside, in the same group: whoever signals the group
 * reaches both, and whatever ends the one outside ends the one inside.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pwd.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "/run/fabric/furnished" /* hosts.py knows it, too. */
#define SOCKET FOLDER "/ssh"
#define NICS FOLDER "/nics" /* Of all hosts, a line each: host, interface, Mbit/s. */
#define VERBS FOLDER "/verbs" /* verbs.py knows it, too: it is there if NICs are RDMA devices, and names what to preload. */
#define SEEDED FOLDER "/seeded" /* hosts.py knows it, too: it is there in virtual time, and names what to preload. */
#define COPIES FOLDER "/copies" /* By what was copied over ssh, and to or from which host, a line each; hosts.py knows it, too. */
#define BINARIES "/run/fabric/bin"
#define GROUPS "/sys/fs/cgroup" /* Of the run: control groups by which a program is counted. sent_bytes.py knows these, too. */
#define OF_GROUPS "fabric-"
#define GROUP_PLACE "FABRIC_PROGRAM_GROUP"
#define MOST_BYTES (4u << 20) /* Of a command with its environment: twice what exec takes. */
#define USUAL_FILES 1024 /* limits.py knows it, too. */
#define USAGE 255 /* What ssh ends with if it fails by itself. */
#define CLONE_TREE (1 | O_CLOEXEC | 0x8000) /* OPEN_TREE_CLONE and AT_RECURSIVE, which a C library before 2.36 lacks. */
#define BY_DESCRIPTOR 4 /* MOVE_MOUNT_F_EMPTY_PATH */
#define INTO_GROUP 0x200000000 /* CLONE_INTO_CGROUP */

extern char **environ;
static const char *self = "host";
static char **own_words; /* By which this process was started. */

static void fail(int code, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", self);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(code);
}

/* Furnishing a host ------------------------------------------------------------------------------------------------ */

static void must(int result, const char *what, const char *subject)
{
	if (result < 0)
		fail(126, "%s %s: %s", what, subject, strerror(errno));
}

#define LONGEST_WAIT_S 60
static const char *awaited, *awaited_of; /* For what a process waits, and of which host. */

static void is_too_late(int number)
{
	(void)number;
	dprintf(2, "%s: waited %d s for %s %s\n", self, LONGEST_WAIT_S, awaited, awaited_of);
	_exit(126);
}

/* End with a message if what comes next takes too long, until wait_is_over(). */
static void wait_for(const char *what, const char *host, struct sigaction *before, unsigned *left)
{
	struct sigaction late = { .sa_handler = is_too_late };

	awaited = what;
	awaited_of = host;
	sigaction(SIGALRM, &late, before);
	*left = alarm(LONGEST_WAIT_S);
}

static void wait_is_over(const struct sigaction *before, unsigned left)
{
	alarm(left);
	sigaction(SIGALRM, before, NULL);
}

static void path_of(char *path, const char *host, const char *name)
{
	if (snprintf(path, PATH_MAX, FOLDER "/%s/%s", host, name) >= PATH_MAX)
		fail(126, "%s: the name is too long", host);
}

static void make_parents(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			fail(126, "making %s: %s", path, strerror(errno));
		*slash = '/';
	}
}

static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return strncmp(path, directory, length) == 0 && path[length] == '/';
}

/* Bind what is kept of a directory into what will be the host's own. */
static void bind_kept(const char *directory, const char *staging)
{
	FILE *kept = fopen(FOLDER "/keep", "re");
	char line[PATH_MAX], target[2 * PATH_MAX];
	struct stat status;

	while (kept && fgets(line, sizeof(line), kept)) {
		line[strcspn(line, "\n")] = '\0';
		if (!is_below(line, directory) || stat(line, &status) < 0)
			continue;
		snprintf(target, sizeof(target), "%s%s", staging, line + strlen(directory));
		make_parents(target);
		if (S_ISDIR(status.st_mode)) {
			if (mkdir(target, 0755) < 0 && errno != EEXIST)
				fail(126, "making %s: %s", target, strerror(errno));
		} else {
			close(open(target, O_CREAT | O_CLOEXEC | O_WRONLY, 0644));
		}
		must(mount(line, target, NULL, MS_BIND | MS_REC, NULL), "binding", line);
	}
	if (kept)
		fclose(kept);
}

/* Put a directory of the host's own in the place of the run's, with what is kept of it. One that is kept whole stays. */
static void own_directory(const char *directory, const char *options)
{
	static const char staging[] = "/dev/shm/.staging"; /* The host's own already. */
	FILE *kept = fopen(FOLDER "/keep", "re");
	char line[PATH_MAX];
	bool whole = false;

	while (kept && fgets(line, sizeof(line), kept)) {
		line[strcspn(line, "\n")] = '\0';
		whole |= strcmp(line, directory) == 0;
	}
	if (kept)
		fclose(kept);
	if (whole)
		return;
	must(mkdir(staging, 0755), "making", staging);
	must(mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV, options), "mounting on", staging);
	bind_kept(directory, staging);
	must(mount(staging, directory, NULL, MS_MOVE, NULL), "mounting the host's own", directory);
	rmdir(staging);
}

/* Show a file of ours in the place of the machine's, where it has one. A link into /run leads to a file of the host's. */
static void own_file(const char *name, const char *target)
{
	char source[PATH_MAX], real[PATH_MAX];
	ssize_t length;

	snprintf(source, sizeof(source), FOLDER "/%s", name);
	if (access(source, F_OK) < 0)
		return;
	if (access(target, F_OK) == 0) {
		must(mount(source, target, NULL, MS_BIND, NULL), "binding", target);
		return;
	}
	length = readlink(target, real, sizeof(real) - 1);
	if (length <= 0)
		return;
	real[length] = '\0';
	if (strncmp(real, "../run/", 7) == 0)
		memmove(real, real + 2, strlen(real) - 1);
	if (!is_below(real, "/run"))
		return;
	make_parents(real);
	close(open(real, O_CREAT | O_CLOEXEC | O_WRONLY, 0644));
	must(mount(source, real, NULL, MS_BIND, NULL), "binding", real);
}

static void write_file(const char *path, const char *text)
{
	int file = open(path, O_CREAT | O_TRUNC | O_CLOEXEC | O_WRONLY, 0644);

	if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
		fail(126, "writing %s: %s", path, strerror(errno));
	close(file);
}

/* FNV-1a, then SplitMix64's last steps: what is to differ between hosts, and to be the same in every run. */
static uint64_t hash(const char *text, uint64_t value)
{
	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 0x100000001b3ULL;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

static void own_identity(const char *host)
{
	uint64_t a = hash(host, 0xcbf29ce484222325ULL), b = hash(host, a);
	char text[80], path[PATH_MAX], shown[PATH_MAX];

	snprintf(text, sizeof(text), "%08x-%04x-4%03x-8%03x-%012llx\n", (unsigned)(a >> 32), (unsigned)(a >> 16) & 0xffff,
		 (unsigned)a & 0xfff, (unsigned)(b >> 48) & 0xfff, (unsigned long long)b & 0xffffffffffffULL);
	path_of(path, host, "boot_id");
	write_file(path, text);
	must(mount(path, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL), "binding", path);
	snprintf(text, sizeof(text), "%016llx%016llx\n", (unsigned long long)a, (unsigned long long)b);
	path_of(path, host, "machine-id");
	write_file(path, text);
	snprintf(shown, sizeof(shown), "%s/machine-id", host);
	own_file(shown, "/etc/machine-id");
	own_file(shown, "/var/lib/dbus/machine-id"); /* A link to it, or a copy. */
	snprintf(text, sizeof(text), "%s\n", host);
	path_of(path, host, "hostname");
	write_file(path, text);
	snprintf(shown, sizeof(shown), "%s/hostname", host);
	own_file(shown, "/etc/hostname");
}

/* Have an interface's driver say a speed; below 0 if it cannot be taught. */
static int teach_speed(const char *interface, int mbit_per_s)
{
	struct ethtool_cmd settings = { .cmd = ETHTOOL_GSET };
	struct ifreq request = { .ifr_data = (void *)&settings };
	int socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	result = ioctl(socket_, SIOCETHTOOL, &request);
	settings.cmd = ETHTOOL_SSET;
	ethtool_cmd_speed_set(&settings, mbit_per_s);
	if (result == 0)
		result = ioctl(socket_, SIOCETHTOOL, &request);
	close(socket_);
	return result;
}

/* Show a file of ours in the place of what /sys says of an interface's speed. */
static void show_speed(const char *host, const char *interface, int mbit_per_s)
{
	char name[32], source[PATH_MAX], target[PATH_MAX], text[16];

	snprintf(name, sizeof(name), "speed-%s", interface);
	path_of(source, host, name);
	snprintf(target, sizeof(target), "/sys/class/net/%s/speed", interface);
	snprintf(text, sizeof(text), "%d\n", mbit_per_s);
	write_file(source, text);
	must(mount(source, target, NULL, MS_BIND, NULL), "binding", target);
}

static void add_text(struct nlmsghdr *message, int kind, const char *text)
{
	struct nlattr *attribute = (void *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));

	attribute->nla_type = kind;
	attribute->nla_len = NLA_HDRLEN + strlen(text) + 1;
	strcpy((char *)attribute + NLA_HDRLEN, text);
	message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

/* Make the RDMA device of a NIC: soft RoCE v2. */
static void make_verbs(const char *host, const char *interface)
{
	struct {
		struct nlmsghdr head;
		char attributes[256];
	} message = { .head = { .nlmsg_len = NLMSG_LENGTH(0), .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
				.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK) } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char more[512];
	} answer;
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	char device[32];

	snprintf(device, sizeof(device), "mlx5_%s", interface + strlen("eth"));
	must(netlink, "RDMA of", host);
	add_text(&message.head, RDMA_NLDEV_ATTR_DEV_NAME, device);
	add_text(&message.head, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
	add_text(&message.head, RDMA_NLDEV_ATTR_NDEV_NAME, interface);
	must(send(netlink, &message, message.head.nlmsg_len, 0), "making an RDMA device of", host);
	must(recv(netlink, &answer, sizeof(answer), 0), "making an RDMA device of", host);
	errno = -answer.error.error;
	must(answer.error.error, "making an RDMA device of", host);
	close(netlink);
}

/* A host's NICs say the speed of their links, and are RDMA devices if the run offers them. */
static void own_nics(const char *host)
{
	FILE *nics = fopen(NICS, "re");
	bool has_verbs = access(VERBS, F_OK) == 0;
	char line[PATH_MAX], interface[16];
	size_t length = strlen(host);
	int mbit_per_s;

	while (nics && fgets(line, sizeof(line), nics)) {
		if (strncmp(line, host, length) != 0 || sscanf(line + length, " %15s %d", interface, &mbit_per_s) != 2 ||
		    line[length] != ' ')
			continue;
		if (teach_speed(interface, mbit_per_s) < 0)
			show_speed(host, interface, mbit_per_s);
		if (has_verbs && strncmp(interface, "eth", strlen("eth")) == 0)
			make_verbs(host, interface);
	}
	if (nics)
		fclose(nics);
}

static void furnish(const char *host)
{
	must(unshare(CLONE_NEWNS), "a mount namespace of", host);
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mounts of", host);
	must(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "mounting /proc of", host);
	must(mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "mounting /sys of", host);
	must(mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), "mounting /dev/shm of", host);
	mkdir("/dev/mqueue", 0755); /* /dev is the run's own. A kernel without such queues has no file system of them. */
	mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	own_identity(host); /* Before /run is another's. */
	own_nics(host);
	own_directory("/tmp", "mode=1777");
	own_directory("/run", "mode=755");
	if (mkdir("/run/lock", 0) == 0) /* Where /var/lock leads to. */
		chmod("/run/lock", 01777);
	own_file("resolv.conf", "/etc/resolv.conf");
	own_file("nsswitch.conf", "/etc/nsswitch.conf");
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Read the next entry of /etc/hosts into `line`: return its address, with its names behind `rest`, for strtok_r(); NULL at
 * the end, where the table is closed. */
static char *next_entry(FILE *table, char *line, int size, char **rest)
{
	while (table && fgets(line, size, table)) {
		char *address;

		line[strcspn(line, "#\n")] = '\0';
		address = strtok_r(line, " \t", rest);
		if (address)
			return address;
	}
	if (table)
		fclose(table);
	return NULL;
}

/* Return the IPv4 address of a name by /etc/hosts, or the first name of an address; NULL: it has none. */
static const char *in_hosts(const char *wanted, bool is_name)
{
	static char line[4096];
	char *address, *name, *rest;
	FILE *table = fopen("/etc/hosts", "re");

	while ((address = next_entry(table, line, sizeof(line), &rest))) {
		bool matches = !is_name && strcmp(address, wanted) == 0;

		if (strchr(address, ':') || (!is_name && !matches))
			continue;
		while ((name = strtok_r(NULL, " \t", &rest)))
			if (matches || strcasecmp(name, wanted) == 0) {
				fclose(table);
				return matches ? name : address;
			}
	}
	return NULL;
}

#define NAME_SERVER 0x7f000035 /* 127.0.0.53; hosts.py and listening.py know it, too. */
#define DNS_HEADER 12
enum { DNS_A = 1, DNS_PTR = 12, DNS_NO_NAME = 3, DNS_NOT_DONE = 4 };

/* Put the name of a question into `name`; return the bytes of the question, 0 if it is none. */
static size_t question_of(const unsigned char *message, size_t bytes, char *name, uint16_t *type)
{
	size_t at = DNS_HEADER, length = 0;

	if (bytes < DNS_HEADER || (message[2] & 0x80) || message[4] || message[5] != 1)
		return 0;
	while (at < bytes && message[at]) {
		if (message[at] > 63 || at + 1 + message[at] >= bytes || length + message[at] + 1 > 255)
			return 0;
		memcpy(name + length, message + at + 1, message[at]);
		length += message[at];
		name[length++] = '.';
		at += 1 + message[at];
	}
	name[length ? length - 1 : 0] = '\0';
	if (at + 5 > bytes)
		return 0;
	*type = message[at + 1] << 8 | message[at + 2];
	return at + 5 - DNS_HEADER;
}

/* Return the name that stands for an address backwards, "1.0.0.10.in-addr.arpa"; NULL: there is none. */
static const char *name_backwards(const char *question)
{
	unsigned a, b, c, d;
	char address[16];
	int end = 0;

	if (sscanf(question, "%3u.%3u.%3u.%3u.%n", &a, &b, &c, &d, &end) != 4 || !end || a > 255 || b > 255 || c > 255 ||
	    d > 255 || strcasecmp(question + end, "in-addr.arpa") != 0)
		return NULL;
	snprintf(address, sizeof(address), "%u.%u.%u.%u", d, c, b, a);
	return in_hosts(address, false);
}

/* Write what answers a question behind it; return its bytes, 0 if there is nothing. `is_known`: the name exists. */
static size_t record_for(const char *name, uint16_t type, unsigned char *at, bool *is_known)
{
	/* A pointer to the question's name, type and class of the answer, a minute to live. */
	unsigned char head[] = { 0xc0, DNS_HEADER, 0, type, 0, 1, 0, 0, 0, 60, 0, 4 };
	const char *found = type == DNS_PTR ? name_backwards(name) : in_hosts(name, true);
	unsigned char *data = at + sizeof(head);

	*is_known = found;
	if (!found || strlen(found) > 255 || (type != DNS_A && type != DNS_PTR))
		return 0;
	memcpy(at, head, sizeof(head));
	if (type == DNS_A)
		return inet_pton(AF_INET, found, data) == 1 ? sizeof(head) + 4 : 0;
	for (const char *label = found; *label; label += strcspn(label, ".") + (label[strcspn(label, ".")] == '.')) {
		*data++ = strcspn(label, ".");
		memcpy(data, label, data[-1]);
		data += data[-1];
	}
	*data++ = 0;
	at[sizeof(head) - 1] = data - at - sizeof(head);
	return data - at;
}

/* Answer one question of a program on this host: by /etc/hosts, or that there is no such name. */
static void answer_question(int server)
{
	unsigned char message[1024];
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	ssize_t bytes = recvfrom(server, message, 512, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
	size_t question, record = 0;
	char name[256];
	uint16_t type;
	bool is_known = false;

	question = bytes < 0 ? 0 : question_of(message, bytes, name, &type);
	if (!question)
		return;
	bytes = DNS_HEADER + question;
	if (!(message[2] & 0x78))
		record = record_for(name, type, message + bytes, &is_known);
	message[3] = 0x80 | (message[2] & 0x78 ? DNS_NOT_DONE : is_known ? 0 : DNS_NO_NAME);
	message[2] |= 0x84; /* An answer, by whom the names are. */
	memset(message + 4, 0, 8);
	message[5] = 1;
	message[7] = record > 0;
	sendto(server, message, bytes + record, MSG_DONTWAIT, (struct sockaddr *)&from, size);
}

/* Return the socket at which process 1 is asked for names; a server of the user's may listen at all addresses beside it. */
static int open_name_server(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(NAME_SERVER) };
	int server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), yes = 1;

	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	setsockopt(server, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
	if (bind(server, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(server);
		return -1; /* Names that nobody knows are then refused, without an answer. */
	}
	return server;
}

/* What process 1 does: it reaps, and says names. */
static void serve_host(void)
{
	struct pollfd seen[2] = { { .events = POLLIN }, { .events = POLLIN } };
	struct signalfd_siginfo said;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	seen[0].fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	seen[1].fd = open_name_server();
	for (;;) {
		while (read(seen[0].fd, &said, sizeof(said)) > 0)
			;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		poll(seen, 2, -1);
		if (seen[1].revents)
			answer_question(seen[1].fd);
	}
}

/* Making a host ------------------------------------------------------------------------------------------------------ */

/* Who looks for the processes of a rank by environment or words must not take process 1 for one, whose first program it
 * was. */
static void forget_program(void)
{
	for (char **word = own_words; *word; word++)
		memset(*word, 0, strlen(*word));
	strcpy(own_words[0], "host"); /* Where "fabric-host" stood. */
	for (char **entry = environ; *entry; entry++)
		memset(*entry, 0, strlen(*entry));
	clearenv();
}

static int entered(const char *path, int kind)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	int result = file < 0 ? -1 : setns(file, kind);

	if (file >= 0)
		close(file);
	return result;
}

static void enter_network(const char *host)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/run/netns/%s", host);
	if (entered(path, CLONE_NEWNET) < 0)
		fail(126, "%s: not a host of this fabric (%s: %s)", host, path, strerror(errno));
	snprintf(path, sizeof(path), "/run/utsns/%s", host);
	must(entered(path, CLONE_NEWUTS), "entering", path);
}

/* Make process 1 of a host; return its number. */
static pid_t make_first(const char *host)
{
	int made[2], ready[2]; /* The maker says what it has made, process 1 that it is furnished: either may be first. */
	pid_t maker, first = 0;
	char said;

	must(pipe2(made, O_CLOEXEC), "a pipe for", host);
	must(pipe2(ready, O_CLOEXEC), "a pipe for", host);
	maker = fork();
	must(maker, "a process for", host);
	if (maker == 0) {
		enter_network(host);
		must(unshare(CLONE_NEWIPC | CLONE_NEWPID), "namespaces of", host);
		first = fork();
		must(first, "process 1 of", host);
		if (first == 0) {
			setsid();
			furnish(host);
			forget_program();
			prctl(PR_SET_NAME, "host");
			if (write(ready[1], "1", 1) != 1)
				_exit(126);
			for (int file = 0; file < 64; file++)
				close(file);
			serve_host();
		}
		if (write(made[1], &first, sizeof(first)) != sizeof(first))
			_exit(126);
		_exit(0);
	}
	close(made[1]);
	close(ready[1]);
	if (read(made[0], &first, sizeof(first)) != sizeof(first))
		fail(126, "%s: no process was made for it", host);
	if (read(ready[0], &said, 1) != 1)
		fail(126, "%s: could not be furnished", host);
	close(made[0]);
	close(ready[0]);
	waitpid(maker, NULL, 0);
	return first;
}

/* Return process 1 of a host, which is furnished if it is not yet. */
static pid_t first_of(const char *host)
{
	char path[PATH_MAX], text[32];
	struct sigaction before;
	ssize_t length;
	unsigned left;
	pid_t first;
	int file;

	path_of(path, host, "");
	if (mkdir(FOLDER, 0755) < 0 && errno != EEXIST)
		fail(126, "%s: %s", FOLDER, strerror(errno));
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		fail(126, "%s: %s", path, strerror(errno));
	path_of(path, host, "first");
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	must(file, "opening", path);
	wait_for("another program to furnish", host, &before, &left);
	must(flock(file, LOCK_EX), "locking", path);
	length = read(file, text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = '\0';
	first = atoi(text);
	if (first <= 0) {
		awaited = "process 1 of";
		first = make_first(host);
		dprintf(file, "%d\n", first);
	}
	wait_is_over(&before, left);
	close(file);
	return first;
}

/* Running a command on a host -------------------------------------------------------------------------------------- */

/* Open the control group of a program on a host, by the directory of that program; below 0 where none is counted. */
static int group_on(const char *place, const char *host)
{
	char path[PATH_MAX];

	if (!place || snprintf(path, sizeof(path), "%s/%s", place, host) >= PATH_MAX)
		return -1;
	mkdir(path, 0755);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Fork into a control group, if there is one. To move a process there later would wait for all others, and is done only
 * where a system call is not let through. */
static pid_t fork_into(int group)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, group;
	} how = { .flags = INTO_GROUP, .exit_signal = SIGCHLD, .group = group };
	pid_t child = group < 0 ? -1 : syscall(SYS_clone3, &how, sizeof(how));
	int members;

	if (child >= 0)
		return child;
	child = fork();
	if (child == 0 && group >= 0) {
		members = openat(group, "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (members < 0 || write(members, "0", 1) < 0)
			fprintf(stderr, "%s: what this program sends is not counted as its own: %s\n", self, strerror(errno));
		close(members);
	}
	return child;
}

static void enter_host(const char *host)
{
	static const struct { const char *name; int kind; } own[] = {
		{ "ipc", CLONE_NEWIPC }, { "pid", CLONE_NEWPID }, { "mnt", CLONE_NEWNS },
	};
	pid_t first = first_of(host);
	int files[sizeof(own) / sizeof(*own)];
	char path[PATH_MAX];

	for (size_t one = 0; one < sizeof(own) / sizeof(*own); one++) {
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", first, own[one].name);
		files[one] = open(path, O_RDONLY | O_CLOEXEC);
		must(files[one], "process 1 has gone of", host);
	}
	enter_network(host);
	for (size_t one = 0; one < sizeof(own) / sizeof(*own); one++) {
		must(setns(files[one], own[one].kind), own[one].name, host);
		close(files[one]);
	}
}

/* Where ssh is, and a place for temporary files of the host's own. */
static void set_places(void)
{
	const char *before = getenv("PATH");
	char *path;

	if (!before)
		before = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	if (strncmp(before, BINARIES ":", strlen(BINARIES ":")) != 0 &&
	    asprintf(&path, BINARIES ":%s", before) > 0)
		setenv("PATH", path, 1);
	setenv("TMPDIR", "/tmp", 1);
}

/* Preload the library that a file names, if that is there. */
static void preload(const char *file)
{
	const char *before = getenv("LD_PRELOAD");
	char library[PATH_MAX], *both;
	FILE *named = fopen(file, "re");

	if (!named)
		return;
	if (fgets(library, sizeof(library), named) && (!before || !strstr(before, library)) &&
	    asprintf(&both, "%s%s%s", library, before ? ":" : "", before ? before : "") > 0)
		setenv("LD_PRELOAD", both, 1);
	fclose(named);
}

/* Hold a directory that lies where the host has its own; below 0 for another, or for none. */
static int tree_of(const char *directory)
{
	if (!is_below(directory, "/tmp") && !is_below(directory, "/run"))
		return -1;
	return syscall(SYS_open_tree, AT_FDCWD, directory, CLONE_TREE);
}

/* Enter the directory that a program is to start in: the host shares it from then on, wherever it lies. */
static void enter_directory(const char *directory, int tree)
{
	char path[PATH_MAX];

	if (tree >= 0 && access(directory, F_OK) < 0) {
		snprintf(path, sizeof(path), "%s/", directory);
		make_parents(path);
		must(syscall(SYS_move_mount, tree, "", AT_FDCWD, directory, BY_DESCRIPTOR), "sharing", directory);
	}
	must(chdir(directory), "entering", directory);
}

/* Many programs close all files that they might have open, one by one, as they start. */
static void allow_usual_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > USUAL_FILES) {
		files.rlim_cur = USUAL_FILES;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static void run(char **command)
{
	allow_usual_files();
	preload(VERBS); /* What polls their queues is to wait. */
	preload(SEEDED);
	execvp(command[0], command);
	fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static volatile sig_atomic_t inside;

/* What is sent to this process alone is for the command; what is sent to the group reaches that anyway. */
static void pass_on(int number, siginfo_t *information, void *context)
{
	(void)context;
	if (information->si_code == SI_USER && inside > 0 && getpgid(inside) != getpgrp())
		kill(inside, number);
}

static int end_as(int status)
{
	struct sigaction usual = { .sa_handler = SIG_DFL };
	sigset_t all;

	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	sigaction(WTERMSIG(status), &usual, NULL);
	sigfillset(&all);
	sigprocmask(SIG_UNBLOCK, &all, NULL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}

static int enter(int count, char **arguments)
{
	static const int passed[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };
	struct sigaction before[sizeof(passed) / sizeof(*passed)];
	struct sigaction handled = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART };
	int status, tree, group;

	if (count < 5)
		fail(2, "usage: fabric-host enter HOST DIRECTORY COMMAND...");
	tree = tree_of(arguments[3]);
	group = group_on(getenv(GROUP_PLACE), arguments[2]);
	unsetenv(GROUP_PLACE);
	enter_host(arguments[2]);
	for (size_t one = 0; one < sizeof(passed) / sizeof(*passed); one++)
		sigaction(passed[one], &handled, &before[one]);
	inside = fork_into(group);
	must(inside, "a process on", arguments[2]);
	if (inside == 0) {
		for (size_t one = 0; one < sizeof(passed) / sizeof(*passed); one++)
			sigaction(passed[one], &before[one], NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != 0) /* Of another PID namespace: 0 while it lives, or process 1 has taken over. */
			_exit(126);
		set_places();
		enter_directory(arguments[3], tree);
		run(arguments + 4);
	}
	for (int file = 0; file < 3; file++) /* Whoever reads what the command prints waits for that alone. */
		close(file);
	while (waitpid(inside, &status, 0) < 0)
		if (errno != EINTR)
			return 126;
	return end_as(status);
}

/* What ssh asks for ------------------------------------------------------------------------------------------------ */

/* A request: this, with the descriptors of stdin, stdout and stderr; then host, directory, command ("": a shell) and
 * environment, each with its NUL. The answer: the exit code. */
struct request {
	uint32_t bytes;
	uint32_t terminal; /* Make one for the command, as ssh -tt asks. */
};

static bool whole(int file, void *buffer, size_t bytes, bool sends)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t part = sends ? send(file, (char *)buffer + done, bytes - done, MSG_NOSIGNAL)
				     : recv(file, (char *)buffer + done, bytes - done, 0);

		if (part < 0 && errno == EINTR)
			continue;
		if (part <= 0)
			return false;
		done += part;
	}
	return true;
}

static bool take_streams(int connection, struct request *asked)
{
	char room[CMSG_SPACE(3 * sizeof(int))] = { 0 };
	struct iovec part = { asked, sizeof(*asked) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *head;
	int streams[3];

	if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*asked))
		return false;
	head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(streams)))
		return false;
	memcpy(streams, CMSG_DATA(head), sizeof(streams));
	for (int stream = 0; stream < 3; stream++) {
		dup2(streams[stream], stream);
		if (streams[stream] > 2)
			close(streams[stream]);
	}
	return true;
}

/* Make a terminal; return its end here, and in `other` the one of a program. */
static int make_terminal(int *other)
{
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	must(terminal, "a terminal", "");
	must(unlockpt(terminal), "unlocking", "a terminal");
	*other = ioctl(terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	must(*other, "opening", "a terminal");
	ioctl(terminal, TIOCSWINSZ, &size);
	return terminal;
}

/* Pass on what there is to read; false at its end. */
static bool passed(int from, int to)
{
	char said[4096];
	ssize_t bytes = read(from, said, sizeof(said)), done = 0, part = 1;

	for (; done < bytes && part > 0; done += part)
		part = write(to, said + done, bytes - done);
	return bytes > 0 && part > 0;
}

/* The shell that sshd runs a command by: the one of the account. */
static const char *account_shell(void)
{
	struct passwd *account = getpwuid(getuid());

	return account && account->pw_shell[0] && access(account->pw_shell, X_OK) == 0 ? account->pw_shell : "/bin/sh";
}

static void run_for_ssh(const char *host, const char *directory, const char *command, char **environment, int terminal)
{
	const char *shell = account_shell(), *name = strrchr(shell, '/');
	char *words[] = { (char *)(name ? name + 1 : shell), "-c", (char *)command, NULL };

	setsid();
	if (terminal >= 0) {
		for (int stream = 0; stream < 3; stream++)
			dup2(terminal, stream);
		ioctl(0, TIOCSCTTY, 0);
	}
	environ = environment;
	setenv("FABRIC_HOST", host, 1);
	if (!command[0])
		words[1] = NULL;
	if (chdir(directory) < 0 && (!getenv("HOME") || chdir(getenv("HOME")) < 0))
		must(chdir("/"), "entering", "/");
	execv(shell, words);
	fprintf(stderr, "%s: %s\n", shell, strerror(errno));
	_exit(127);
}

/* Wait for a program, and pass on what is typed into its terminal and shown there, if it has one (else below 0). Once the
 * client has gone, hang up on it as sshd does for one with a terminal. */
static int attend(pid_t program, int connection, int terminal)
{
	struct pollfd seen[4] = { { .fd = connection, .events = POLLIN } };
	sigset_t children;
	int status;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	seen[1] = (struct pollfd){ .fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN };
	seen[2] = (struct pollfd){ .fd = terminal < 0 ? -1 : 0, .events = POLLIN };
	seen[3] = (struct pollfd){ .fd = terminal, .events = POLLIN };
	while (waitpid(program, &status, WNOHANG) == 0) {
		char said[128];

		if (poll(seen, 4, -1) < 0 && errno != EINTR)
			break;
		if (seen[2].revents && !passed(0, terminal))
			seen[2].fd = -1;
		if (seen[3].revents && !passed(terminal, 1))
			seen[3].fd = -1;
		while (read(seen[1].fd, said, sizeof(said)) > 0)
			;
		if (seen[0].revents) {
			kill(-program, SIGHUP);
			seen[0].fd = -1;
		}
	}
	if (terminal >= 0 && fcntl(terminal, F_SETFL, O_NONBLOCK) == 0)
		while (passed(terminal, 1))
			;
	return WIFEXITED(status) ? WEXITSTATUS(status) : USAGE;
}

/* Open the control group that the client's program has on a host; below 0 where none is counted. */
static int group_of_client(int connection, const char *host)
{
	char path[64], line[PATH_MAX], place[PATH_MAX + sizeof(GROUPS)];
	struct ucred client = { 0 };
	socklen_t size = sizeof(client);
	FILE *groups;
	int group = -1;

	getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &client, &size);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", client.pid);
	groups = fopen(path, "re");
	while (groups && group < 0 && fgets(line, sizeof(line), groups)) {
		char *last = strrchr(line, '/');

		if (strncmp(line, "0::", 3) != 0 || !strstr(line, "/" OF_GROUPS))
			continue;
		*last = '\0';
		snprintf(place, sizeof(place), GROUPS "%s", line + 3);
		group = group_on(place, host);
	}
	if (groups)
		fclose(groups);
	return group;
}

/* Note a command that is the other end of a copy: what it copies crosses no NIC, which its user is to know. */
static void note_copy(const char *host, const char *command)
{
	static const char *const copying[] = { "scp", "sftp-server", "rsync" };
	int notes, length = strcspn(command, " ");
	const char *name = command + length;

	while (name > command && name[-1] != '/')
		name--;
	length -= name - command;
	for (size_t one = 0; one < sizeof(copying) / sizeof(*copying); one++) {
		if (strlen(copying[one]) != (size_t)length || strncmp(copying[one], name, length) != 0)
			continue;
		notes = open(COPIES, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
		if (notes >= 0) {
			dprintf(notes, "%s %s\n", copying[one], host);
			close(notes);
		}
	}
}

static void answer(int connection)
{
	struct request asked;
	char *text, *word, **environment;
	const char *fields[3];
	int32_t code;
	size_t count = 0;
	sigset_t children;
	pid_t program;
	int group, terminal = -1, other = -1;

	if (!take_streams(connection, &asked) || asked.bytes > MOST_BYTES)
		return;
	text = calloc(1, asked.bytes + 1);
	environment = calloc(asked.bytes + 1, sizeof(*environment));
	if (!text || !environment || !whole(connection, text, asked.bytes, false))
		return;
	word = text;
	for (int field = 0; field < 3; field++, word += strlen(word) + 1)
		fields[field] = word;
	for (; word < text + asked.bytes; word += strlen(word) + 1)
		environment[count++] = word;
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	note_copy(fields[0], fields[2]);
	group = group_of_client(connection, fields[0]);
	if (asked.terminal)
		terminal = make_terminal(&other);
	enter_host(fields[0]);
	sigprocmask(SIG_BLOCK, &children, NULL);
	program = fork_into(group);
	must(program, "a process on", fields[0]);
	if (program == 0) {
		close(connection);
		sigprocmask(SIG_UNBLOCK, &children, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_for_ssh(fields[0], fields[1], fields[2], environment, other);
	}
	for (int stream = terminal < 0 ? 0 : 2; stream < 3; stream++)
		close(stream);
	if (terminal >= 0) {
		close(other);
		signal(SIGPIPE, SIG_IGN);
	}
	code = attend(program, connection, terminal);
	whole(connection, &code, sizeof(code), true);
}

static struct sockaddr_un address_of_server(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };

	return address;
}

static int serve(void)
{
	struct sockaddr_un address = address_of_server();
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), connection;

	must(listener, "a socket at", SOCKET);
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "binding", SOCKET);
	must(listen(listener, 1024), "listening at", SOCKET);
	signal(SIGCHLD, SIG_IGN);
	printf("ready\n");
	fflush(stdout);
	dup2(0, 1); /* Nobody reads more of it; and a connection must not take its number. */
	for (;;) {
		connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (connection < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			answer(connection);
			_exit(0);
		}
		close(connection);
	}
}

/* The client ------------------------------------------------------------------------------------------------------- */

#define FLAGS "+1246AaCfGgKkMNnqsTtVvXxYy" /* OpenSSH's options, those without */
#define VALUES "B:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:" /* and with a value. */

struct call {
	const char *host;
	bool empty_stdin, background, no_command, subsystem, shows_settings;
	int terminal; /* How often -t was given. */
};

static bool is_furnishable(const char *host)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), FOLDER "/names/%s", host) < PATH_MAX && !strchr(host, '/') &&
	       access(path, F_OK) == 0;
}

/* Return the host of one's address, or of another name of it, by /etc/hosts; NULL if there is none. */
static const char *host_of(const char *wanted)
{
	static char line[4096], own[256];
	char address[64], *of_line, *name, *rest;
	const char *found;
	FILE *table;

	if (is_furnishable(wanted))
		return wanted;
	if (strcmp(wanted, "localhost") == 0 || strncmp(wanted, "127.", 4) == 0 || strcmp(wanted, "::1") == 0) {
		gethostname(own, sizeof(own) - 1);
		return own;
	}
	found = in_hosts(wanted, true);
	snprintf(address, sizeof(address), "%s", found ? found : wanted);
	table = fopen("/etc/hosts", "re");
	while ((of_line = next_entry(table, line, sizeof(line), &rest)))
		while (strcmp(of_line, address) == 0 && (name = strtok_r(NULL, " \t", &rest)))
			if (is_furnishable(name)) {
				fclose(table);
				return name;
			}
	return NULL;
}

/* Return the host of "user@host" or "ssh://user@host:port". */
static const char *host_in(char *destination)
{
	char *at;

	if (strncmp(destination, "ssh://", 6) == 0) {
		destination += 6;
		destination[strcspn(destination, "/")] = '\0';
		at = strrchr(destination, '@');
		(at ? at : destination)[strcspn(at ? at : destination, ":")] = '\0';
	}
	at = strrchr(destination, '@');
	return at ? at + 1 : destination;
}

static void take_option(int option, struct call *call)
{
	if (option == '?')
		exit(USAGE); /* getopt has said why. */
	if (option == 'V') {
		fprintf(stderr, "OpenSSH_9.2 (a fabric's own: it enters the host, and sends nothing)\n");
		exit(0);
	}
	if (strchr("DLRWwO", option))
		fail(USAGE, "-%c: forwarding and control sockets are not there; hosts reach each other directly", option);
	call->empty_stdin |= option == 'n' || option == 'f';
	call->background |= option == 'f';
	call->no_command |= option == 'N';
	call->subsystem |= option == 's';
	call->shows_settings |= option == 'G';
	call->terminal += option == 't';
}

/* Return the program of a subsystem, which sftp asks for. */
static const char *program_of(const char *subsystem)
{
	static const char *const places[] = { "/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server" };

	for (size_t place = 0; place < sizeof(places) / sizeof(*places); place++)
		if (strcmp(subsystem, "sftp") == 0 && access(places[place], X_OK) == 0)
			return places[place];
	fail(USAGE, "subsystem request failed: there is no %s on this machine (apt-get install openssh-sftp-server)", subsystem);
	return NULL;
}

/* Run the machine's own scp or sftp, over the client here: what it copies crosses no NIC. scp takes its older protocol, for
 * which the other end needs no more than scp. */
static int copy(int count, char **arguments)
{
	char **words = calloc(count + 4, sizeof(*words)), path[PATH_MAX];
	size_t given = 0;

	snprintf(path, sizeof(path), "/usr/bin/%s", self);
	words[given++] = (char *)self;
	words[given++] = "-S";
	words[given++] = BINARIES "/ssh";
	if (strcmp(self, "scp") == 0)
		words[given++] = "-O";
	memcpy(words + given, arguments + 1, (count - 1) * sizeof(*words));
	execv(path, words);
	fail(127, "%s: %s (apt-get install openssh-client)", path, strerror(errno));
	return 127;
}

static char *joined(char **words)
{
	size_t bytes = 1;
	char *text;

	for (char **word = words; *word; word++)
		bytes += strlen(*word) + 1;
	text = calloc(1, bytes);
	for (char **word = words; *word; word++)
		strcat(strcat(text, word == words ? "" : " "), *word);
	return text;
}

static bool is_ranks_own(const char *entry)
{
	static const char *const names[] = { "RANK=", "LOCAL_RANK=", "FABRIC_RANK=", "FABRIC_HOST=" };

	for (size_t name = 0; name < sizeof(names) / sizeof(*names); name++)
		if (strncmp(entry, names[name], strlen(names[name])) == 0)
			return true;
	return false;
}

static void add(char **text, size_t *bytes, const char *word)
{
	size_t length = strlen(word) + 1;

	*text = realloc(*text, *bytes + length);
	memcpy(*text + *bytes, word, length);
	*bytes += length;
}

static void ask(int connection, const struct call *call, const char *command)
{
	char directory[PATH_MAX] = "/", room[CMSG_SPACE(3 * sizeof(int))] = { 0 }, *text = NULL;
	int streams[3] = { 0, 1, 2 };
	struct request asked;
	struct iovec part = { &asked, sizeof(asked) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	size_t bytes = 0;

	if (!getcwd(directory, sizeof(directory)))
		strcpy(directory, "/");
	add(&text, &bytes, call->host);
	add(&text, &bytes, directory);
	add(&text, &bytes, command);
	for (char **entry = environ; *entry; entry++)
		if (!is_ranks_own(*entry))
			add(&text, &bytes, *entry);
	if (bytes > MOST_BYTES)
		fail(USAGE, "%zu bytes of command and environment; at most %u", bytes, MOST_BYTES);
	asked = (struct request){ .bytes = bytes, .terminal = call->terminal > 1 && !isatty(0) };
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(streams));
	memcpy(CMSG_DATA(head), streams, sizeof(streams));
	if (sendmsg(connection, &message, MSG_NOSIGNAL) != sizeof(asked) || !whole(connection, text, bytes, true))
		fail(USAGE, "connect to host %s: the run's server of ssh does not take it", call->host);
}

static int client(int count, char **arguments)
{
	struct sockaddr_un address = address_of_server();
	struct call call = { 0 };
	int option, connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *wanted = NULL;
	int32_t code;

	while (true) {
		while ((option = getopt(count, arguments, FLAGS VALUES)) != -1)
			take_option(option, &call);
		if (call.host || optind >= count)
			break;
		wanted = host_in(arguments[optind++]);
		call.host = host_of(wanted);
		if (!call.host)
			fail(USAGE, "Could not resolve hostname %s: Name or service not known", wanted);
		if (optind >= count || arguments[optind][0] != '-' || strcmp(arguments[optind - 2], "--") == 0)
			break;
	}
	if (!call.host)
		fail(USAGE, "usage: %s [OPTION ...] HOST [COMMAND ...]", self);
	if (call.shows_settings)
		printf("host %s\nuser root\nhostname %s\nport 22\n", wanted, call.host);
	if (call.no_command || call.shows_settings)
		return 0;
	if (call.empty_stdin || fcntl(0, F_GETFD) < 0)
		dup2(open("/dev/null", O_RDWR), 0);
	if (connect(connection, (struct sockaddr *)&address, sizeof(address)) < 0)
		fail(USAGE, "connect to host %s: %s: %s", call.host, SOCKET, strerror(errno));
	ask(connection, &call, call.subsystem ? program_of(joined(arguments + optind)) : joined(arguments + optind));
	if (call.background && fork() != 0)
		return 0;
	return whole(connection, &code, sizeof(code), false) ? code : USAGE;
}

int main(int count, char **arguments)
{
	const char *slash = strrchr(arguments[0], '/');

	own_words = arguments;
	self = slash ? slash + 1 : arguments[0];
	if (strcmp(self, "ssh") == 0 || strcmp(self, "rsh") == 0 || strcmp(self, "remsh") == 0)
		return client(count, arguments);
	if (strcmp(self, "scp") == 0 || strcmp(self, "sftp") == 0)
		return copy(count, arguments);
	self = "host";
	if (count > 1 && strcmp(arguments[1], "enter") == 0)
		return enter(count, arguments);
	if (count > 1 && strcmp(arguments[1], "serve") == 0)
		return serve();
	fail(2, "usage: fabric-host enter HOST DIRECTORY COMMAND... | fabric-host serve");
}
