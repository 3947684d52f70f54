/*
 * The radio of the host's board: a Unix socket to the ether of the rig (hil/air/server.py has the
 * lines that go over it).
 */
#include "radio.h"

#if OW_LORA

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ow_radio.h"

enum { BANDWIDTH = 125000, CODING = 1, PREAMBLE = 8, LONGEST = 255, LINE = 600 };
enum { HEAD = 8, HEAD_LENGTH = 5, MODEM_NETWORK = 18 };

int radio_fd = -1;
bool radio_is_rylr998;
static struct ow_radio_plan plan;
static char line[LINE];
static size_t line_length;
static bool sent, listening;
static uint8_t heard[LONGEST], heard_length;

static void die(const char *what)
{
    fprintf(stderr, "error: radio: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void tell(const char *text, size_t length)
{
    if (write(radio_fd, text, length) != (ssize_t)length) {
        die("the ether is gone");
    }
}

/* channel in Hz */
static unsigned frequency(void)
{
    return (unsigned)(((uint64_t)plan.channel * 15625u + 128) / 256);
}

void radio_connect(const char *path, const char *name, const char *x, const char *y)
{
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    char first[128];
    radio_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(place.sun_path, sizeof place.sun_path, "%s", path);
    if (radio_fd < 0 || connect(radio_fd, (struct sockaddr *)&place, sizeof place) < 0) {
        die(path);
    }
    tell(first, (size_t)snprintf(first, sizeof first, "radio %s %s %s\n", name, x, y));
}

static void take_line(void)
{
    double rssi, snr;
    int at = 0;
    unsigned byte;
    if (strcmp(line, "sent") == 0) {
        sent = true;
    } else if (sscanf(line, "heard %lf %lf %n", &rssi, &snr, &at) == 2 && at && listening) {
        for (heard_length = 0; heard_length < LONGEST && sscanf(line + at, "%2x", &byte) == 1;
             at += 2) {
            heard[heard_length++] = (uint8_t)byte;
        }
        if (radio_is_rylr998) { /* ignores frames of another kind of radio */
            bool like = heard_length > HEAD && heard[0] == MODEM_NETWORK
                && heard[HEAD_LENGTH] == heard_length - HEAD;
            heard_length = like ? (uint8_t)(heard_length - HEAD) : 0;
            memmove(heard, heard + HEAD, heard_length);
        }
    } else if (strncmp(line, "error", 5) == 0) {
        fprintf(stderr, "%s\n", line);
        exit(1);
    }
}

static void read_lines(void)
{
    char byte;
    ssize_t count;
    while ((count = recv(radio_fd, &byte, 1, MSG_DONTWAIT)) == 1) {
        if (byte == '\n') {
            line[line_length] = '\0';
            line_length = 0;
            take_line();
        } else if (line_length < sizeof line - 1) {
            line[line_length++] = byte;
        }
    }
    if (count == 0) { /* the run is over */
        exit(0);
    }
}

bool ow_radio_begin(const struct ow_radio_plan *wanted)
{
    plan = *wanted;
    return radio_fd >= 0;
}

void ow_radio_send(const uint8_t *frame, uint8_t length)
{
    char text[128 + 2 * LONGEST];
    int at = sprintf(text, "send %u %d %d %d %d %d ", frequency(), BANDWIDTH, plan.factor, CODING,
        PREAMBLE, plan.power);
    if (radio_is_rylr998) { /* broadcast, from board number `frame[1]`: see hil/air/rylr998.py */
        at += sprintf(text + at, "%02x000000%02x%02x0000", MODEM_NETWORK, frame[1], length);
    }
    for (uint8_t i = 0; i < length; i++) {
        at += sprintf(text + at, "%02x", frame[i]);
    }
    text[at++] = '\n';
    sent = listening = false;
    tell(text, (size_t)at);
}

bool ow_radio_sent(void)
{
    read_lines();
    return sent;
}

void ow_radio_listen(void)
{
    char text[64];
    heard_length = 0;
    listening = true;
    tell(text, (size_t)sprintf(text, "listen %u %d %d\n", frequency(), BANDWIDTH, plan.factor));
}

uint8_t ow_radio_receive(uint8_t *frame, uint8_t size)
{
    read_lines();
    uint8_t length = heard_length <= size ? heard_length : 0;
    memcpy(frame, heard, length);
    heard_length = 0;
    return length;
}

void ow_radio_sleep(void)
{
    if (listening) {
        listening = false;
        tell("sleep\n", 6);
    }
}

#endif
