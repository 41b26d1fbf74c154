/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of host.c: what an instruction of x86-64 reads to go one way or another: flags, and by which registers it finds the
 * memory that it reads or writes. Encodings: Intel's Software Developer's Manual, volume 2, chapter 2 and appendix A.
 */
#include <stdbool.h>
#include <stddef.h>

#define LONGEST_INSTRUCTION 15
#define NO_REGISTER (-1)
#define RAX 0
#define RCX 1
#define RBX 3
#define RSP 4
#define RSI 6
#define RDI 7

struct instruction {
	bool reads_flags;
	int registers[2]; /* By which it finds memory, in the order of encodings, or which decides alone; NO_REGISTER: none. */
};

/* Where an instruction's parts are. */
struct encoding {
	const unsigned char *at; /* Its opcode; the byte that names its operands follows. */
	int map; /* 1: one byte; 2: 0F; 3: 0F 38 or 0F 3A. */
	bool high_index, high_base; /* The fourth bit of a register's number. */
	bool is_vector; /* With a prefix of vector instructions. */
};

static const unsigned char *behind_prefixes(const unsigned char *at, const unsigned char *end)
{
	for (; at < end; at++)
		switch (*at) {
		case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67: case 0xf0: case 0xf2:
		case 0xf3:
			continue;
		default:
			return at;
		}
	return at;
}

static struct encoding encoding_of(const unsigned char *code)
{
	const unsigned char *at = behind_prefixes(code, code + LONGEST_INSTRUCTION);
	struct encoding found = { .map = 1 };
	int rex = 0, map = 1;

	if ((*at & 0xf0) == 0x40)
		rex = *at++;
	if (*at == 0xc5 || *at == 0xc4 || *at == 0x62) {
		found.is_vector = true;
		if (*at != 0xc5) {
			rex = ~at[1] >> 5; /* R, X, B, inverted. */
			map = at[1] & (*at == 0x62 ? 7 : 0x1f);
		}
		found.map = *at == 0xc5 || map == 1 ? 2 : 3;
		at += *at == 0xc5 ? 2 : *at == 0xc4 ? 3 : 4;
	} else if (*at == 0x0f) {
		at++;
		found.map = *at == 0x38 || *at == 0x3a ? 3 : 2;
		at += found.map - 2;
	}
	found.high_index = rex & 2;
	found.high_base = rex & 1;
	found.at = at;
	return found;
}

/* Whether a byte follows the opcode that names operands. */
static bool names_operands(const struct encoding *of)
{
	unsigned int opcode = *of->at;

	if (of->map == 3)
		return true;
	if (of->map == 2) {
		if (of->is_vector)
			return opcode != 0x77;
		return !((opcode >= 0x05 && opcode <= 0x0b) || opcode == 0x0e || (opcode >= 0x30 && opcode <= 0x37) ||
			 opcode == 0x77 || (opcode >= 0x80 && opcode <= 0x8f) || (opcode >= 0xa0 && opcode <= 0xa2) ||
			 (opcode >= 0xa8 && opcode <= 0xaa) || (opcode >= 0xc8 && opcode <= 0xcf));
	}
	return (opcode < 0x40 && (opcode & 7) < 4) || opcode == 0x63 || opcode == 0x69 || opcode == 0x6b ||
	       (opcode >= 0x80 && opcode <= 0x8f) || opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 || opcode == 0xc7 ||
	       (opcode >= 0xd0 && opcode <= 0xd3) || (opcode >= 0xd8 && opcode <= 0xdf) || opcode == 0xf6 || opcode == 0xf7 ||
	       opcode == 0xfe || opcode == 0xff;
}

static bool reads_flags(const struct encoding *of)
{
	unsigned int opcode = *of->at, extension = of->at[1] >> 3 & 7;

	if (of->is_vector || of->map == 3)
		return of->map == 3 && !of->is_vector && opcode == 0xf6; /* adcx, adox */
	if (of->map == 2) /* cmov, j, set */
		return (opcode & 0xf0) == 0x40 || (opcode & 0xf0) == 0x80 || (opcode & 0xf0) == 0x90;
	if ((opcode >= 0x80 && opcode <= 0x83) || (opcode >= 0xd0 && opcode <= 0xd3) || opcode == 0xc0 || opcode == 0xc1)
		return extension == 2 || extension == 3; /* adc and sbb, rcl and rcr */
	if (opcode == 0xda || opcode == 0xdb) /* fcmov */
		return of->at[1] >= 0xc0;
	return (opcode >= 0x10 && opcode <= 0x1d && (opcode & 7) < 6) || (opcode & 0xf0) == 0x70 ||
	       (opcode >= 0xe0 && opcode <= 0xe3) || opcode == 0x9c || opcode == 0x9f || opcode == 0xf5;
}

static void find_memory_of(const struct encoding *of, struct instruction *found)
{
	unsigned int mode = of->at[1] >> 6, base = of->at[1] & 7;

	if (mode == 3 || (of->map == 1 && *of->at == 0x8d) || (of->map == 2 && !of->is_vector && *of->at == 0x1f))
		return; /* A register, an address that is only computed, nothing. */
	if (base == 4) {
		int index = (of->at[2] >> 3 & 7) | (of->high_index ? 8 : 0);

		found->registers[1] = index == 4 ? NO_REGISTER : index;
		base = of->at[2] & 7;
		if (base == 5 && mode == 0)
			return;
	} else if (base == 5 && mode == 0) {
		return; /* Relative to the instruction. */
	}
	found->registers[0] = base | (of->high_base ? 8 : 0);
}

static struct instruction instruction_of(const unsigned char *code)
{
	struct encoding of = encoding_of(code);
	struct instruction found = { reads_flags(&of), { NO_REGISTER, NO_REGISTER } };
	unsigned int opcode = *of.at;

	if (names_operands(&of)) {
		find_memory_of(&of, &found);
	} else if (of.map == 1) {
		if ((opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf)) {
			found.registers[0] = RSI;
			found.registers[1] = RDI;
		} else if (opcode == 0xd7) {
			found.registers[0] = RBX; /* xlat */
			found.registers[1] = RAX;
		} else if (opcode >= 0xe0 && opcode <= 0xe3) {
			found.registers[0] = RCX; /* loop, jrcxz */
		}
	}
	return found;
}
