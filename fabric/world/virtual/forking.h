/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of host.c: a guest that has booted, or has built a fabric, too, is forked for each run (forking.py), so that runs
 * cost neither boot nor imports nor building.
 *
 * The guest's program says where, by readlink() of a name that is known here. A guest that is not to be forked goes on; of
 * one that is, the kernel's process waits there for requests and forks itself. The child gets what cannot be shared: a copy
 * of the guest's memory, a control directory and console of its own, and a new process for each of the guest's memories,
 * with the mappings and registers of the one that there was. The kernel notices nothing: what it knows of its own and of
 * others' processes, numbers, too, stays true. So what a guest computes is the same to the last bit, forked or not. A child
 * that gets a socket of its own to listen to is forked itself, at the next such place.
 *
 * The kernel's stacks are in the guest's memory. All this runs on a stack that is not.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <ucontext.h>

#define FORK_HERE "/fork-here" /* guest.py knows this name, too. */
#define NO_MORE "no more" /* And forking.py this one. */
#define MOST_STUBS 64
#define MOST_RUNS 64
#define VECTORS 16384 /* Enough for AMX. */
#define TRACESYSGOOD 1
#define GETSIGMASK 0x420a
#define SETSIGMASK 0x420b
#define COLLAPSE 25 /* Of madvise(): older headers lack it. */
#define SERVING_STACK (256 << 10)

struct mapping {
	unsigned long address, length;
	long protection; /* -1: nothing is to be mapped there. */
	unsigned long offset;
};

struct mappings {
	size_t count, room;
	struct mapping *list;
};

/* A process of the guest's programs: the number that the kernel knows it by, its own, and what is in it. */
struct stub {
	pid_t known, pid;
	void *stack; /* Where the kernel has the page that they share. */
	unsigned long code; /* Where the process has the kernel's code; that page follows. */
	uint64_t blocked; /* Its signals that are. */
	struct user_regs_struct registers;
	unsigned char vectors[VECTORS];
	size_t vectors_size;
	struct mappings mapped;
};

static struct stub stubs[MOST_STUBS];
static int stub_count;
static int requests = -1; /* A socket that listens: this guest is to be forked. */
static int control; /* The descriptor of its control directory. */
static int (*start_stub)(void *);
static int (*next_clone)(int (*)(void *), void *, int, void *, ...);
static int (*next_madvise)(void *, size_t, int);

static int memory = -1; /* The guest's memory, a file, */
static struct stat memory_status;
static unsigned long memory_base; /* where its first byte would be in the kernel's process, */
static unsigned long mapped_from; /* from where on it is there, */
static struct mappings kernel_mapped, filled, huge; /* what is mapped of it there, is not empty, and is in large pages. */
static ucontext_t asked_from, serving;

static void failed(const char *what)
{
	dprintf(2, "guest: cannot be forked: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* What the kernel knows processes by, and what they are. */
static pid_t now(pid_t known)
{
	for (int i = 0; i < stub_count; i++)
		if (stubs[i].known == known)
			return stubs[i].pid;
	return known;
}

static pid_t known(pid_t pid)
{
	for (int i = 0; i < stub_count; i++)
		if (stubs[i].pid == pid)
			return stubs[i].known;
	return pid;
}

static void stub_came(pid_t pid)
{
	if (requests < 0 || is_parked)
		return;
	if (stub_count == MOST_STUBS)
		failed("more processes than expected");
	stubs[stub_count++] = (struct stub){ .known = pid, .pid = pid };
}

static void stub_went(pid_t pid)
{
	for (int i = 0; requests >= 0 && !is_parked && i < stub_count; i++)
		if (stubs[i].known == pid)
			stubs[i] = stubs[--stub_count];
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	if (!(flags & CLONE_VM))
		start_stub = function;
	return next_clone(function, stack, flags, argument);
}

int kill(pid_t pid, int number)
{
	int done = next_kill(now(pid), number);

	if (number == SIGKILL)
		stub_went(pid);
	return done;
}

static void note(struct mappings *in, struct mapping one)
{
	if (in->count == in->room) {
		size_t room = in->room ? 2 * in->room : 4096;
		struct mapping *list = mmap(NULL, room * sizeof(one), PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (list == MAP_FAILED)
			failed("memory");
		memcpy(list, in->list, in->count * sizeof(one));
		in->list = list; /* The smaller one stays: it comes to no more than this. */
		in->room = room;
	}
	in->list[in->count++] = one;
}

int madvise(void *address, size_t length, int advice)
{
	int done = next_madvise(address, length, advice);

	if (requests >= 0 && !is_parked && advice == COLLAPSE && done == 0)
		note(&huge, (struct mapping){ (unsigned long)address, length, 0, 0 });
	return done;
}

/* Note what a process has mapped of the guest's memory; return whether all is that, up to `code`. */
static bool note_mappings(pid_t pid, struct mappings *in, unsigned long *code)
{
	char path[64], line[512], access[5];
	unsigned long start, end, offset, inode;
	unsigned int major_number, minor_number;
	bool all = true;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		failed(path);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu", &start, &end, access, &offset, &major_number, &minor_number,
			   &inode) != 7)
			failed("mappings");
		if (inode != memory_status.st_ino || makedev(major_number, minor_number) != memory_status.st_dev) {
			all = all && *code;
			continue;
		}
		if (access[3] == 'p')
			*code = start;
		else
			note(in, (struct mapping){ start, end - start,
						   (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0) |
							   (access[2] == 'x' ? PROT_EXEC : 0),
						   offset });
	}
	fclose(maps);
	return all;
}

