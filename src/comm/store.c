/* Passes a few bytes from rank 0 to all others through TCP, for launchers such as torchrun that give an address and a
 * port and nothing else. */
#include "comm/engine.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 120 }; /* seconds: ranks of a cluster start at different times */

static int address_of(struct addrinfo **out, char *text, size_t room, int listens, mr_error *err)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0};
    char *end, service[16];
    const long number = port ? strtol(port, &end, 10) : 0;
    *out = NULL;
    if (!host || !port || end == port || *end || number < 1 || number > 65534)
        return mr_fail(err, MR_EDEVICE,
                       "ranks: MASTER_ADDR and MASTER_PORT (1 to 65534) must say where rank 0 can be reached");
    snprintf(service, sizeof service, "%ld", number + 1); /* torchrun itself listens at MASTER_PORT */
    snprintf(text, room, "%.200s, port %s", host, service);
    const int code = getaddrinfo(listens ? NULL : host, service, &hints, out);
    if (code) return mr_fail(err, MR_EDEVICE, "ranks: %s: %s", text, gai_strerror(code));
    return 0;
}

static void limit_wait(int socket)
{
    const struct timeval limit = {.tv_sec = PATIENCE};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Moves all bytes. Returns 1 if the other side is there until the end. */
static int move(int socket, void *data, size_t bytes, int receive)
{
    char *at = data;
    while (bytes) {
        const ssize_t n = receive ? recv(socket, at, bytes, 0) : send(socket, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        at += n;
        bytes -= (size_t)n;
    }
    return 1;
}

static int open_listener(const struct addrinfo *addresses)
{
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        const int s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), yes = 1;
        if (s < 0) continue;
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (!bind(s, a->ai_addr, a->ai_addrlen) && !listen(s, 128)) return limit_wait(s), s;
        close(s);
    }
    return -1;
}

static int serve(const mr_launch *l, const char *place, const struct addrinfo *addresses, void *data, size_t bytes,
                 mr_error *err)
{
    const int listener = open_listener(addresses);
    if (listener < 0) return mr_fail(err, MR_EDEVICE, "ranks: %s: %s", place, strerror(errno));
    int served = 1;
    while (served < l->size) {
        const int s = accept(listener, NULL, NULL);
        if (s < 0 && errno == EINTR) continue;
        if (s < 0) break;
        limit_wait(s);
        served += move(s, data, bytes, 0);
        close(s);
    }
    close(listener);
    if (served == l->size) return 0;
    return mr_fail(err, MR_EDEVICE, "ranks: %s: only %d of %d ranks came within %d s", place, served, l->size,
                   PATIENCE);
}

static int open_connection(const struct addrinfo *addresses)
{
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        const int s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (s < 0) continue;
        if (!connect(s, a->ai_addr, a->ai_addrlen)) return limit_wait(s), s;
        close(s);
    }
    return -1;
}

static int fetch(const char *place, const struct addrinfo *addresses, void *data, size_t bytes, mr_error *err)
{
    const time_t began = time(NULL);
    while (time(NULL) - began < PATIENCE) {
        const int s = open_connection(addresses);
        const int got = s >= 0 && move(s, data, bytes, 1);
        if (s >= 0) close(s);
        if (got) return 0;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return mr_fail(err, MR_EDEVICE, "ranks: %s: rank 0 has not answered for %d s", place, PATIENCE);
}

int mr_store_share(const mr_launch *launch, void *data, size_t bytes, mr_error *err)
{
    struct addrinfo *addresses;
    char place[240];
    int status = address_of(&addresses, place, sizeof place, launch->rank == 0, err);
    if (status) return status;
    status = launch->rank == 0 ? serve(launch, place, addresses, data, bytes, err)
                               : fetch(place, addresses, data, bytes, err);
    freeaddrinfo(addresses);
    return status;
}
