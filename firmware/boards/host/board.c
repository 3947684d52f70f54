/*
 * A board as a process, for tests: UART on a file descriptor or a tty, EEPROM and identity page in
 * files.
 *
 *     sensor --eeprom FILE [--identity FILE] [--uart FD|PATH] [--seed N]
 *            [--radio SOCKET --name NAME --x METRES --y METRES [--modem rylr998]]   (with OW_LORA)
 *
 * UART: standard input and output unless given. EEPROM: made with 0xFF when missing; each byte is
 * written at once, so killing the process is cutting its power. ADC: a noise sequence from the
 * seed. A missing or damaged identity file is an unprovisioned board. The process ends at the end
 * of the UART's input; a pseudo-terminal that no program has open is a cable with nothing at its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "ow_hal.h"
#include "ow_sketch.h"
#include "radio.h"

static int uart_in = STDIN_FILENO;
static int uart_out = STDOUT_FILENO;
static int eeprom_fd = -1;
static uint8_t eeprom[OW_EEPROM_SIZE];
static uint8_t identity[OW_IDENTITY_SIZE];
static uint32_t noise = 1;
static uint8_t rx[4096];
static size_t rx_at, rx_end;
static uint8_t tx[4096];
static size_t tx_at, tx_end;
static char **arguments;

static void fail(const char *what, const char *where)
{
    fprintf(stderr, "error: %s: %s: %s\n", where, what, strerror(errno));
    exit(1);
}

uint16_t ow_hal_millis(void)
{
    static struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (start.tv_sec == 0) {
        start = now;
    }
    return (uint16_t)((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000);
}

#if OW_DEBUG

bool ow_hal_may_call(void)
{
    return gettid() == getpid();
}

void ow_hal_wrong_call(void)
{
    fprintf(stderr, "error: the library was called from another thread\n");
    abort();
}

#endif

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return OW_RESET_POWER_ON;
}

void ow_hal_reboot(void)
{
    execv("/proc/self/exe", arguments);
    fail("cannot start again", arguments[0]);
}

uint32_t ow_hal_entropy(void)
{
    uint32_t entropy;
    if (getrandom(&entropy, sizeof entropy, 0) != sizeof entropy) {
        fail("no random numbers", "kernel");
    }
    return entropy;
}

static void flush(void)
{
    while (tx_at < tx_end) {
        ssize_t count = write(uart_out, tx + tx_at, tx_end - tx_at);
        if (count < 0 && errno == EIO) {
            break;
        }
        if (count < 0) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }
            exit(0);
        }
        tx_at += (size_t)count;
    }
    tx_at = tx_end = 0;
}

int16_t ow_hal_uart_read(void)
{
    if (rx_at == rx_end) {
        ssize_t count = read(uart_in, rx, sizeof rx);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR && errno != EIO)) {
            exit(0);
        }
        rx_at = 0;
        rx_end = count > 0 ? (size_t)count : 0;
    }
    return rx_at < rx_end ? rx[rx_at++] : -1;
}

bool ow_hal_uart_writable(void)
{
    if (tx_end == sizeof tx) {
        flush();
    }
    return tx_end < sizeof tx;
}

void ow_hal_uart_write(uint8_t byte)
{
    tx[tx_end++] = byte;
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    return eeprom[address];
}

bool ow_hal_eeprom_busy(void)
{
    return false;
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    eeprom[address] = value;
    if (pwrite(eeprom_fd, &value, 1, address) != 1) {
        fail("cannot write", "EEPROM file");
    }
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
    memcpy(bytes, identity, length);
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    noise = noise * 1664525u + 1013904223u + channel;
    return noise >> 22;
}

void ow_hal_watch(void)
{
}

void ow_hal_led(bool on)
{
    (void)on;
}

void ow_hal_idle(void)
{
#if OW_LORA
    poll(&(struct pollfd){.fd = radio_fd, .events = POLLIN}, 1, 1);
#else
    struct pollfd wait = {.fd = uart_in, .events = POLLIN};
    flush();
    if (rx_at == rx_end && poll(&wait, 1, 1) > 0 && wait.revents & POLLHUP) {
        /* no program has the terminal open: poll does not wait */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
#endif
}

static void open_eeprom(const char *path)
{
    eeprom_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (eeprom_fd < 0) {
        fail("cannot open", path);
    }
    memset(eeprom, 0xFF, sizeof eeprom);
    ssize_t count = pread(eeprom_fd, eeprom, sizeof eeprom, 0);
    if (count < (ssize_t)sizeof eeprom &&
        pwrite(eeprom_fd, eeprom, sizeof eeprom, 0) != (ssize_t)sizeof eeprom) {
        fail("cannot write", path);
    }
}

static void open_identity(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, identity, sizeof identity) < 0) {
        fail("cannot read", path);
    }
    close(fd);
}

static void open_uart(const char *where)
{
    char *end;
    long number = strtol(where, &end, 10);
    uart_in = *end ? open(where, O_RDWR | O_NOCTTY) : (int)number;
    uart_out = uart_in;
    if (uart_in < 0) {
        fail("cannot open", where);
    }
}

#if OW_LORA

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    fprintf(stderr, "usage: %s ... --radio SOCKET --name NAME --x METRES --y METRES\n", argv[0]);
    exit(2);
}

#endif

static void prepare_uart(void)
{
    struct termios mode;
    if (tcgetattr(uart_in, &mode) == 0) {
        cfmakeraw(&mode);
        tcsetattr(uart_in, TCSANOW, &mode);
    }
    fcntl(uart_in, F_SETFL, fcntl(uart_in, F_GETFL) | O_NONBLOCK);
    fcntl(uart_out, F_SETFL, fcntl(uart_out, F_GETFL) | O_NONBLOCK);
}

int main(int argc, char **argv)
{
    arguments = argv;
    memset(identity, 0xFF, sizeof identity);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--eeprom") == 0) {
            open_eeprom(argv[i + 1]);
        } else if (strcmp(argv[i], "--identity") == 0) {
            open_identity(argv[i + 1]);
        } else if (strcmp(argv[i], "--uart") == 0) {
            open_uart(argv[i + 1]);
        } else if (strcmp(argv[i], "--seed") == 0) {
            noise = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        }
    }
    if (eeprom_fd < 0 || argc % 2 == 0) {
        fprintf(stderr, "usage: %s --eeprom FILE [--identity FILE] [--uart FD|PATH] [--seed N]\n",
            argv[0]);
        return 2;
    }
    prepare_uart();
#if OW_LORA
    radio_connect(option(argc, argv, "--radio"), option(argc, argv, "--name"),
        option(argc, argv, "--x"), option(argc, argv, "--y"));
    for (int i = 1; i + 1 < argc; i += 2) {
        radio_is_rylr998 |= strcmp(argv[i], "--modem") == 0 && strcmp(argv[i + 1], "rylr998") == 0;
    }
#endif
    setup();
    for (;;) {
        loop();
    }
}
