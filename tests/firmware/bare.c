/*
 * A chip of libsimavr with nothing around it but its UART 0: `bare CHIP HZ FIRMWARE.hex`, for boards that the simulated Uno is not.
 *
 * In, line by line: cycles to run, then bytes for the chip in hexadecimal, or "-". Out, a line for each: the bytes that it has sent, or "-".
 */
#include <avr_uart.h>
#include <sim_avr.h>
#include <sim_core.h>
#include <sim_hex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t sent[4096];
static unsigned sent_count;

static void take_byte(avr_irq_t *irq, uint32_t value, void *context)
{
    (void)irq, (void)context;
    if (sent_count < sizeof sent) sent[sent_count++] = (uint8_t)value;
}

static void do_not_wait(avr_t *avr, avr_cycle_count_t cycles) { (void)avr, (void)cycles; }

static void silent(avr_t *avr, const int level, const char *format, va_list arguments) { (void)avr, (void)level, (void)format, (void)arguments; }

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
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), take_byte, NULL);
    return avr;
}

int main(int argc, char **argv)
{
    unsigned long cycles;
    char hex[2048];
    avr_t *avr = argc == 4 ? start(argv[1], (uint32_t)atol(argv[2]), argv[3]) : NULL;
    if (!avr) return 1;
    avr_irq_t *input = avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_INPUT);
    while (scanf("%lu %2047s", &cycles, hex) == 2) {
        unsigned byte;
        for (const char *at = hex; sscanf(at, "%2x", &byte) == 1; at += 2) avr_raise_irq(input, byte);
        for (avr_cycle_count_t end = avr->cycle + cycles; avr->cycle < end;)
            if (avr_run(avr) == cpu_Crashed) return 2;
        for (unsigned i = 0; i < sent_count; i++) printf("%02x", sent[i]);
        puts(sent_count ? "" : "-");
        fflush(stdout);
        sent_count = 0;
    }
    return 0;
}
