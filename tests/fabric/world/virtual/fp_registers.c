/* Processes and threads that hold values in floating-point registers while others run: over calls, page faults, signals
 * and forks. Prints how many values were held and how many were lost; runs in a guest. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 3
#define THREADS 2
#define ROUNDS 100
#define PAGE 4096

static atomic_int *lost, *held;

static void check(unsigned long put, unsigned long got)
{
	atomic_fetch_add(put == got ? held : lost, 1);
}

static void clobber(int number)
{
	asm volatile("movq %0, %%xmm9" : : "r"(-1UL) : "xmm9");
}

static long over_call(unsigned long value, long call, long first, long second)
{
	unsigned long got;
	long result = call;

	asm volatile("movq %2, %%xmm9\n\tsyscall\n\tmovq %%xmm9, %0"
		     : "=&r"(got), "+a"(result)
		     : "r"(value), "D"(first), "S"(second)
		     : "rcx", "r11", "memory", "xmm9");
	check(value, got);
	return result;
}

static void over_fault(unsigned long value, char *page)
{
	unsigned long got;

	asm volatile("movq %1, %%xmm9\n\tmovb $1, (%2)\n\tmovq %%xmm9, %0"
		     : "=&r"(got)
		     : "r"(value), "r"(page)
		     : "memory", "xmm9");
	check(value, got);
}

static void *hold(void *argument)
{
	unsigned long value = (unsigned long)argument;
	char *pages = mmap(NULL, 17 * ROUNDS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long child;
	int round;

	for (round = 0; round < ROUNDS; round++, value += 1000) {
		over_call(value, SYS_sched_yield, 0, 0);
		over_fault(value, pages + 17 * round * PAGE); /* 16 pages come with each. */
		over_call(value, SYS_kill, getpid(), SIGUSR1);
	}
	child = over_call(value, SYS_fork, 0, 0);
	if (child == 0)
		_exit(0);
	waitpid(child, NULL, 0);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	unsigned long process;

	lost = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	held = lost + 1;
	signal(SIGUSR1, clobber);
	for (process = 0; process < PROCESSES; process++)
		if (fork() == 0) {
			pthread_create(&thread, NULL, hold, (void *)(10 * process + 1));
			hold((void *)(10 * process + 2));
			pthread_join(thread, NULL);
			exit(0);
		}
	while (wait(NULL) > 0)
		;
	printf("%d held, %d lost\n", *held, *lost);
	return 0;
}
