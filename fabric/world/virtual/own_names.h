/* SPDX-License-Identifier: GPL-2.0-only */
/* What each file of the kernel is called, given after the headers that all share. */
#define KBUILD_BASENAME OWN_KBUILD_BASENAME
#define KBUILD_MODFILE OWN_KBUILD_MODFILE
#define KBUILD_MODNAME OWN_KBUILD_MODNAME
#define __KBUILD_MODNAME OWN___KBUILD_MODNAME
