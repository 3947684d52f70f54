#include "strikes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void wait_for_next(struct strikes *strikes)
{
    strikes->board->strike_at = strikes->count ? strikes->waiting[0].sample : NEVER;
}

bool strikes_order(struct strikes *strikes, uint64_t sample, const char *id, const char *command)
{
    if (strikes->count == STRIKES || sample <= strikes->board->samples) return false;
    unsigned at = strikes->count++;
    for (; at && strikes->waiting[at - 1].sample > sample; at--)
        strikes->waiting[at] = strikes->waiting[at - 1];
    struct strike *made = &strikes->waiting[at];
    made->sample = sample;
    snprintf(made->id, sizeof made->id, "%s", id);
    snprintf(made->command, sizeof made->command, "%s", command);
    wait_for_next(strikes);
    return true;
}

static void tell(const struct strikes *strikes, const struct strike *done, bool taken)
{
    char json[384], behind[STRIKE_ID + 2] = "null";
    uint64_t sample = strikes->board->samples;
    if (sample > done->sample)
        snprintf(behind, sizeof behind, "\"%s\"", strikes->last);
    snprintf(json, sizeof json,
        "{\"event\":\"struck\",\"cycle\":%" PRIu64 ",\"id\":\"%s\",\"sample\":%" PRIu64
        ",\"behind\":%s,\"taken\":%s}",
        chip_now(&strikes->board->chip), done->id, sample, behind, taken ? "true" : "false");
    strikes->board->event(strikes->board->context, json);
}

void strikes_carry_out(struct strikes *strikes)
{
    const struct board *board = strikes->board;
    bool under_way = board->cut.kind != CUT_NONE || strikes->last_sample == board->samples;
    if (!strikes->count || strikes->waiting[0].sample > board->samples || under_way) return;
    struct strike due = strikes->waiting[0];
    memmove(strikes->waiting, strikes->waiting + 1, --strikes->count * sizeof due);
    wait_for_next(strikes);
    char line[STRIKE_COMMAND];
    snprintf(line, sizeof line, "%s", due.command);
    tell(strikes, &due, true); /* first: what comes of it comes after it */
    if (!strikes->obey(strikes->context, line)) tell(strikes, &due, false);
    snprintf(strikes->last, sizeof strikes->last, "%s", due.id);
    strikes->last_sample = board->samples;
}
