/* SPDX-License-Identifier: Apache-2.0
 *
 * PID 1 of the guest: makes it a usable Linux, runs one program, leaves its exit status and powers off.
 *
 * Starting a process costs tens of milliseconds in the guest, so everything a shell would do is done here. The kernel
 * passes the host directory of the run in the environment (GUEST_CONTROL). It holds `job` and receives `stdout`,
 * `stderr` and `status`. The job is a row of NUL-terminated strings:
 *
 *     host name, least uptime in ms, seed, working directory,
 *     number of host directories to keep in sight, each of them,
 *     number of arguments, each of them, number of environment entries, each of them
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTROL "/run/guest" /* Where it is mounted; reached by descriptor, for the program may mount over /run. */
#define FILES_LIMIT 1048576

static char job[1 << 20];
static char *cursor = job, *end = job;
static int control = -1;

/* Leaves a reason where the host finds it, and ends the guest. */
static void give_up(const char *format, ...)
{
	char text[512];
	va_list arguments;
	int fd = openat(control, "status", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (fd < 0)
		fprintf(stderr, "guest: %s\n", text); /* The kernel's console. */
	else
		dprintf(fd, "failed %s\n", text);
	if (fd >= 0)
		close(fd);
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

static void must_mount(const char *source, const char *target, const char *type, const char *options)
{
	if (mount(source, target, type, 0, options) < 0)
		give_up("cannot mount %s on %s: %s", type, target, strerror(errno));
}

/* Makes a directory and those above it; what exists already is fine, and a real failure shows at the mount. */
static void make_directories(const char *path)
{
	char part[4096];
	size_t length = strlen(path);

	for (size_t i = 1; i <= length && i < sizeof(part); i++)
		if (path[i] == '/' || path[i] == '\0') {
			memcpy(part, path, i);
			part[i] = '\0';
			mkdir(part, 0755);
		}
}

static void mount_file_systems(const char *host_control)
{
	must_mount("proc", "/proc", "proc", NULL);
	must_mount("sysfs", "/sys", "sysfs", NULL);
	must_mount("dev", "/dev", "devtmpfs", "mode=755");
	mkdir("/dev/pts", 0755);
	mkdir("/dev/shm", 01777);
	must_mount("devpts", "/dev/pts", "devpts", "ptmxmode=666");
	must_mount("shm", "/dev/shm", "tmpfs", "mode=1777");
	must_mount("run", "/run", "tmpfs", "mode=755");
	must_mount("tmp", "/tmp", "tmpfs", "mode=1777");
	make_directories("/run/lock");
	make_directories(CONTROL);
	must_mount("control", CONTROL, "hostfs", host_control);
	control = open(CONTROL, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (symlink("/proc/self/fd", "/dev/fd") < 0 || symlink("/proc/self/fd/0", "/dev/stdin") < 0 ||
	    symlink("/proc/self/fd/1", "/dev/stdout") < 0 || symlink("/proc/self/fd/2", "/dev/stderr") < 0)
		give_up("cannot make the links of /dev: %s", strerror(errno));
}

static void read_job(void)
{
	int fd = openat(control, "job", O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		give_up("cannot open the job: %s", strerror(errno));
	while (end < job + sizeof(job) && (got = read(fd, end, job + sizeof(job) - end)) > 0)
		end += got;
	close(fd);
	if (end == job || end == job + sizeof(job) || end[-1] != '\0')
		give_up("the job is empty, cut short or larger than %zu bytes", sizeof(job));
}

static char *next_string(void)
{
	char *string = cursor;

	if (cursor >= end)
		give_up("the job ends too early");
	cursor += strlen(cursor) + 1;
	return string;
}

static char **next_list(void)
{
	size_t count = strtoul(next_string(), NULL, 10);
	char **list = calloc(count + 1, sizeof(*list));

	if (!list)
		give_up("no memory for the job");
	for (size_t i = 0; i < count; i++)
		list[i] = next_string();
	return list;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		give_up("cannot write %s: %s", path, strerror(errno));
	close(fd);
}

/*
 * The kernel has had no other source of randomness so far: this makes it ready, and the same in every run. From then on
 * what is drawn does not change what another call of this makes of it.
 */
static void seed_random(const char *seed)
{
	struct { struct rand_pool_info info; char bytes[64]; } entropy;
	int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

	memset(&entropy, 0, sizeof(entropy));
	strncpy(entropy.bytes, seed, sizeof(entropy.bytes) - 1);
	entropy.info.buf_size = sizeof(entropy.bytes);
	entropy.info.entropy_count = 8 * sizeof(entropy.bytes);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &entropy) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0)
		give_up("cannot seed the random numbers: %s", strerror(errno));
	close(fd);
}

static void bring_loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		give_up("cannot bring the loopback interface up: %s", strerror(errno));
	close(fd);
}

static void wait_for_uptime(long least_ms)
{
	struct timespec until = { .tv_sec = least_ms / 1000, .tv_nsec = least_ms % 1000 * 1000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* What is written is on the host at once, whatever becomes of the guest. */
static void redirect(int directory, const char *path, int flags, int to)
{
	int fd = openat(directory, path, flags, 0644);

	if (fd < 0 || dup2(fd, to) < 0)
		give_up("cannot open %s: %s", path, strerror(errno));
	if (fd != to)
		close(fd);
}

static pid_t start(char **arguments, char **environment, const char *directory)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up("cannot fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	setsid();
	redirect(AT_FDCWD, "/dev/null", O_RDONLY, STDIN_FILENO);
	redirect(control, "stdout", O_WRONLY | O_APPEND | O_CREAT | O_DSYNC, STDOUT_FILENO);
	redirect(control, "stderr", O_WRONLY | O_APPEND | O_CREAT | O_DSYNC, STDERR_FILENO);
	if (chdir(directory) < 0)
		give_up("cannot enter %s: %s", directory, strerror(errno));
	execve(arguments[0], arguments, environment);
	give_up("cannot run %s: %s", arguments[0], strerror(errno));
	return -1;
}

/* Collects every orphan of the guest until the program itself ends. */
static int wait_for(pid_t program)
{
	int status;
	pid_t pid;

	do
		pid = wait(&status);
	while (pid != program && (pid > 0 || errno == EINTR));
	return status;
}

int main(void)
{
	const char *host_control = getenv("GUEST_CONTROL");
	struct rlimit files = { FILES_LIMIT, FILES_LIMIT };
	char *host_name, *seed, *directory, **arguments, **environment;
	long least_ms;
	int status, fd;

	if (!host_control)
		give_up("GUEST_CONTROL is not set");
	umask(0022);
	mount_file_systems(host_control);
	read_job();
	host_name = next_string();
	least_ms = strtol(next_string(), NULL, 10);
	seed = next_string();
	directory = next_string();
	seed_random(seed);
	for (char **kept = next_list(); *kept; kept++) {
		make_directories(*kept);
		must_mount("kept", *kept, "hostfs", *kept);
	}
	arguments = next_list();
	environment = next_list();
	if (!arguments[0])
		give_up("the job names no program");

	sethostname(host_name, strlen(host_name));
	setrlimit(RLIMIT_NOFILE, &files);
	write_text("/proc/sys/vm/panic_on_oom", "1"); /* A run that lost a process is no run: end it with a reason. */
	seed_random(seed); /* Each directory made above took a number, and other paths have other ones. */
	bring_loopback_up();
	wait_for_uptime(least_ms);
	status = wait_for(start(arguments, environment, directory));

	fd = openat(control, "status", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd >= 0) { /* Else the program could not be started, and the status says why. */
		dprintf(fd, "exit %d\n", WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
		close(fd);
	}
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
