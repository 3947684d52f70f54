#include "chip.h"

#include <stdlib.h>
#include <string.h>

#include <avr_extint.h>
#include <avr_ioport.h>
#include <sim_core.h>
#include <sim_cycle_timers.h>

enum { EXTERNAL_INTERRUPTS = 2, SMCR_SE = 1, SLEEP_POWER_DOWN = 2, SLEEP_STANDBY = 6 };
/* cycles until code runs again after deep sleep (data sheet, table of start-up times) */
enum { CRYSTAL_START = 16384, STANDBY_START = 6 };

static void silent(avr_t *avr, const int level, const char *format, va_list arguments)
{
    (void)avr, (void)level, (void)format, (void)arguments;
}

static void do_nothing(void *context) { (void)context; }

/* libsimavr notices an access beyond the RAM, and makes it all the same: a program whose stack has
 * left the RAM would write into the memory of this process. Give it all that 16 bits can address. */
static bool widen_data(avr_t *avr)
{
    uint8_t *wide = calloc(CHIP_ADDRESSES, 1);
    if (!wide) return false;
    memcpy(wide, avr->data, avr->ramend + 1u);
    free(avr->data);
    avr->data = wide;
    return true;
}

bool chip_init(struct chip *chip, uint8_t *flash, uint64_t seed)
{
    avr_global_logger_set(silent);
    memset(chip, 0, sizeof *chip);
    chip->avr = avr_make_mcu_by_name("atmega328p");
    if (!chip->avr || avr_init(chip->avr) != 0) return false;
    for (int i = 0; i < ALARM_COUNT; i++) chip_alarm_handler(chip, (enum alarm)i, do_nothing, NULL);
    if (!widen_data(chip->avr)) return false;
    free(chip->avr->flash);
    /* the caller's mapping of the image file: every write goes straight to it */
    chip->avr->flash = flash;
    chip->avr->frequency = CHIP_HZ;
    chip->avr->vcc = chip->avr->avcc = chip->avr->aref = 5000;
    chip->noise = seed;
    return true;
}

uint64_t chip_now(const struct chip *chip) { return chip->avr->cycle + chip->stopped; }

static int sleep_mode(const struct chip *chip) { return chip_get(chip, REG_SMCR) >> 1 & 7; }

bool chip_io_clock_runs(const struct chip *chip)
{
    return chip->powered &&
           !(chip->avr->state == cpu_Sleeping && sleep_mode(chip) >= SLEEP_POWER_DOWN);
}

static enum alarm next_alarm(const struct chip *chip)
{
    enum alarm next = ALARM_STOP;
    for (int i = 1; i < ALARM_COUNT; i++)
        if (chip->alarms[i].due < chip->alarms[next].due) next = (enum alarm)i;
    return next;
}

/* Ring what is due, in order of time. A handler may set alarms, also its own. */
static void ring_alarms(struct chip *chip)
{
    for (enum alarm next = next_alarm(chip); chip->alarms[next].due <= chip_now(chip);
        next = next_alarm(chip)) {
        chip->alarms[next].due = NEVER;
        chip->alarms[next].ring(chip->alarms[next].context);
    }
}

static avr_cycle_count_t on_cycle_timer(avr_t *avr, avr_cycle_count_t when, void *context);

/* One cycle timer of libsimavr stands for the earliest alarm. */
static void arm_cycle_timer(struct chip *chip)
{
    uint64_t due = chip->alarms[next_alarm(chip)].due, now = chip_now(chip);
    if (due == NEVER)
        avr_cycle_timer_cancel(chip->avr, on_cycle_timer, chip);
    else
        avr_cycle_timer_register(chip->avr, due > now ? due - now : 0, on_cycle_timer, chip);
}

static avr_cycle_count_t on_cycle_timer(avr_t *avr, avr_cycle_count_t when, void *context)
{
    (void)avr, (void)when;
    ring_alarms(context);
    arm_cycle_timer(context);
    return 0;
}

/* libsimavr takes those of a port at once. */
static void set_external(struct chip *chip)
{
    avr_ioport_external_t all = {
        .name = 'D', .mask = chip->pull_ups, .value = chip->pull_ups & (uint8_t)~chip->grounded};
    avr_ioctl(chip->avr, AVR_IOCTL_IOPORT_SET_EXTERNAL('D'), &all);
}

avr_irq_t *chip_pull_up(struct chip *chip, unsigned pin)
{
    chip->pull_ups |= (uint8_t)(1 << pin);
    set_external(chip);
    return avr_io_getirq(chip->avr, AVR_IOCTL_IOPORT_GETIRQ('D'), (int)pin);
}

void chip_ground(struct chip *chip, unsigned pin, bool grounded)
{
    uint8_t mask = (uint8_t)(1 << pin);
    chip->grounded = (uint8_t)(grounded ? chip->grounded | mask : chip->grounded & ~mask);
    set_external(chip);
}

void chip_alarm_handler(struct chip *chip, enum alarm alarm, alarm_handler ring, void *context)
{
    chip->alarms[alarm].due = NEVER;
    chip->alarms[alarm].ring = ring;
    chip->alarms[alarm].context = context;
}

void chip_alarm(struct chip *chip, enum alarm alarm, uint64_t due)
{
    chip->alarms[alarm].due = due;
    arm_cycle_timer(chip);
}

