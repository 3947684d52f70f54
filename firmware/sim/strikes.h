/* Commands that wait for a place: the board's Kth conversion on channel 0.
 *
 * In: commands, ordered ahead. Out: each carried out at the end of the instruction that began its
 * conversion, and an event `struck` that says at which one it was. One at a time: what is due while
 * an armed cut has not come yet, or at the same conversion as another, waits for the next one. So a
 * place does not depend on how fast anybody outside of the board is. */
#ifndef SIM_STRIKES_H
#define SIM_STRIKES_H

#include <stdbool.h>
#include <stdint.h>

#include "board.h"

enum { STRIKES = 256, STRIKE_ID = 64, STRIKE_COMMAND = 64 };

struct strike {
    uint64_t sample; /* its place */
    char id[STRIKE_ID], command[STRIKE_COMMAND];
};

struct strikes {
    struct board *board;
    bool (*obey)(void *context, char *command); /* false: refused */
    void *context;
    struct strike waiting[STRIKES]; /* by their places */
    unsigned count;
    char last[STRIKE_ID]; /* the strike that was carried out last, */
    uint64_t last_sample; /* and where */
};

/* Order a strike. False if there is no room, or the board has passed its place. */
bool strikes_order(struct strikes *strikes, uint64_t sample, const char *id, const char *command);

/* Carry out the first strike that is due, if it need not wait. */
void strikes_carry_out(struct strikes *strikes);

#endif
