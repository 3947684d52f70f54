/* One simulated board as a process: the board, its port, and how its time relates to ours. */
#ifndef SIM_SIMULATOR_H
#define SIM_SIMULATOR_H

#include <stdio.h>

#include "air.h"
#include "board.h"
#include "control.h"
#include "port.h"
#include "strikes.h"

#define NS_PER_S 1000000000u
#define SLICE_IDLE (CHIP_HZ / 1000 * 4) /* board time between two looks, while no bytes flow */

enum speed { SPEED_REAL, SPEED_MAX, SPEED_STEP };

struct simulator {
    struct board board;
    struct port port;
    struct control control;
    struct strikes strikes;
    struct air air;
    const char *port_link; /* NULL: no port */
    FILE *recording;       /* NULL: not recording */
    enum speed speed;
    /* real speed: board time base_cycle was at monotonic time base_ns */
    uint64_t base_cycle, base_ns;
    long drift; /* millionths by which board time is faster */
    /* cycles by which the board fell behind real time for good: this machine was too busy */
    uint64_t slipped;
    bool quit;
};

/* Note an input with the board time at which it came, so that a replay gives the same bytes. */
void simulator_record(struct simulator *simulator, uint64_t cycle, const char *command);

/* Real time counts from here again. */
void simulator_set_speed(struct simulator *simulator, enum speed speed);

/* Let the board run as far as its speed asks for now. */
void simulator_pass_time(struct simulator *simulator);

#endif