/* Pass time with the CPU clock stopped, up to the next alarm. */
static void stand_still(struct chip *chip, uint64_t until)
{
    uint64_t due = chip->alarms[next_alarm(chip)].due, target = due < until ? due : until,
             now = chip_now(chip);
    if (target > now) chip->stopped += target - now;
    ring_alarms(chip);
    arm_cycle_timer(chip);
}

void chip_wait(struct chip *chip, uint64_t cycles)
{
    for (uint64_t until = chip_now(chip) + cycles; chip_now(chip) < until && !chip->attention;)
        stand_still(chip, until);
}

static void sleep_deep(struct chip *chip, uint64_t until, int mode)
{
    stand_still(chip, until);
    if (chip->avr->state != cpu_Running) return;
    if (avr_is_interrupt_pending(chip->avr, chip_vector(chip, VECTOR_WATCHDOG)))
        chip_wait(chip, mode == SLEEP_STANDBY ? STANDBY_START : CRYSTAL_START);
    else
        /* of the sources simulated here only the watchdog wakes from deep sleep */
        chip->avr->state = cpu_Sleeping;
}

static void sleep_on(struct chip *chip, uint64_t until, avr_cycle_count_t next_timer)
{
    int mode = sleep_mode(chip);
    if (!(chip_get(chip, REG_SMCR) & SMCR_SE))
        chip->avr->state = cpu_Running; /* SLEEP does nothing unless enabled */
    else if (mode >= SLEEP_POWER_DOWN)
        sleep_deep(chip, until, mode);
    else {
        uint64_t left = until - chip_now(chip);
        chip->avr->cycle += next_timer < left ? next_timer : left;
    }
}

static void step(struct chip *chip, uint64_t until)
{
    avr_t *avr = chip->avr;
    bool slept = avr->state == cpu_Sleeping;
    avr_flashaddr_t pc = avr->pc;
    if (avr->state == cpu_Running) pc = avr_run_one(avr);
    avr_cycle_count_t next_timer = avr_cycle_timer_process(avr);
    avr->pc = pc;
    if (chip->attention) return;
    /* an interrupt wakes only when enabled */
    if (slept && avr->state == cpu_Running && !avr->sreg[S_I]) avr->state = cpu_Sleeping;
    if (avr->state == cpu_Sleeping && chip_now(chip) < until) sleep_on(chip, until, next_timer);
    if (avr->state == cpu_Running && avr->interrupt_state && !chip->attention)
        avr_service_interrupts(avr);
}

void chip_run(struct chip *chip, uint64_t until)
{
    chip_alarm(chip, ALARM_STOP, until); /* makes libsimavr return in time */
    while (chip_now(chip) < until && !chip->attention) {
        if (chip->powered && (chip->avr->state == cpu_Running || chip->avr->state == cpu_Sleeping))
            step(chip, until);
        else
            stand_still(chip, until);
    }
}

void chip_reset(struct chip *chip)
{
    avr_reset(chip->avr);
    /* else it looks at each cycle whether a pin that went low is low still */
    for (uint8_t i = 0; i < EXTERNAL_INTERRUPTS; i++)
        avr_extint_set_strict_lvl_trig(chip->avr, i, 0);
    chip->avr->run_cycle_limit = CHIP_HZ; /* run freely up to the next timer */
    arm_cycle_timer(chip);
}

void chip_scramble_ram(struct chip *chip)
{
    for (int i = 0; i <= chip->avr->ramend; i++)
        if (i < 0x20 || i > chip->avr->ioend) chip->avr->data[i] = (uint8_t)chip_noise(chip);
}

void chip_halt_cpu(struct chip *chip, uint64_t cycles)
{
    chip->avr->cycle += cycles;
    arm_cycle_timer(chip); /* libsimavr has counted the cycles up to its next timer before */
}

void chip_take_register(
    struct chip *chip, uint16_t address, avr_io_read_t read, avr_io_write_t write, void *context)
{
    int io = AVR_DATA_TO_IO(address);
    chip->avr->io[io].r.c = read;
    chip->avr->io[io].r.param = context;
    chip->avr->io[io].w.c = write;
    chip->avr->io[io].w.param = context;
}

avr_int_vector_t *chip_vector(struct chip *chip, int number)
{
    for (int i = 0; i < chip->avr->interrupts.vector_count; i++)
        if (chip->avr->interrupts.vector[i]->vector == number)
            return chip->avr->interrupts.vector[i];
    abort();
}

static bool queued(const avr_int_pending_t *queue, const avr_int_vector_t *vector)
{
    for (unsigned i = queue->read; i != queue->write; i = (i + 1) % avr_int_pending_fifo_size)
        if (queue->buffer[i] == vector) return true;
    return false;
}

void chip_interrupt_level(struct chip *chip, avr_int_vector_t *vector, bool on)
{
    if (on && queued(&chip->avr->interrupts.pending, vector))
        /* libsimavr would queue it twice, and its queue is short */
        vector->pending = avr_regbit_get(chip->avr, vector->enable);
    else if (on)
        avr_raise_interrupt(chip->avr, vector);
    else
        avr_clear_interrupt(chip->avr, vector);
}

/* SplitMix64: small, and good enough for noise. */
uint64_t chip_noise(struct chip *chip)
{
    uint64_t z = chip->noise += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint8_t chip_some_bits(struct chip *chip, uint64_t part, uint64_t whole)
{
    uint8_t bits = 0;
    for (int i = 0; i < 8; i++)
        if (chip_noise(chip) % whole < part) bits |= (uint8_t)(1u << i);
    return bits;
}
