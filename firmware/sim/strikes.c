#include "strikes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "simulator.h"

static void wait_for_next(struct simulator *simulator)
{
    const struct strikes *strikes = &simulator->strikes;
    simulator->board.strike_at = strikes->count ? strikes->waiting[0].sample : NEVER;
}

bool strikes_order(
    struct simulator *simulator, uint64_t sample, const char *id, const char *command)
{
    struct strikes *strikes = &simulator->strikes;
    if (strikes->count == STRIKES || sample <= simulator->board.samples) return false;
    unsigned at = strikes->count++;
    for (; at && strikes->waiting[at - 1].sample > sample; at--)
        strikes->waiting[at] = strikes->waiting[at - 1];
    struct strike *made = &strikes->waiting[at];
    made->sample = sample;
    snprintf(made->id, sizeof made->id, "%s", id);
    snprintf(made->command, sizeof made->command, "%s", command);
    wait_for_next(simulator);
    return true;
}

static void tell(struct simulator *simulator, const struct strike *done, bool taken)
{
    char json[384], behind[STRIKE_ID + 2] = "null";
    uint64_t sample = simulator->board.samples;
    if (sample > done->sample)
        snprintf(behind, sizeof behind, "\"%s\"", simulator->strikes.last);
    snprintf(json, sizeof json,
        "{\"event\":\"struck\",\"cycle\":%" PRIu64 ",\"id\":\"%s\",\"sample\":%" PRIu64
        ",\"behind\":%s,\"taken\":%s}",
        chip_now(&simulator->board.chip), done->id, sample, behind, taken ? "true" : "false");
    simulator->board.event(simulator->board.context, json);
}

void strikes_carry_out(struct simulator *simulator)
{
    struct strikes *strikes = &simulator->strikes;
    const struct board *board = &simulator->board;
    bool under_way = board->cut.kind != CUT_NONE || strikes->last_sample == board->samples;
    if (!strikes->count || strikes->waiting[0].sample > board->samples || under_way) return;
    struct strike due = strikes->waiting[0];
    memmove(strikes->waiting, strikes->waiting + 1, --strikes->count * sizeof due);
    wait_for_next(simulator);
    char line[STRIKE_COMMAND], reply[CONTROL_REPLY];
    bool wants_events;
    snprintf(line, sizeof line, "%s", due.command);
    tell(simulator, &due, true); /* first: what comes of it comes after it */
    if (!command_answer(simulator, line, reply, &wants_events)) tell(simulator, &due, false);
    snprintf(strikes->last, sizeof strikes->last, "%s", due.id);
    strikes->last_sample = board->samples;
}
