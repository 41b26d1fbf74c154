/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Headers of the kernel that are compiled once for all files that include them (patches/6.1/headers.patch). The first
 * two come first in every file, also where the compiler refuses what is compiled, for a file has other options.
 */
#include <linux/kconfig.h>
#include <linux/compiler_types.h>
#define KBUILD_MODNAME "kernel" /* In functions of headers. */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/interrupt.h>
#include <linux/syscalls.h>
#include <linux/seq_file.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/filter.h>
#include <net/genetlink.h>
#include <net/ipv6.h>
#include <net/pkt_cls.h>
#include <net/pkt_sched.h>
#include <net/tcp.h>
#undef KBUILD_MODNAME
