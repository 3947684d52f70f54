#include "air.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void leave(struct air *air, const char *why)
{
    fprintf(stderr, "simboard: the ether: %s\n", why);
    close(air->fd);
    air->fd = -1;
}

static void tell(struct air *air, const char *line)
{
    size_t length = strlen(line);
    if (air->fd >= 0 && send(air->fd, line, length, MSG_NOSIGNAL) != (ssize_t)length)
        leave(air, strerror(errno));
}

bool air_open(struct air *air, const char *path, const char *name, const char *place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    double x, y;
    char line[AIR_LINE];
    memset(air, 0, sizeof *air);
    if (sscanf(place, "%lf,%lf", &x, &y) != 2 || strpbrk(name, " \n") || strlen(name) > 64) {
        fprintf(stderr, "simboard: a radio named %s at %s: want a word, and X,Y\n", name, place);
        return false;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    air->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (air->fd < 0 || connect(air->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        fprintf(stderr, "simboard: %s: %s\n", path, strerror(errno));
        return false;
    }
    snprintf(line, sizeof line, "radio %s %g %g\n", name, x, y);
    tell(air, line);
    return air->fd >= 0;
}

void air_transmit(
    struct air *air, const struct sx1276_way *way, const uint8_t *frame, unsigned length)
{
    char line[AIR_LINE];
    if (!way->usual) return; /* no radio in this ether would hear it */
    int at = snprintf(line, sizeof line, "send %" PRIu32 " %" PRIu32 " %u %u %u %d ",
        way->frequency, way->bandwidth, way->factor, way->coding, way->preamble, way->power);
    for (unsigned i = 0; i < length; i++) at += sprintf(line + at, "%02x", frame[i]);
    strcpy(line + at, "\n");
    air->sending = true;
    air->after[0] = '\0';
    tell(air, line);
}

void air_listen(struct air *air, const struct sx1276_way *way)
{
    char line[AIR_LINE] = "off\n";
    if (way)
        snprintf(line, sizeof line, "listen %" PRIu32 " %" PRIu32 " %u\n", way->frequency,
            way->bandwidth, way->factor);
    if (way && air->sending) {
        strcpy(air->after, line);
        return;
    }
    air->sending = false;
    tell(air, line);
}

static void take(struct air *air, char *line)
{
    if (!strcmp(line, "sent")) {
        if (air->sending) tell(air, air->after);
        air->sending = false;
    } else if (!strncmp(line, "heard ", 6))
        air->heard(air->context, line);
    else
        leave(air, line);
}

void air_serve(struct air *air)
{
    char byte;
    ssize_t count = 0;
    while (air->fd >= 0 && (count = recv(air->fd, &byte, 1, MSG_DONTWAIT)) == 1) {
        if (byte != '\n') {
            if (air->count < sizeof air->in - 1) air->in[air->count++] = byte;
            continue;
        }
        air->in[air->count] = '\0';
        air->count = 0;
        take(air, air->in);
    }
    if (air->fd >= 0 && count == 0) leave(air, "it has ended");
}