/* Find the file that holds the kernel's stack, and so all of the guest's memory. */
static void find_memory(unsigned long stack)
{
	char line[512];
	unsigned long start, end, inode = 0;
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && !inode && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= stack && stack < end)
			sscanf(line, "%*s %*s %*s %*s %lu", &inode);
	if (maps)
		fclose(maps);
	for (int fd = 0; inode && fd < 1024; fd++)
		if (fstat(fd, &memory_status) == 0 && S_ISREG(memory_status.st_mode) && memory_status.st_ino == inode &&
		    memory_status.st_nlink == 0) {
			memory = fd;
			return;
		}
	failed("no file holds its memory");
}

static void note_filled(void)
{
	off_t start = 0, end;

	filled.count = 0;
	while ((start = lseek(memory, start, SEEK_DATA)) >= 0) {
		end = lseek(memory, start, SEEK_HOLE);
		note(&filled, (struct mapping){ start, end - start, 0, start });
		start = end;
	}
}

static void note_stub(struct stub *stub)
{
	struct iovec whole = { stub->vectors, sizeof(stub->vectors) };
	struct mapping *list;
	unsigned long shared = 0;
	size_t kept = 0;

	if (next_ptrace(GETSIGMASK, stub->pid, (void *)sizeof(stub->blocked), &stub->blocked) < 0 ||
	    next_ptrace(GETREGS, stub->pid, NULL, &stub->registers) < 0 ||
	    next_ptrace(GETREGSET, stub->pid, (void *)X86_XSTATE, &whole) < 0)
		failed("registers of a program");
	stub->vectors_size = whole.iov_len;
	stub->mapped.count = 0;
	stub->code = 0;
	if (!note_mappings(stub->pid, &stub->mapped, &stub->code) || !stub->code)
		failed("mappings of a program");
	list = stub->mapped.list;
	for (size_t i = 0; i < stub->mapped.count; i++)
		if (list[i].address == stub->code + getpagesize())
			shared = list[i].offset;
		else
			list[kept++] = list[i];
	stub->mapped.count = kept;
	stub->stack = (void *)(memory_base + shared);
}

static int make_memory(void)
{
	int made = open(getenv("TMPDIR"), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0700);

	if (made < 0 || ftruncate(made, memory_status.st_size) < 0)
		failed("making memory");
	return made;
}

/* Note all that a child needs, or end: then runs boot guests of their own. */
static void note_all(unsigned long stack)
{
	unsigned long code = 0, longest = 0;

	find_memory(stack);
	kernel_mapped.count = 0;
	note_mappings(getpid(), &kernel_mapped, &code);
	mapped_from = kernel_mapped.list[0].offset;
	for (size_t i = 0; i < kernel_mapped.count; i++)
		if (kernel_mapped.list[i].length > longest) {
			longest = kernel_mapped.list[i].length;
			memory_base = kernel_mapped.list[i].address - kernel_mapped.list[i].offset;
		}
	note_filled();
	close(make_memory());
	for (int i = 0; i < stub_count; i++)
		note_stub(&stubs[i]);
}

