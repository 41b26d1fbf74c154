/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that look at memory until it changes, without a call: "sleeper" until a thread sets it after 5 ms, "pingpong" two
 * threads in turn, "counting" with a counter in memory, "counter" with one in a register, "forever" until nobody sets it. And
 * two that compute beside such a thread: "delaying" counts to a limit, "scanning" looks through an array. Each says how many
 * us of its clock passed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS 20
#define COUNTS 300000000UL
#define ARRAY_BYTES 100000000UL

static atomic_int flag;
static volatile unsigned long looks;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void *set_late(void *nothing)
{
	struct timespec late = { 0, 5000000 };

	nanosleep(&late, NULL);
	atomic_store(&flag, 1);
	return nothing;
}

static void *answer(void *nothing)
{
	for (int turn = 0; turn < TURNS; turn++) {
		while (atomic_load(&flag) != 2 * turn + 1)
			;
		atomic_store(&flag, 2 * turn + 2);
	}
	return nothing;
}

static unsigned long count_looks(void)
{
	unsigned long looked = 0;

	while (!atomic_load(&flag))
		looked++;
	return looked;
}

static void count_to_limit(void)
{
	for (volatile unsigned long count = 0; count < COUNTS; count++)
		;
}

static size_t scan(const volatile char *array)
{
	size_t place = 0;

	while (!array[place])
		place++;
	return place;
}

static void wait_for(int value)
{
	while (atomic_load(&flag) != value)
		;
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "sleeper";
	pthread_t thread;
	char *array = calloc(ARRAY_BYTES, 1);
	double began = now_us(), passed;

	array[ARRAY_BYTES - 1] = 1;
	if (strcmp(kind, "pingpong") == 0) {
		pthread_create(&thread, NULL, answer, NULL);
		for (int turn = 0; turn < TURNS; turn++) {
			atomic_store(&flag, 2 * turn + 1);
			wait_for(2 * turn + 2);
		}
	} else if (strcmp(kind, "forever") == 0) {
		wait_for(1);
	} else {
		pthread_create(&thread, NULL, set_late, NULL);
		if (strcmp(kind, "counting") == 0)
			while (!atomic_load(&flag))
				looks++;
		else if (strcmp(kind, "counter") == 0)
			looks = count_looks();
		else if (strcmp(kind, "delaying") == 0)
			count_to_limit();
		else if (strcmp(kind, "scanning") == 0)
			looks = scan(array);
		else
			wait_for(1);
	}
	passed = now_us() - began;
	printf("%s %.3f us\n", kind, passed);
	pthread_join(thread, NULL);
	return 0;
}
