/* SPDX-License-Identifier: Apache-2.0
 *
 * Says of each instruction, a line of hexadecimal bytes, whether it reads flags, and by which registers it finds memory.
 */
#include <stdio.h>
#include <string.h>
#include "instructions.h"

int main(void)
{
	char line[128];

	while (fgets(line, sizeof(line), stdin)) {
		unsigned char code[LONGEST_INSTRUCTION + 5] = "";
		struct instruction found;
		const char *rest = line;
		int used;

		for (size_t at = 0; at < LONGEST_INSTRUCTION && sscanf(rest, "%2hhx%n", &code[at], &used) == 1; at++)
			rest += used;
		found = instruction_of(code);
		printf("%d %d %d\n", found.reads_flags, found.registers[0], found.registers[1]);
	}
	return 0;
}
