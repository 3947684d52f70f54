/* The control socket: a Unix stream socket; one command per line in, one JSON object per line out.
 *
 * In: connections and their lines. Out: a call of `answer` per line, and events to the connections
 * that asked for them. */
#ifndef SIM_CONTROL_H
#define SIM_CONTROL_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum { CONTROL_CLIENTS = 8, CONTROL_LINE = 2304, CONTROL_REPLY = 16384, CONTROL_OUT = 65536 };

struct control_client {
    int fd; /* -1: free */
    bool wants_events;
    size_t in_count, out_count;
    char in[CONTROL_LINE], out[CONTROL_OUT];
};

struct control {
    int listener;
    const char *path;
    /* Answer one line into `reply` (CONTROL_REPLY bytes, without a line end). Sets *wants_events to
     * make the connection a stream. */
    void (*answer)(void *context, char *line, char *reply, bool *wants_events);
    void *context;
    struct control_client clients[CONTROL_CLIENTS];
};

/* Take the name; false after a message on standard error. A socket that a dead process has left is
 * replaced, a live socket is not. */
bool control_open(struct control *control, const char *path);
/* Accept connections from now on, since the board is complete. */
bool control_listen(struct control *control);
void control_close(struct control *control);

/* Fill in what to poll for; returns the number of entries, at most 1 + CONTROL_CLIENTS. */
unsigned control_poll_set(const struct control *control, struct pollfd *set);
/* Serve whatever is ready; never blocks. */
void control_serve(struct control *control);
/* Send an event to connections that listen; one that does not read is dropped. */
void control_event(struct control *control, const char *json);

#endif
