/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of host.c: finds programs of the guest that go round without a call, looking at memory.
 *
 * A thread sees that a program has run for long without a stop, and stops it by SIGXCPU. Then the program is stepped through,
 * an instruction at a time. It goes round if all its registers come back, those of floating point, too, again and again and
 * with the same ones at each step between: then all that it has stored is the same each time, and nothing but a change of
 * what it reads lets it go on. A counter in memory shows in the flags of the instruction that counts within 16 rounds.
 *
 * It also goes round if it only counts meanwhile: if registers grow by the same in each round, but no instruction finds memory
 * by such a register, and flags are the same wherever one reads them. A loop that counts to a limit is none of these: the
 * comparison's flags of parity and of half a byte differ from round to round. Nor is a loop through an array.
 *
 * The kernel then sees the program stopped by SIGXCPU, and lets it wait. When it goes on from there, it takes one round, step
 * by step; if nothing has changed, the kernel sees SIGXFSZ. So how long a program goes round hangs neither on this machine nor
 * on what else it does: it only decides when to look, not what is found.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>
#include "instructions.h"

#define MOST_STEPS 1024 /* Are more than those of a round: a poller of a library takes some hundreds. */
#define MOST_STEPS_COUNTING (MOST_STEPS / 3 - 1) /* What is known of three rounds. */
#define ROUNDS 20
#define ROUNDS_COUNTING 40 /* Parity can stay the same for 17. */
#define LOOPS 64 /* Of programs, and of their threads, that are remembered. */
#define RESUME_FLAG 0x10000 /* Of the flags: the processor's own. */
#define FIRST_LOOK_NS 20000000L
#define NEXT_LOOK_NS 1000000L /* Where something goes round already, others often do soon. */
#define LONGEST_BETWEEN_LOOKS_NS 5000000000LL

#define COUNTERS 15 /* Registers that may count: all but the stack's. */
static const size_t counters[COUNTERS] = { /* In the order of encodings. */
#define OFFSET(name) offsetof(struct user_regs_struct, name)
	OFFSET(rax), OFFSET(rcx), OFFSET(rdx), OFFSET(rbx), OFFSET(rbp), OFFSET(rsi), OFFSET(rdi), OFFSET(r8),
	OFFSET(r9), OFFSET(r10), OFFSET(r11), OFFSET(r12), OFFSET(r13), OFFSET(r14), OFFSET(r15),
};

struct loop {
	pid_t pid; /* 0: none. */
	int steps;
	bool counts;
	struct user_regs_struct states[MOST_STEPS]; /* At its start, and before each step of the last round. */
	bool reads_flags[MOST_STEPS_COUNTING]; /* If it counts: the instruction that follows. */
	unsigned long grown[MOST_STEPS_COUNTING][COUNTERS]; /* By how much, since the round before. */
};

static struct loop loops[LOOPS];
static int next_loop;
static struct loop *looking; /* That the program which goes on is taken through, step by step. */
static struct user_regs_struct first;
static unsigned char vectors_before[sizeof(vectors)], vectors_after[sizeof(vectors)];
static volatile uint64_t turn; /* Of programs that go on; odd while one runs. */
static volatile bool goes_round_somewhere;
static volatile pid_t watched;
static volatile bool is_parked; /* Nothing runs: forking.h. */

static bool registers_of(pid_t pid, struct user_regs_struct *registers)
{
	if (next_ptrace(GETREGS, pid, NULL, registers) < 0)
		return false;
	registers->eflags &= ~(unsigned long)RESUME_FLAG;
	registers->orig_rax = 0;
	return true;
}

