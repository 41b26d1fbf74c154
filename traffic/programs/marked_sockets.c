/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives each IP socket that a program opens the TOS byte that FABRIC_TOS names, so that its packets use a lane. What a
 * program sets itself counts. Sockets that a program accepts inherit that of the one that listens. Preloaded, so a
 * program that is linked statically is not reached.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol)
{
    static int (*next)(int, int, int);
    const char *text = getenv("FABRIC_TOS");
    int fd, tos, before;

    if (!next)
        next = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    fd = next(domain, type, protocol);
    if (fd < 0 || !text || (domain != AF_INET && domain != AF_INET6))
        return fd;
    before = errno;
    tos = atoi(text);
    setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
    if (domain == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
    errno = before;
    return fd;
}