/* Give this process a copy of the guest's memory, mapped where the other is. Where that has large pages, so has the copy. */
static void copy_memory(void)
{
	int copy = make_memory();

	for (size_t i = 0; i < kernel_mapped.count; i++) {
		struct mapping part = kernel_mapped.list[i];

		if (mmap((void *)part.address, part.length, part.protection, MAP_SHARED | MAP_FIXED, copy, part.offset) ==
		    MAP_FAILED)
			failed("mapping memory");
	}
	for (size_t i = 0; i < huge.count; i++) {
		*(volatile char *)huge.list[i].address; /* As the kernel does. */
		next_madvise((void *)huge.list[i].address, huge.list[i].length, COLLAPSE);
	}
	for (size_t i = 0; i < filled.count; i++) {
		struct mapping part = filled.list[i];
		ssize_t done;

		for (; part.length; part.offset += done, part.length -= done) {
			if (part.offset < mapped_from) /* The kernel's code, which only programs have of this file. */
				done = sendfile(copy, memory, (off_t[]){ lseek(copy, part.offset, SEEK_SET) },
						part.length < mapped_from - part.offset ? part.length : mapped_from - part.offset);
			else
				done = pread(memory, (void *)(memory_base + part.offset), part.length, part.offset);
			if (done <= 0)
				failed("copying memory");
		}
	}
	if (dup3(copy, memory, O_CLOEXEC) < 0)
		failed("replacing memory");
	close(copy);
}

/* What a new process of a guest's program does first, from a list: it maps and unmaps, last of all this code, and so stops by
 * SIGSEGV. SIGTRAP says that a mapping failed. */
void map_all(void);
void map_all_end(void);
asm(".pushsection .text\n"
    "map_all:\n"			/* r12: the list, r13: the file */
    "1:	mov (%r12), %rdi\n"
    "	mov 8(%r12), %rsi\n"
    "	mov 16(%r12), %rdx\n"		/* protection */
    "	mov $11, %eax\n"		/* munmap */
    "	test %rdx, %rdx\n"
    "	js 2f\n"
    "	mov $9, %eax\n"			/* mmap */
    "	mov $0x11, %r10d\n"		/* MAP_SHARED | MAP_FIXED */
    "	mov %r13, %r8\n"
    "	mov 24(%r12), %r9\n"
    "2:	syscall\n"
    "	add $32, %r12\n"
    "	cmp $-4096, %rax\n"
    "	jbe 1b\n"
    "	int3\n"
    "map_all_end:\n"
    ".popsection");

static void await_stop(pid_t pid, int number, const char *what)
{
	int status;

	do
		while (next_waitpid(pid, &status, WUNTRACED | __WALL) < 0)
			if (errno != EINTR)
				failed(what);
	while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGALRM);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != number)
		failed(what);
}

/* Start a process in place of one of the parent's, by the function by which the kernel starts its first one. */
static void restart(struct stub *stub)
{
	size_t page = getpagesize(), count = stub->mapped.count;
	size_t size = ((count + 2) * sizeof(struct mapping) + page - 1) / page * page + 2 * page;
	char *place = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mapping *list = (struct mapping *)(place + page);
	struct iovec whole = { stub->vectors, stub->vectors_size };
	struct user_regs_struct registers;
	unsigned long start = (unsigned long)place;

	if (place == MAP_FAILED || start < stub->code)
		failed("no place to start a program");
	memcpy(place, map_all, (char *)map_all_end - (char *)map_all);
	list[0] = (struct mapping){ 0, stub->code, -1, 0 };
	memcpy(list + 1, stub->mapped.list, count * sizeof(*list));
	list[count + 1] = (struct mapping){ start, size, -1, 0 };
	stub->pid = next_clone(start_stub, place + size, CLONE_FILES | SIGCHLD, stub->stack);
	if (stub->pid < 0)
		failed("starting a program");
	await_stop(stub->pid, SIGSTOP, "starting a program");
	if (next_ptrace(SETOPTIONS, stub->pid, NULL, (void *)(TRACESYSGOOD | EXITKILL)) < 0 ||
	    next_ptrace(SETSIGMASK, stub->pid, (void *)sizeof(stub->blocked), &stub->blocked) < 0 ||
	    next_ptrace(GETREGS, stub->pid, NULL, &registers) < 0)
		failed("tracing a program");
	registers.orig_rax = -1;
	registers.rip = start;
	registers.r12 = (unsigned long)list;
	registers.r13 = memory;
	if (next_ptrace(SETREGS, stub->pid, NULL, &registers) < 0 || next_ptrace(CONT, stub->pid, NULL, NULL) < 0)
		failed("tracing a program");
	await_stop(stub->pid, SIGSEGV, "mapping a program's memory");
	if (next_ptrace(SETREGS, stub->pid, NULL, &stub->registers) < 0 ||
	    next_ptrace(SETREGSET, stub->pid, (void *)X86_XSTATE, &whole) < 0)
		failed("registers of a program");
	munmap(place, size);
}

