/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets C++ programs draw by the run's seed: std::random_device asks the processor (RDRAND, RDSEED), which no kernel can
 * come between, so what draws by it (PyTorch, while ranks meet) took another time in each run. These take its place and
 * ask the kernel, as all else that draws at random. Preloaded, so a program that is linked statically is not reached.
 */
#include <sys/random.h>

void _ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(void *device, const void *kind)
{
}

void _ZNSt13random_device7_M_initERKSs(void *device, const void *kind)
{
}

void _ZNSt13random_device7_M_finiEv(void *device)
{
}

unsigned _ZNSt13random_device9_M_getvalEv(void *device)
{
	unsigned drawn = 0;

	while (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
		;
	return drawn;
}

double _ZNKSt13random_device13_M_getentropyEv(const void *device)
{
	return 32;
}
