/*
 * A chip of libsimavr with only its UART 0, for boards other than the simulated Uno.
 *
 *   bare CHIP HZ FIRMWARE.hex [EEPROM.bin]    In: lines with a number of cycles to run, and bytes
 *                                             for the chip in hexadecimal, or "-" for none.
 *                                             Out: for each line, a line with the bytes that the
 *                                             chip has sent, or "-" for none.
 *   bare CHIP HZ LOADER.hex START BAUD LINK   Run in real time from address START on, with the
 *                                             serial port of the simulated Uno at LINK. Opening the
 *                                             port resets the chip.
 */
#include <avr_eeprom.h>
#include <avr_uart.h>
#include <sim_avr.h>
#include <sim_core.h>
#include <sim_hex.h>
#include <sim_regbit.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "port.h"

enum { MOST_BEHIND_MS = 100, LINE_FRAME_BITS = 10 };

static uint8_t sent[4096];
static unsigned sent_count;

static void take_byte(avr_irq_t *irq, uint32_t value, void *context)
{
    (void)irq, (void)context;
    if (sent_count < sizeof sent) sent[sent_count++] = (uint8_t)value;
}

static void do_not_wait(avr_t *avr, avr_cycle_count_t cycles) { (void)avr, (void)cycles; }

static void silent(avr_t *avr, const int level, const char *format, va_list arguments)
{
    (void)avr, (void)level, (void)format, (void)arguments;
}

static avr_t *start(const char *chip, uint32_t hz, const char *path)
{
    ihex_chunk_p chunks = NULL;
    uint32_t flags = 0;
    avr_global_logger_set(silent);
    avr_t *avr = avr_make_mcu_by_name(chip);
    int count = read_ihex_chunks(path, &chunks);
    if (!avr || avr_init(avr) != 0 || count <= 0) return NULL;
    for (int i = 0; i < count; i++) {
        if (chunks[i].baseaddr + chunks[i].size > avr->flashend + 1) return NULL;
        memcpy(avr->flash + chunks[i].baseaddr, chunks[i].data, chunks[i].size);
    }
    free_ihex_chunks(chunks);
    avr->frequency = hz;
    avr->codeend = avr->flashend;
    avr->run = avr_callback_run_raw;
    avr->sleep = do_not_wait;
    avr_ioctl(avr, AVR_IOCTL_UART_GET_FLAGS('0'), &flags);
    flags &= ~(uint32_t)(AVR_UART_FLAG_STDIO | AVR_UART_FLAG_POLL_SLEEP);
    avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
    avr_irq_register_notify(
        avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), take_byte, NULL);
    return avr;
}

/* Write the content of a file to the beginning of the EEPROM. Return whether it is there. */
static bool load_eeprom(avr_t *avr, const char *path)
{
    static uint8_t bytes[4096], there[sizeof bytes];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    avr_eeprom_desc_t what = {.ee = bytes, .size = (uint32_t)fread(bytes, 1, sizeof bytes, file)};
    fclose(file);
    avr_ioctl(avr, AVR_IOCTL_EEPROM_SET, &what); /* its result is no sign of success */
    memcpy(there, bytes, what.size);
    memset(bytes, 0, sizeof bytes);
    avr_ioctl(avr, AVR_IOCTL_EEPROM_GET, &what);
    return memcmp(what.ee, there, what.size) == 0;
}

static void run(avr_t *avr, avr_cycle_count_t cycles)
{
    for (avr_cycle_count_t end = avr->cycle + cycles; avr->cycle < end;)
        if (avr_run(avr) == cpu_Crashed) exit(2);
}

static avr_irq_t *receiver(avr_t *avr)
{
    return avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_INPUT);
}

static void press_reset(avr_t *avr)
{
    avr_reset(avr);
    avr_regbit_set(avr, avr->reset_flags.extrf);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Run the chip in real time. In each millisecond, it receives as many bytes as a line carries. */
static int serve(avr_t *avr, unsigned bytes_per_ms, const char *link)
{
    static struct port port;
    if (!port_plug(&port, link)) return 1;
    press_reset(avr);
    for (uint64_t past = now_ms(), now;; usleep(1000)) {
        if ((now = now_ms()) - past > MOST_BEHIND_MS) past = now - MOST_BEHIND_MS;
        for (; past < now; past++) {
            uint8_t bytes[64];
            if (port_check(&port)) press_reset(avr);
            size_t count = port_read(&port, bytes, bytes_per_ms);
            for (size_t i = 0; i < count; i++) avr_raise_irq(receiver(avr), bytes[i]);
            run(avr, avr->frequency / 1000);
            if (port.open) port_write(&port, sent, sent_count);
            sent_count = 0;
        }
    }
}

int main(int argc, char **argv)
{
    unsigned long cycles;
    char hex[2048];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    bool known = argc == 4 || argc == 5 || argc == 7;
    avr_t *avr = known ? start(argv[1], (uint32_t)atol(argv[2]), argv[3]) : NULL;
    if (!avr || (argc == 5 && !load_eeprom(avr, argv[4]))) return 1;
    if (argc == 7) {
        avr->reset_pc = (uint32_t)strtoul(argv[4], NULL, 0);
        return serve(avr, (unsigned)atoi(argv[5]) / LINE_FRAME_BITS / 1000, argv[6]);
    }
    while (scanf("%lu %2047s", &cycles, hex) == 2) {
        unsigned byte;
        for (const char *at = hex; sscanf(at, "%2x", &byte) == 1; at += 2)
            avr_raise_irq(receiver(avr), byte);
        run(avr, cycles);
        for (unsigned i = 0; i < sent_count; i++) printf("%02x", sent[i]);
        puts(sent_count ? "" : "-");
        fflush(stdout);
        sent_count = 0;
    }
    return 0;
}
