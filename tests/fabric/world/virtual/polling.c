/* Loops that poll, until what another process does after a millisecond of its own, or until a millisecond has passed.
 * For each KIND in the arguments: how long that took in ns, and how many looks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define AFTER_NS 1000000

struct shared {
	volatile int flag;
	pthread_mutex_t lock;
};

static struct shared *shared;
static int ends[2], instance, nothing;
static pid_t other;
static int64_t began_ns;

static int64_t time_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int polled(void)
{
	struct pollfd asked = { ends[0], POLLIN, 0 };

	return poll(&asked, 1, 0);
}

static int selected(void)
{
	struct timeval at_once = { 0, 0 };
	fd_set asked;

	FD_ZERO(&asked);
	FD_SET(ends[0], &asked);
	return select(ends[0] + 1, &asked, NULL, NULL, &at_once);
}

static int waited_for(void)
{
	struct epoll_event found;

	return epoll_wait(instance, &found, 1, 0);
}

static int received(void)
{
	char byte;

	return recv(ends[0], &byte, 1, MSG_DONTWAIT) == 1;
}

static int accepted(void)
{
	static int listening = -1;
	struct sockaddr name = { AF_UNIX };

	if (listening < 0) {
		listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		bind(listening, &name, sizeof(name.sa_family)); /* Linux chooses a name. */
		listen(listening, 1);
	}
	return accept(listening, NULL, NULL) >= 0 || shared->flag;
}

static int yielded(void)
{
	sched_yield();
	return shared->flag;
}

static int locked(void)
{
	if (pthread_mutex_trylock(&shared->lock) == 0)
		return 1;
	sched_yield();
	return 0;
}

static int woken(void)
{
	syscall(SYS_futex, &shared->flag, 0, 1, NULL, NULL, 0); /* FUTEX_WAIT for another value: EAGAIN. */
	return shared->flag;
}

static int asked_who(void)
{
	syscall(SYS_getpid);
	return shared->flag;
}

static int asked_whether_it_is_there(void)
{
	kill(other, 0);
	return shared->flag;
}

static int read_nothing(void)
{
	char byte;

	return read(nothing, &byte, 1) || shared->flag;
}

static int ended(void)
{
	return waitpid(other, NULL, WNOHANG);
}

static int slept(void)
{
	nanosleep(&(struct timespec){ 0, 0 }, NULL);
	return shared->flag;
}

static int late(void)
{
	return time_ns(CLOCK_MONOTONIC) - began_ns >= AFTER_NS;
}

static int late_by_raw_clock(void)
{
	static int64_t raw_ns;

	if (!raw_ns)
		raw_ns = time_ns(CLOCK_MONOTONIC_RAW);
	return time_ns(CLOCK_MONOTONIC_RAW) - raw_ns >= AFTER_NS;
}

static int told_while_reading(void)
{
	time_ns(CLOCK_MONOTONIC);
	return shared->flag;
}

static int busy(void)
{
	static int64_t used_ns = -1;

	if (used_ns < 0)
		used_ns = time_ns(CLOCK_PROCESS_CPUTIME_ID);
	return time_ns(CLOCK_PROCESS_CPUTIME_ID) - used_ns >= AFTER_NS;
}

static int late_by_counter(void)
{
	static uint64_t began;

	if (!began)
		began = __rdtsc();
	return __rdtsc() - began >= AFTER_NS;
}

static int told_while_counting(void)
{
	unsigned int processor;

	__rdtscp(&processor);
	return shared->flag;
}

static int remembered(void)
{
	static unsigned long looks;

	return ++looks == ~0UL || shared->flag; /* Nothing but memory, to a limit: a computation, by what can be seen. */
}

static const struct {
	const char *name;
	int (*look)(void);
} kinds[] = {
	{ "poll", polled }, { "select", selected }, { "epoll", waited_for }, { "recv", received }, { "accept", accepted },
	{ "yield", yielded }, { "lock", locked }, { "futex", woken }, { "getpid", asked_who },
	{ "kill", asked_whether_it_is_there }, { "read", read_nothing }, { "wait", ended }, { "sleep", slept },
	{ "clock", late }, { "raw", late_by_raw_clock }, { "reading", told_while_reading }, { "cpu", busy },
	{ "counter", late_by_counter }, { "counting", told_while_counting }, { "memory", remembered },
};

static void do_it_later(void)
{
	pthread_mutex_lock(&shared->lock);
	write(ends[1], "", 1); /* The other may look from here on. */
	nanosleep(&(struct timespec){ 0, AFTER_NS }, NULL);
	shared->flag = 1;
	pthread_mutex_unlock(&shared->lock);
	write(ends[1], "", 1);
	_exit(0);
}

static void play(const char *name, int (*look)(void))
{
	pthread_mutexattr_t of_processes;
	struct epoll_event readable = { EPOLLIN, { 0 } };
	char byte;
	int64_t looks = 1;

	shared->flag = 0;
	pthread_mutexattr_init(&of_processes);
	pthread_mutexattr_setpshared(&of_processes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &of_processes);
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	instance = epoll_create1(0);
	epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &readable);
	if ((other = fork()) == 0)
		do_it_later();
	read(ends[0], &byte, 1);
	began_ns = time_ns(CLOCK_MONOTONIC);
	while (!look())
		looks++;
	printf("%s %lld %lld\n", name, (long long)(time_ns(CLOCK_MONOTONIC) - began_ns), (long long)looks);
	fflush(stdout);
	waitpid(other, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	close(instance);
}

int main(int count, char **arguments)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	nothing = open("/dev/null", O_RDONLY);
	prctl(PR_SET_TIMERSLACK, 1);
	for (int place = 1; place < count; place++)
		for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
			if (strcmp(arguments[place], kinds[kind].name) == 0)
				play(kinds[kind].name, kinds[kind].look);
	return 0;
}
