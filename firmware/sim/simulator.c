#include "simulator.h"

#include <inttypes.h>
#include <time.h>

#define SLICE_MAX (CHIP_HZ / 200)  /* at --speed max: between two looks at port and socket */
#define MOST_BEHIND (CHIP_HZ / 4)  /* further behind real time than this, the board slips */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void simulator_record(struct simulator *simulator, uint64_t cycle, const char *command)
{
    if (!simulator->recording) return;
    fprintf(simulator->recording, "%" PRIu64 " %s\n", cycle, command);
    fflush(simulator->recording);
}

void simulator_set_speed(struct simulator *simulator, enum speed speed)
{
    simulator->speed = speed;
    simulator->base_cycle = chip_now(&simulator->board.chip);
    simulator->base_ns = now_ns();
}

static uint64_t cycle_of(const struct simulator *simulator, uint64_t ns)
{
    uint64_t cycles = (ns - simulator->base_ns) * (CHIP_HZ / 1000000) / 1000;
    return simulator->base_cycle + cycles + (uint64_t)((int64_t)cycles * simulator->drift / 1000000);
}

static void follow_real_time(struct simulator *simulator)
{
    uint64_t target = cycle_of(simulator, now_ns()), now = chip_now(&simulator->board.chip);
    if (target <= now) return;
    if (target - now > MOST_BEHIND) {
        simulator->slipped += target - now - SLICE_IDLE;
        target = now + SLICE_IDLE;
        simulator->base_cycle = target;
        simulator->base_ns = now_ns();
    }
    board_run(&simulator->board, target);
}

void simulator_pass_time(struct simulator *simulator)
{
    if (simulator->speed == SPEED_REAL) follow_real_time(simulator);
    if (simulator->speed == SPEED_MAX)
        board_run(&simulator->board, chip_now(&simulator->board.chip) + SLICE_MAX);
}