/* What the kernel waits for is in a set that parent and child would share: make one of our own. */
static void renew_polled(int set)
{
	char path[64], line[256];
	struct epoll_event event;
	unsigned long long data;
	int own = epoll_create1(0), fd;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", set);
	info = fopen(path, "re");
	if (!info || own < 0)
		failed("what is waited for");
	while (fgets(line, sizeof(line), info))
		if (sscanf(line, "tfd: %d events: %x data: %llx", &fd, &event.events, &data) == 3) {
			event.data.u64 = data;
			fcntl(fd, F_SETOWN, getpid());
			epoll_ctl(own, EPOLL_CTL_ADD, fd, &event); /* A file is never waited for. */
		}
	fclose(info);
	dup2(own, set);
	close(own);
}

/* Return the length of what a link says, 0 if there is none. */
static size_t linked(const char *path, char *target, size_t size)
{
	ssize_t length = next_readlink(path, target, size - 1);

	target[length > 0 ? length : 0] = '\0';
	return length > 0 ? length : 0;
}

static void renew_all_polled(void)
{
	char path[64], target[64];

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		linked(path, target, sizeof(target));
		if (strcmp(target, "anon_inode:[eventpoll]") == 0)
			renew_polled(fd);
	}
}

/* A run that was asked for. */
struct run {
	int connection, process; /* -1: none yet. */
	pid_t pid;
};

static struct run runs[MOST_RUNS];
static int run_count;
static bool is_last; /* No more runs are to come. */

/* Let an empty file of a control directory hold what the one of the same name in the parent's does. */
static void copy_file(const char *name, int own_control)
{
	int from = openat(control, name, O_RDONLY | O_CLOEXEC), to = openat(own_control, name, O_WRONLY | O_CLOEXEC);
	struct stat there, here;

	if (from < 0 || to < 0 || fstat(from, &there) < 0 || fstat(to, &here) < 0)
		failed(name);
	for (off_t done = 0; here.st_size == 0 && done < there.st_size;)
		if (sendfile(to, from, &done, there.st_size - done) <= 0)
			failed(name);
	close(from);
	close(to);
}

/* Open a file of a control directory once more in another one, as it is open already, under the same descriptor. */
static void reopen(int fd, const char *name, int own_control)
{
	int flags = fcntl(fd, F_GETFL), own = openat(own_control, name, (flags & ~O_EXCL) | O_CREAT | O_CLOEXEC, 0644);

	if (own < 0 || dup3(own, fd, O_CLOEXEC) < 0)
		failed(name);
	close(own);
	if ((flags & O_ACCMODE) != O_RDONLY)
		copy_file(name, own_control);
}

/* What the guest's programs have open of the control directory is that of another run: open the same files of its own. */
static void renew_files(int own_control)
{
	char path[64], before[PATH_MAX], target[PATH_MAX];
	size_t length;
	struct stat status;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", control);
	length = linked(path, before, sizeof(before));
	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (linked(path, target, sizeof(target)) <= length + 1 || target[length] != '/' ||
		    memcmp(target, before, length) != 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
		    status.st_nlink == 0)
			continue;
		reopen(fd, target + length + 1, own_control);
	}
}

/* Become the guest of a run, or one that is forked itself (`own_requests`), in a process that has just been forked. */
static void become(pid_t parent, int own_control, int own_requests, int processor, int watcher, int niceness)
{
	int console = openat(own_control, "console", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_PTRACER, watcher);
	if (getppid() != parent)
		_exit(1);
	kernel = getpid();
	setsid();
	setpriority(PRIO_PROCESS, 0, niceness);
	if (console < 0 || dup2(console, 1) < 0 || dup2(console, 2) < 0)
		_exit(1);
	renew_files(own_control);
	if (dup2(own_control, control) < 0)
		_exit(1);
	close(console);
	close(own_control);
	close(requests);
	for (int i = 0; i < run_count; i++) {
		close(runs[i].connection);
		if (runs[i].process >= 0)
			close(runs[i].process);
	}
	run_count = 0;
	is_last = false;
	requests = own_requests;
	is_parked = false;
	if (processor >= 0)
		stay_on(processor);
	copy_memory();
	renew_all_polled();
	for (int i = 0; i < stub_count; i++)
		restart(&stubs[i]);
	watch_for_loops();
}

