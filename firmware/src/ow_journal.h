/*
 * State that survives a power cut, in EEPROM (map in firmware/JOURNAL.md): publications that are not
 * done, the identity counters, and the packet identifier of a message that the gateway may resend.
 *
 * A publication goes in as a source of 8 bytes and gets a sequence; it comes out, oldest first,
 * until it is done. No call waits for the EEPROM: a call that writes starts a job, ow_journal_poll
 * drives it byte by byte with read-back, and one job runs at a time. The effect of a job becomes
 * visible only when the job has ended, so nothing is sent that a power cut could undo.
 */
#ifndef OW_JOURNAL_H
#define OW_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_config.h"

#define OW_JOURNAL_SOURCE 8
/* EEPROM address of the bytes that belong to the application */
#define OW_JOURNAL_APPLICATION 0x020
#define OW_JOURNAL_APPLICATION_SIZE 16
#define OW_JOURNAL_SLOT_SIZE 16
#define OW_JOURNAL_WINDOW 60 /* the gateway's anti-replay window in sequences, less some in flight */

struct ow_journal {
    uint32_t next;        /* sequence of the next publication */
    uint32_t incarnation; /* 0: none yet */
    uint16_t boot;        /* number of this start */
    bool confirmed;       /* the gateway has begun a session for this incarnation */
    uint16_t held;        /* the gateway's packet identifier between PUBLISH and PUBREL, 0: none */
    uint8_t held_count;   /* writes of `held` so far */
    ow_slot head;         /* slot that the next publication takes */
    /* no slot before it, seen from `head`, holds a publication that is not done */
    ow_slot tail;
    ow_slot pending;      /* publications not done */
    uint8_t released;     /* of them, released */
    uint8_t asked;        /* see ow_journal_ask: address of the mark, 0: none */
    /* slots and cells that failed their read-back since the start; 255: or more */
    uint8_t worn;
#if OW_JOURNAL_MEMORY
    bool missing;         /* the memory on the bus does not answer: no publication is accepted */
    uint16_t newest_done; /* low bits of the highest sequence that is done */
    /* where the check of slots goes on, and the identifier that it awaits next; 0: at the head */
    ow_slot checked;
    uint16_t awaited;
#endif

    uint8_t job;
    bool tried; /* the byte at `left - 1` was written once */
    uint8_t left;
    uint16_t address;
    uint8_t record[OW_JOURNAL_SLOT_SIZE];
};

struct ow_entry;

/* Reads the EEPROM and starts the job that writes this start's boot number; nothing may be sent
 * before that job has ended. */
void ow_journal_open(struct ow_journal *journal);

void ow_journal_poll(struct ow_journal *journal);

/* No job runs. The calls below are for an idle journal only. */
bool ow_journal_idle(const struct ow_journal *journal);

/* False: a job runs, every slot holds a publication that is not done, or `next` has reached
 * 0xFF000000, which a start would take for a slot that was never written. Once the job has ended,
 * `next` has moved on if the publication was accepted. */
bool ow_journal_append(struct ow_journal *journal, const uint8_t *source);

/* Right after ow_journal_append: the appended publication is of that kind. */
enum ow_kind { OW_KIND_PROGRAM, OW_KIND_ANSWER = 0xF0, OW_KIND_LOST = 0xFF };
void ow_journal_mark_answer(struct ow_journal *journal);

/* Remaining publications until the cells reach the maker's limit of writes. A
 * slot's cells are written once for each publication in it, and the slots are used in turn. */
uint32_t ow_journal_left(const struct ow_journal *journal);

/* `next` moves on for a publication that no slot holds. */
void ow_journal_skip(struct ow_journal *journal);

/* The oldest publication that is not done, from `slot` on; start with `tail`. False: there is
 * none. */
bool ow_journal_find(struct ow_journal *journal, ow_slot slot, struct ow_entry *entry);
ow_slot ow_journal_following(ow_slot slot);

/* The memory on the bus does not answer: no publication is accepted. */
static inline bool ow_journal_missing(const struct ow_journal *journal)
{
#if OW_JOURNAL_MEMORY
    return journal->missing;
#else
    (void)journal;
    return false;
#endif
}

/* Whether a publication is so far behind the newest one that is done that the gateway would take it
 * for a duplicate. Only a refused one can be. */
static inline bool ow_journal_too_old(const struct ow_journal *journal, uint16_t id)
{
#if OW_JOURNAL_MEMORY
    return (int16_t)(journal->newest_done - id) >= OW_JOURNAL_WINDOW;
#else
    (void)journal, (void)id;
    return false;
#endif
}

/* Marks of one publication; id: the low 16 bits of its sequence. */
void ow_journal_released(struct ow_journal *journal, ow_slot slot, uint16_t id);
void ow_journal_not_released(struct ow_journal *journal, ow_slot slot, uint16_t id);
void ow_journal_done(struct ow_journal *journal, ow_slot slot, uint16_t id);

void ow_journal_hold(struct ow_journal *journal, uint16_t id);

/* A mark for the time between CONNECT and the handling of its answer, while publications are
 * released. If it is set at the next start, the gateway may have begun a new session and the released
 * marks may be out of date. */
void ow_journal_ask(struct ow_journal *journal, bool asked);

void ow_journal_adopt(struct ow_journal *journal, uint32_t incarnation);
void ow_journal_confirm(struct ow_journal *journal);

#endif
