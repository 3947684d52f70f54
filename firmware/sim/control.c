#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool complain(const char *path, const char *what)
{
    fprintf(stderr, "simboard: %s: %s\n", path, what);
    return false;
}

static bool somebody_answers(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    if (fd >= 0) close(fd);
    return answers;
}

bool control_open(struct control *control, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    control->path = path;
    for (int i = 0; i < CONTROL_CLIENTS; i++) control->clients[i].fd = -1;
    if (strlen(path) >= sizeof address.sun_path)
        return complain(path, "is too long for a socket name; choose a shorter folder");
    strcpy(address.sun_path, path);
    if (somebody_answers(&address))
        return complain(
            path, "another simulated board answers there; stop it or choose another name");
    unlink(path);
    control->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listener < 0 ||
        bind(control->listener, (struct sockaddr *)&address, sizeof address) != 0)
        return complain(path, strerror(errno));
    return true;
}

bool control_listen(struct control *control)
{
    return listen(control->listener, CONTROL_CLIENTS) == 0 ||
           complain(control->path, strerror(errno));
}

static void drop(struct control_client *client)
{
    close(client->fd);
    client->fd = -1;
}

void control_close(struct control *control)
{
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        if (control->clients[i].fd >= 0) drop(&control->clients[i]);
    close(control->listener);
    unlink(control->path);
}

unsigned control_poll_set(const struct control *control, struct pollfd *set)
{
    unsigned count = 0;
    set[count++] = (struct pollfd){.fd = control->listener, .events = POLLIN};
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        const struct control_client *client = &control->clients[i];
        if (client->fd >= 0)
            set[count++] = (struct pollfd){
                .fd = client->fd, .events = client->out_count ? POLLIN | POLLOUT : POLLIN};
    }
    return count;
}

static void flush(struct control_client *client)
{
    ssize_t sent = send(client->fd, client->out, client->out_count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) drop(client);
    if (sent <= 0) return;
    client->out_count -= (size_t)sent;
    memmove(client->out, client->out + sent, client->out_count);
}

static void put_line(struct control_client *client, const char *text)
{
    size_t length = strlen(text);
    if (length + 1 > CONTROL_OUT - client->out_count) {
        drop(client);
        return;
    }
    memcpy(client->out + client->out_count, text, length);
    client->out[client->out_count + length] = '\n';
    client->out_count += length + 1;
    flush(client);
}

static void answer_lines(struct control *control, struct control_client *client)
{
    char *end, reply[CONTROL_REPLY];
    while (client->fd >= 0 && (end = memchr(client->in, '\n', client->in_count))) {
        char line[CONTROL_LINE];
        size_t length = (size_t)(end - client->in);
        memcpy(line, client->in, length);
        line[length] = '\0';
        client->in_count -= length + 1;
        memmove(client->in, end + 1, client->in_count);
        control->answer(control->context, line, reply, &client->wants_events);
        put_line(client, reply);
    }
    if (client->fd >= 0 && client->in_count == CONTROL_LINE) drop(client); /* a line too long */
}

static void receive(struct control *control, struct control_client *client)
{
    ssize_t count = recv(
        client->fd, client->in + client->in_count, CONTROL_LINE - client->in_count, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) {
        drop(client);
        return;
    }
    if (count < 0) return;
    client->in_count += (size_t)count;
    answer_lines(control, client);
}

static void take(struct control *control, int fd)
{
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        struct control_client *client = &control->clients[i];
        if (client->fd >= 0) continue;
        client->fd = fd;
        client->in_count = client->out_count = 0;
        client->wants_events = false;
        return;
    }
    close(fd);
}

void control_serve(struct control *control)
{
    int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) take(control, fd);
    for (int i = 0; i < CONTROL_CLIENTS; i++) {
        struct control_client *client = &control->clients[i];
        if (client->fd >= 0 && client->out_count) flush(client);
        if (client->fd >= 0) receive(control, client);
    }
}

void control_event(struct control *control, const char *json)
{
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        if (control->clients[i].fd >= 0 && control->clients[i].wants_events)
            put_line(&control->clients[i], json);
}