static bool same(const struct user_regs_struct *a, const struct user_regs_struct *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static unsigned long *counter_of(struct user_regs_struct *state, int counter)
{
	return (unsigned long *)((char *)state + counters[counter]);
}

/* Whether a program is where it was before a step of the last round, or where it then is in the next. */
static bool is_at(struct loop *loop, int place, const struct user_regs_struct *now, bool next)
{
	struct user_regs_struct expected = loop->states[place];

	if (loop->counts) {
		for (int counter = 0; next && counter < COUNTERS; counter++)
			*counter_of(&expected, counter) += loop->grown[place][counter];
		if (!loop->reads_flags[place])
			expected.eflags = now->eflags;
	}
	return same(&expected, now);
}

static size_t vectors_of(pid_t pid, unsigned char *into)
{
	struct iovec whole = { into, sizeof(vectors) };

	return next_ptrace(GETREGSET, pid, (void *)X86_XSTATE, &whole) < 0 ? 0 : whole.iov_len;
}

static int stopped_by(int number)
{
	return number << 8 | 0x7f;
}

/* Take a step; return whether it was one, and nothing else stopped the program. */
static bool step(pid_t pid, int *status)
{
	pid_t waited;

	do {
		if (next_ptrace(SYSEMU_SINGLESTEP, pid, NULL, NULL) < 0) {
			*status = stopped_by(SIGALRM); /* Which says nothing to the kernel: it finds out by itself. */
			return false;
		}
		do
			waited = next_waitpid(pid, status, WUNTRACED | __WALL);
		while (waited < 0 && errno == EINTR);
	} while (waited == pid && WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGXCPU); /* It was asked once more meanwhile. */
	return waited == pid && WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGTRAP;
}

static struct loop *loop_from(pid_t pid, const struct user_regs_struct *registers)
{
	for (int place = 0; place < LOOPS; place++)
		if (loops[place].pid == pid && is_at(&loops[place], 0, registers, false))
			return &loops[place];
	return NULL;
}

/* Take the program round once. Returns 1 if it comes back to where it began, having gone the way that is known, and 0 if
 * it went another one, or was stopped by what `status` says: -1. */
static int taken_round(struct loop *loop, pid_t pid, int *status)
{
	struct user_regs_struct now;

	for (int done = 1; done <= loop->steps; done++) {
		if (!step(pid, status))
			return -1;
		if (!registers_of(pid, &now) || !is_at(loop, done % loop->steps, &now, true))
			return 0;
		loop->states[done % loop->steps] = now;
	}
	return 1;
}

/* Whether a step is the same in three rounds, but for what has grown by as much in both. */
static bool is_counted(struct loop *loop, int place, struct user_regs_struct *before, struct user_regs_struct *state,
		       struct user_regs_struct *after)
{
	struct user_regs_struct expected = *state;

	for (int counter = 0; counter < COUNTERS; counter++) {
		unsigned long grown = *counter_of(state, counter) - *counter_of(before, counter);

		if (grown && !(grown & 0xff)) /* Which no parity would show. */
			return false;
		loop->grown[place][counter] = grown;
		*counter_of(&expected, counter) += grown;
	}
	expected.eflags = after->eflags;
	return same(&expected, after);
}

/* Whether what an instruction does hangs on nothing that counts, but for flags, which are looked at round by round. */
static bool is_apart(pid_t pid, struct loop *loop, int place)
{
	unsigned char code[LONGEST_INSTRUCTION + 5] = ""; /* What follows is looked at of the shortest. */
	struct iovec into = { code, LONGEST_INSTRUCTION };
	struct iovec from = { (void *)loop->states[place].rip, LONGEST_INSTRUCTION };
	struct instruction found;

	if (process_vm_readv(pid, &into, 1, &from, 1, 0) <= 0)
		return false;
	found = instruction_of(code);
	loop->reads_flags[place] = found.reads_flags;
	for (int i = 0; i < 2; i++) {
		int number = found.registers[i];

		if (number != NO_REGISTER && number != RSP && loop->grown[place][number - (number > RSP)])
			return false;
	}
	return true;
}

/* Find the shortest round of a program that counts in the steps that it has taken; return whether there is one. */
static bool find_counting(pid_t pid, struct loop *loop)
{
	struct user_regs_struct *last = &loop->states[MOST_STEPS - 1], now = *last;
	int steps, place;

	for (steps = 1; steps <= MOST_STEPS_COUNTING; steps++) {
		for (place = 0; place < steps; place++)
			if (!is_counted(loop, place, last - 3 * steps + place, last - 2 * steps + place, last - steps + place))
				break;
		if (place == steps && is_counted(loop, 0, last - 2 * steps, last - steps, last))
			break;
	}
	if (steps > MOST_STEPS_COUNTING)
		return false;
	loop->steps = steps;
	loop->counts = true;
	memmove(&loop->states[1], last - steps + 1, (steps - 1) * sizeof(now));
	loop->states[0] = now;
	for (place = 0; place < steps; place++)
		if (!is_apart(pid, loop, place))
			return false;
	return true;
}

/* Find out whether the program, which has stopped, goes round. Returns as taken_round() does. */
static int goes_round(pid_t pid, int *status)
{
	struct loop *found = &loops[next_loop];
	size_t size = vectors_of(pid, vectors_before);
	int steps, round, went = 0;

	found->pid = 0;
	found->counts = false;
	if (!size || !registers_of(pid, &found->states[0]))
		return 0;
	for (steps = 1; ; steps++) {
		if (!step(pid, status))
			return -1;
		if (!registers_of(pid, &first))
			return 0;
		if (same(&first, &found->states[0]))
			break;
		found->states[steps] = first;
		if (steps == MOST_STEPS - 1) {
			if (!find_counting(pid, found))
				return 0;
			break;
		}
	}
	if (!found->counts)
		found->steps = steps;
	for (round = 0; round < (found->counts ? ROUNDS_COUNTING : ROUNDS); round++) {
		if (vectors_of(pid, vectors_after) != size || memcmp(vectors_before, vectors_after, size) != 0)
			return 0;
		went = taken_round(found, pid, status);
		if (went != 1)
			return went;
	}
	found->pid = pid;
	next_loop = (next_loop + 1) % LOOPS;
	goes_round_somewhere = true;
	return 1;
}

/* The program is to go on: if from where it goes round, step by step. Returns the request by which it goes on. */
static void going_on(pid_t pid)
{
	struct user_regs_struct now;

	looking = NULL;
	if (goes_round_somewhere && registers_of(pid, &now))
		looking = loop_from(pid, &now);
	watched = pid;
	turn++;
}

static void has_stopped(void)
{
	turn++;
}

static void *stop_what_runs_for_long(void *nothing)
{
	uint64_t seen = 0;
	long long still_ns = 0, limit_ns = FIRST_LOOK_NS;

	while (!is_parked) {
		struct timespec wait = { 0, goes_round_somewhere ? NEXT_LOOK_NS : FIRST_LOOK_NS / 2 };

		nanosleep(&wait, NULL);
		if (turn != seen || !(turn & 1)) {
			seen = turn;
			still_ns = 0;
			limit_ns = goes_round_somewhere ? 2 * NEXT_LOOK_NS : FIRST_LOOK_NS;
			continue;
		}
		still_ns += wait.tv_nsec;
		if (still_ns < limit_ns)
			continue;
		next_kill(watched, SIGXCPU);
		still_ns = 0;
		if (limit_ns < LONGEST_BETWEEN_LOOKS_NS)
			limit_ns *= 2; /* A long computation is not to be held up. */
	}
	return nothing;
}

/* The kernel has one thread, whose signals are not for this one. */
static void watch_for_loops(void)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, stop_what_runs_for_long, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