/* Take a request, and fork for it. Returns whether there is a run now; in the child, does not return. */
static bool begin(struct run *run)
{
	char text[64] = "", descriptors[CMSG_SPACE(2 * sizeof(int))] = "";
	struct iovec words = { text, sizeof(text) - 1 };
	struct msghdr message = { .msg_iov = &words, .msg_iovlen = 1, .msg_control = descriptors,
				  .msg_controllen = sizeof(descriptors) };
	struct cmsghdr *passed;
	int passed_on[2] = { -1, -1 }, processor, watcher, niceness; /* A control directory, and where it is to listen. */
	pid_t parent = getpid();

	if (recvmsg(run->connection, &message, MSG_CMSG_CLOEXEC) <= 0)
		return false;
	is_last = is_last || strcmp(text, NO_MORE) == 0;
	if (!(passed = CMSG_FIRSTHDR(&message)) ||
	    sscanf(text, "%d %d %d", &processor, &watcher, &niceness) != 3)
		return false;
	memcpy(passed_on, CMSG_DATA(passed), passed->cmsg_len - CMSG_LEN(0));
	run->pid = fork();
	if (run->pid == 0) {
		become(parent, passed_on[0], passed_on[1], processor, watcher, niceness);
		setcontext(&asked_from);
		_exit(1);
	}
	for (int i = 0; i < 2; i++)
		if (passed_on[i] >= 0)
			close(passed_on[i]);
	run->process = run->pid < 0 ? -1 : syscall(SYS_pidfd_open, run->pid, 0);
	return run->process >= 0 && send(run->connection, text, snprintf(text, sizeof(text), "%d", run->pid), MSG_NOSIGNAL) > 0;
}

static void end(struct run *run)
{
	char text[16];
	int status;

	if (run->process >= 0) {
		next_kill(run->pid, SIGKILL);
		if (next_waitpid(run->pid, &status, 0) == run->pid)
			send(run->connection, text, snprintf(text, sizeof(text), "%d", status), MSG_NOSIGNAL);
		close(run->process);
	}
	close(run->connection);
	*run = runs[--run_count];
}

/* Fork for each request, and tell who made it how the run has ended; end a run that nobody waits for any more. */
static void serve(void)
{
	struct pollfd ready[1 + 2 * MOST_RUNS];

	while (!is_last || run_count > 0) {
		ready[0] = (struct pollfd){ run_count < MOST_RUNS ? requests : -1, POLLIN, 0 };
		for (int i = 0; i < run_count; i++) {
			ready[1 + 2 * i] = (struct pollfd){ runs[i].connection, POLLIN, 0 };
			ready[2 + 2 * i] = (struct pollfd){ runs[i].process, POLLIN, 0 };
		}
		if (poll(ready, 1 + 2 * run_count, -1) < 0)
			continue;
		for (int i = run_count - 1; i >= 0; i--)
			if (ready[2 + 2 * i].revents || (ready[1 + 2 * i].revents && (runs[i].process >= 0 || !begin(&runs[i]))))
				end(&runs[i]);
		if (ready[0].revents) {
			int connection = accept4(requests, NULL, NULL, SOCK_CLOEXEC);

			if (connection >= 0)
				runs[run_count++] = (struct run){ connection, -1, 0 };
		}
	}
	_exit(0);
}

/* The guest's program is where it can be forked: return there, in a child for each run. */
static void fork_here(void)
{
	sigset_t all, before;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	is_parked = true;
	note_all((unsigned long)__builtin_frame_address(0));
	getcontext(&serving);
	serving.uc_stack.ss_sp = mmap(NULL, SERVING_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	serving.uc_stack.ss_size = SERVING_STACK;
	if (serving.uc_stack.ss_sp == MAP_FAILED)
		failed("memory");
	makecontext(&serving, serve, 0);
	swapcontext(&asked_from, &serving);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void prepare_to_fork(void)
{
	const char *listening = getenv("GUEST_REQUESTS"), *directory = getenv("GUEST_CONTROL");

	next_clone = (int (*)(int (*)(void *), void *, int, void *, ...))dlsym(RTLD_NEXT, "clone");
	next_madvise = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
	if (!next_clone || !next_madvise)
		_exit(1);
	requests = listening ? atoi(listening) : -1;
	control = directory ? atoi(directory) : -1;
}
