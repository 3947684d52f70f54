#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <termios.h>
#include <unistd.h>

static const struct {
    speed_t code;
    uint32_t baud;
} rates[] = {{B1200, 1200}, {B2400, 2400}, {B4800, 4800}, {B9600, 9600}, {B19200, 19200},
    {B38400, 38400}, {B57600, 57600}, {B115200, 115200}, {B230400, 230400}, {B460800, 460800},
    {B500000, 500000}, {B921600, 921600}, {B1000000, 1000000}};

static bool complain(const char *path)
{
    fprintf(stderr, "simboard: %s: %s\n", path, strerror(errno));
    return false;
}

/* Raw, 115200 baud, hang up on close; and opened once, since only a slave that was closed reads as
 * closed at the master. */
static bool prepare(int master, const char *slave)
{
    struct termios settings;
    int fd = open(slave, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || tcgetattr(fd, &settings) != 0) return complain(slave);
    cfmakeraw(&settings);
    settings.c_cflag |= HUPCL | CLOCAL | CREAD;
    cfsetspeed(&settings, B115200);
    bool set = tcsetattr(fd, TCSANOW, &settings) == 0 && fcntl(master, F_SETFL, O_NONBLOCK) == 0;
    close(fd);
    return set || complain(slave);
}

/* A new link takes the old one's place in one step. */
static bool link_to(const char *slave, const char *link)
{
    char fresh[4096];
    if (snprintf(fresh, sizeof fresh, "%s.new", link) >= (int)sizeof fresh)
        return errno = ENAMETOOLONG, complain(link);
    unlink(fresh);
    if (symlink(slave, fresh) != 0 || rename(fresh, link) != 0) return complain(link);
    return true;
}

static bool watch(struct port *port, const char *slave)
{
    return inotify_add_watch(port->watcher, slave, IN_OPEN | IN_CLOSE) >= 0 || complain(slave);
}

bool port_plug(struct port *port, const char *link)
{
    port->link = link;
    port->open = false;
    port->drops_dtr = true;
    port->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (port->master < 0 || grantpt(port->master) != 0 || unlockpt(port->master) != 0)
        return complain("pseudo-terminal");
    const char *slave = ptsname(port->master);
    port->openers = 0;
    port->watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return prepare(port->master, slave) && watch(port, slave) && link_to(slave, link);
}

void port_unplug(struct port *port)
{
    if (port->master < 0) return;
    unlink(port->link);
    close(port->master);
    close(port->watcher);
    port->master = port->watcher = -1;
    port->open = false;
}

static bool hangs_up_on_close(const struct port *port)
{
    struct termios settings;
    return tcgetattr(port->master, &settings) != 0 || settings.c_cflag & HUPCL;
}

/* Whether the last program has closed the port since the last look, even if another has it open by
 * now. */
static bool was_let_go(struct port *port)
{
    struct inotify_event events[32];
    bool let_go = false;
    for (ssize_t size; (size = read(port->watcher, events, sizeof events)) > 0;)
        for (size_t i = 0; i < (size_t)size / sizeof events[0]; i++) {
            port->openers += events[i].mask & IN_OPEN ? 1 : events[i].mask & IN_CLOSE ? -1 : 0;
            let_go |= port->openers == 0;
        }
    return let_go;
}

bool port_check(struct port *port)
{
    if (port->master < 0) return false;
    bool was_open = port->open;
    if (was_let_go(port)) { /* also if it was opened and closed since the last look */
        port->drops_dtr = hangs_up_on_close(port);
        was_open = false;
    }
    struct pollfd master = {.fd = port->master, .events = 0};
    port->open = poll(&master, 1, 0) >= 0 && !(master.revents & POLLHUP);
    return !was_open && port->open && port->drops_dtr;
}

uint32_t port_baud(const struct port *port)
{
    struct termios settings;
    if (port->master < 0 || tcgetattr(port->master, &settings) != 0) return 0;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].code == cfgetospeed(&settings)) return rates[i].baud;
    return 0;
}

size_t port_read(struct port *port, uint8_t *bytes, size_t room)
{
    if (port->master < 0 || room == 0) return 0;
    ssize_t count = read(port->master, bytes, room);
    return count > 0 ? (size_t)count : 0;
}

size_t port_write(struct port *port, const uint8_t *bytes, size_t count)
{
    ssize_t taken = write(port->master, bytes, count);
    return taken > 0 ? (size_t)taken : 0;
}
