#include "ow_journal.h"

#include <string.h>

#include "ow_bytes.h"
#include "Onceway.h"
#include "ow_crc.h"
#include "ow_hal.h"
#include "ow_memory.h"

enum {
    INCARNATION_A = 0x000,
    ASKED_CELLS = 0x006, /* two here, and two 8 bytes further on */
    INCARNATION_B = 0x008,
    BOOT_CELLS = 0x010,
    HELD_A = 0x030,
    HELD_B = 0x038,
    SLOTS = 0x040
};
enum { CELL_SIZE = 4, CELLS = 4, INCARNATION_SIZE = 6, HELD_SIZE = 5 };
enum { SEQUENCE_AT = 0, SOURCE_AT = 4, CRC_AT = 12, RELEASED_AT = 14, DONE_AT = 15 };
enum { RELEASED_MASK = 0x55, DONE_MASK = 0xAA, ASKED = 0x5A, ERASED = 0xFF };
#if OW_JOURNAL_MEMORY
/* publications in a slot until the memory is worn out: an EEPROM takes 1,000,000 writes of a page
 * (24LC256 data sheet, endurance), of four slots, and each publication writes 18 bytes one by one.
 * A FRAM outlives that by far. */
#define CELL_LIFE (1000000ul / 4 / 18)
#else
#define CELL_LIFE 100000ul /* writes of an EEPROM cell (ATmega328P data sheet, features) */
#endif
enum { JOB_NONE, JOB_BOOT, JOB_SLOT, JOB_OTHER, JOB_MEND };
/* Residues of slots that hold no publication of the program: in the report of a lost one the first
 * byte of the CRC is stored inverted, in the answer to a command the second. */
enum { REPORT_RESIDUE = 0x0300 | OW_KIND_LOST, ANSWER_RESIDUE = 0x1E00 | OW_KIND_ANSWER };

_Static_assert(!OW_SLOT_CHECK || OW_PERSISTENCE,
    "OW_SLOT_CHECK looks for damage at rest: without OW_PERSISTENCE nothing rests");

#if OW_JOURNAL_MEMORY
_Static_assert(OW_PERSISTENCE && OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE <= OW_MEMORY_SIZE,
    "the memory on the bus has 2,048 slots, and without persistence it has no use");

static void fetch(uint8_t *to, uint16_t address, uint8_t length)
{
    if (address >= SLOTS) {
        ow_memory_read(to, address - SLOTS, length);
        return;
    }
    while (length--) {
        *to++ = ow_hal_eeprom_read(address++);
    }
}

static uint8_t load(uint16_t address)
{
    uint8_t byte;
    fetch(&byte, address, 1);
    return byte;
}

static void store(uint16_t address, uint8_t byte)
{
    if (address < SLOTS) {
        ow_hal_eeprom_write(address, byte);
    } else {
        ow_memory_write(address - SLOTS, byte);
    }
}

static bool busy(void)
{
    return ow_hal_eeprom_busy() || ow_memory_busy();
}
#elif OW_PERSISTENCE
_Static_assert(
    SLOTS + OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE <= OW_EEPROM_SIZE,
    "this chip's EEPROM is too small: build with a smaller OW_JOURNAL_SLOTS, 28 for 512 bytes");
#define load ow_hal_eeprom_read
#define store ow_hal_eeprom_write
#define busy ow_hal_eeprom_busy
#else
#define busy ow_hal_eeprom_busy
static uint8_t slots[OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE];

static uint8_t load(uint16_t address)
{
    return address < SLOTS ? ow_hal_eeprom_read(address) : slots[address - SLOTS];
}

static void store(uint16_t address, uint8_t byte)
{
    if (address < SLOTS) {
        ow_hal_eeprom_write(address, byte);
    } else {
        slots[address - SLOTS] = byte;
    }
}
#endif

#if !OW_JOURNAL_MEMORY
static void fetch(uint8_t *to, uint16_t address, uint8_t length)
{
    while (length--) {
        *to++ = load(address++);
    }
}
#endif

/* Reads `length` bytes whose last two are their CRC; `to` has room for one more. A bit that has
 * changed at rest is changed back: each bit in turn, until the CRC matches. At such lengths two valid
 * contents differ in four bits or more, so there is one answer. */
static OW_ONE_COPY bool read_checked(uint8_t *to, uint16_t address, uint8_t length)
{
    uint8_t *at = to + length, bit = 0;
    fetch(to, address, length);
    while (ow_crc(OW_CRC_INITIAL, to, length) != 0) {
        *at ^= bit;
        bit <<= 1;
        if (bit == 0) {
            if (at == to) {
                return false;
            }
            at--;
            bit = 1;
        }
        *at ^= bit;
    }
    return true;
}

static void seal(uint8_t *record, uint8_t length)
{
    ow_put_u16(record + length, ow_crc(OW_CRC_INITIAL, record, length));
}

static OW_ONE_COPY uint16_t asked_address(uint8_t count)
{
    return (uint16_t)(ASKED_CELLS + (count & 1) + ((count & 2) << 2));
}

static OW_ONE_COPY uint16_t slot_address(ow_slot slot)
{
    return (uint16_t)(SLOTS + (uint16_t)slot * OW_JOURNAL_SLOT_SIZE);
}

static uint32_t after(uint32_t sequence)
{
    sequence++;
    return (uint16_t)sequence == 0 ? sequence + 1 : sequence; /* a packet identifier is never 0 */
}

ow_slot ow_journal_following(ow_slot slot)
{
    return slot + 1 == OW_JOURNAL_SLOTS ? 0 : (ow_slot)(slot + 1);
}

#define NOWHERE ((ow_slot)~0)

/* --- jobs --- */

static OW_ONE_COPY void start(
    struct ow_journal *journal, uint8_t job, uint16_t address, uint8_t length)
{
    journal->job = job;
    journal->address = address;
    journal->left = length;
    journal->tried = false;
}

bool ow_journal_idle(const struct ow_journal *journal)
{
    return journal->job == JOB_NONE;
}

static bool is_released(const uint8_t *record)
{
    return record[RELEASED_AT] == (record[SEQUENCE_AT + 3] ^ RELEASED_MASK);
}

#if OW_SLOT_CHECK
static void check_slots(struct ow_journal *journal);
static void count_again(struct ow_journal *journal);
#endif

static void succeeded(struct ow_journal *journal)
{
    if (journal->job == JOB_SLOT) {
        journal->head = ow_journal_following(journal->head);
        journal->next = after(journal->next);
        journal->pending++;
    }
#if OW_SLOT_CHECK
    if (journal->job == JOB_BOOT || journal->job == JOB_MEND) {
        check_slots(journal);
        return;
    }
#endif
    journal->job = JOB_NONE;
}

/* A slot or a boot cell goes to the next place. A mark that cannot be kept only causes a
 * repetition after the next start, so it is dropped. */
static void failed(struct ow_journal *journal)
{
    journal->worn += journal->worn != 0xFF;
    if (journal->job == JOB_BOOT) {
        start(journal, JOB_BOOT,
            BOOT_CELLS + ((journal->address + CELL_SIZE) & (CELL_SIZE * CELLS - 1)), CELL_SIZE);
    } else if (journal->job == JOB_SLOT) {
        ow_slot slot = ow_journal_following(journal->head);
        if (journal->pending && slot == journal->tail) {
            journal->job = JOB_NONE; /* nowhere else: this publication is not taken, `next` stays */
            return;
        }
        journal->head = slot;
        start(journal, JOB_SLOT, slot_address(slot), OW_JOURNAL_SLOT_SIZE);
    } else {
#if OW_SLOT_CHECK && OW_JOURNAL_MEMORY
        if (journal->job == JOB_MEND) {
            count_again(journal); /* other cells were written */
        }
#endif
        journal->job = JOB_NONE;
    }
}

/* The last byte first, so that a slot's CRC cannot match before its marks are right. */
void ow_journal_poll(struct ow_journal *journal)
{
    if (journal->job == JOB_NONE || busy()) {
        return;
    }
    while (journal->left) {
        uint16_t address = (uint16_t)(journal->address + journal->left - 1);
        uint8_t byte = journal->record[journal->left - 1];
        if (load(address) == byte) {
            journal->left--;
            journal->tried = false;
        } else if (journal->tried) {
            failed(journal);
            return;
        } else {
            store(address, byte);
            journal->tried = true;
            return;
        }
    }
    succeeded(journal);
}

/* --- start --- */

/* Resets and most brown-outs keep the RAM, so in a loop of them not every start needs a write. The
 * more starts since the RAM was lost, the more numbers are reserved at a time. This state counts
 * only if it agrees with the EEPROM, which has the highest reserved number. */
#if OW_SEVERAL_BOARDS
#define starts (*ow_hal_starts())
#else
static struct ow_starts starts
#ifdef __AVR__
    __attribute__((section(".noinit")))
#endif
    ;
#endif

static void open_boot(struct ow_journal *journal)
{
    uint8_t *record = journal->record;
    uint8_t newest = CELLS - 1;
    bool found = false;
    for (uint8_t cell = 0; cell < CELLS; cell++) {
        if (!read_checked(record, (uint16_t)(BOOT_CELLS + cell * CELL_SIZE), CELL_SIZE)) {
            continue;
        }
        uint16_t boot = ow_get_u16(record);
        if (!found || (int16_t)(boot - journal->boot) > 0) {
            journal->boot = boot;
            newest = cell;
            found = true;
        }
    }
    bool kept = ow_hal_reset_cause() != OW_RESET_POWER_ON;
    if (!kept || (uint16_t)(starts.number + starts.left) != journal->boot) {
        starts = (struct ow_starts){.number = journal->boot};
    }
    journal->boot = ++starts.number;
    if (starts.left) {
        starts.left--;
        return;
    }
    starts.left = starts.block;
    starts.block = (uint8_t)(2 * starts.block + kept);
    ow_put_u16(record, (uint16_t)(starts.number + starts.left));
    seal(record, 2);
    start(
        journal, JOB_BOOT, (uint16_t)(BOOT_CELLS + ((newest + 1) % CELLS) * CELL_SIZE), CELL_SIZE);
}

/* Two cells, written in turn: count:u8 id:u16 crc:u16. The higher count counts, modulo 256. */
static uint16_t held_address(uint8_t count)
{
    return count & 1 ? HELD_B : HELD_A;
}

static void open_held(struct ow_journal *journal)
{
    bool found = false;
    for (uint8_t cell = 0; cell < 2; cell++) {
        uint8_t record[HELD_SIZE + 1];
        if (read_checked(record, held_address(cell), HELD_SIZE) &&
            !(found && (int8_t)(record[0] - journal->held_count) < 0)) {
            found = true;
            journal->held_count = record[0];
            journal->held = ow_get_u16(record + 1);
        }
    }
}

static void open_incarnation(struct ow_journal *journal)
{
    uint8_t copy[INCARNATION_SIZE + 1];
    if (read_checked(copy, INCARNATION_B, INCARNATION_SIZE)) {
        journal->confirmed = true;
        journal->incarnation = ow_get_u32(copy);
    } else if (read_checked(copy, INCARNATION_A, INCARNATION_SIZE)) {
        journal->incarnation = ow_get_u32(copy);
    }
}

/* Reads a slot's bytes, and `entry` from them; false if the slot holds no publication. */
static inline __attribute__((always_inline)) bool read_record(
    ow_slot slot, uint8_t *record, struct ow_entry *entry, bool *done)
{
    fetch(record, slot_address(slot), OW_JOURNAL_SLOT_SIZE);
    uint16_t residue = ow_crc(OW_CRC_INITIAL, record, RELEASED_AT);
    if (residue != 0 && (!OW_SLOT_CHECK || residue != REPORT_RESIDUE) &&
        (!OW_ANSWERS || residue != ANSWER_RESIDUE)) {
        return false;
    }
    entry->kind = OW_SLOT_CHECK || OW_ANSWERS ? (uint8_t)residue : OW_KIND_PROGRAM;
    uint8_t low = record[SEQUENCE_AT + 3];
    entry->slot = slot;
    entry->sequence = ow_get_u32(record + SEQUENCE_AT);
    memcpy(entry->source, record + SOURCE_AT, OW_JOURNAL_SOURCE);
    entry->released = is_released(record);
    *done = record[DONE_AT] == (low ^ DONE_MASK);
    /* A new slot whose CRC was written before the power went may fit its erased rest by chance. No
     * EEPROM lasts long enough to hold a sequence that begins so. */
    return (uint16_t)entry->sequence != 0 && record[SEQUENCE_AT] != ERASED;
}

static OW_ONE_COPY bool read_slot(ow_slot slot, struct ow_entry *entry, bool *done)
{
    uint8_t record[OW_JOURNAL_SLOT_SIZE];
    return read_record(slot, record, entry, done);
}

static void note_done(struct ow_journal *journal, uint16_t id)
{
#if OW_JOURNAL_MEMORY
    if (journal->newest_done == 0 || (int16_t)(id - journal->newest_done) > 0) {
        journal->newest_done = id;
    }
#else
    (void)journal, (void)id;
#endif
}

#if OW_SLOT_CHECK
/* --- damage at rest ---
 *
 * Slots are used in turn and sequences are consecutive, so a slot that does not pass its check has a
 * known sequence: the one before that of the next whole slot, if no slot has that. If only the
 * sequence has changed, a start writes the slot again as it was. Else a report takes its place, under
 * its sequence: if the gateway has the publication already, it takes the report for a repetition, and
 * nothing is lost. A publication that was done stays done. */

/* Whether nothing but the sequence has changed, if it was this one. The record has it then. */
static OW_ONE_COPY bool fits(uint8_t *record, uint32_t sequence)
{
    ow_put_u32(record + SEQUENCE_AT, sequence);
    uint16_t residue = ow_crc(OW_CRC_INITIAL, record, RELEASED_AT);
    return residue == 0 || (OW_ANSWERS && residue == ANSWER_RESIDUE);
}

/* Starts to write the first damaged slot again, seen from the oldest; the check then begins anew. The
 * slot after the newest whole slot may hold a newer publication, whose sequence must not be used
 * again: it does if its sequence is the next one, or if only its sequence is damaged. A slot that a
 * power cut left half-written has the sequence of an older publication. An erased slot before all
 * publications was never used, and a slot that could not be written leaves no gap.
 *
 * To read all slots of a memory on the bus takes a second. In such a memory the check goes on with
 * the first damaged slot that it found: nothing before that slot has changed. */
static void mend_one(struct ow_journal *journal)
{
    uint8_t *const record = journal->record;
    uint16_t awaited = 1, address; /* identifier */
    ow_slot slot = journal->head, hole = NOWHERE;
    uint32_t missing = 0;
#if OW_JOURNAL_MEMORY
    if (journal->awaited) {
        slot = journal->checked;
        awaited = journal->awaited;
    }
#endif
    do {
        struct ow_entry entry;
        bool done, whole;
#if OW_JOURNAL_MEMORY
        ow_hal_watch(); /* the check of thousands of slots takes longer than the watchdog waits */
        whole = read_record(slot, record, &entry, &done);
        if (hole == NOWHERE) {
            journal->checked = slot;
            journal->awaited = awaited;
        }
#else
        whole = read_slot(slot, &entry, &done);
#endif
        if (whole) {
            if (hole != NOWHERE && (uint16_t)entry.sequence != awaited) {
                missing = entry.sequence - 1;
                missing -= (uint16_t)missing == 0;
                break;
            }
            hole = NOWHERE;
            awaited = (uint16_t)entry.sequence + 1;
            awaited += awaited == 0;
        } else {
            if (!OW_JOURNAL_MEMORY) {
                fetch(record, slot_address(slot), OW_JOURNAL_SLOT_SIZE);
            }
            if (awaited != 1 || record[SEQUENCE_AT] != ERASED) {
                hole = slot;
            }
            if (slot == journal->head &&
                (ow_get_u16(record + SEQUENCE_AT + 2) == (uint16_t)journal->next ||
                    fits(record, journal->next))) {
                missing = journal->next;
                hole = slot;
                break;
            }
        }
        slot = ow_journal_following(slot);
    } while (slot != journal->head);
#if OW_JOURNAL_MEMORY
    if (!missing || hole == journal->head) { /* all are checked, or the head moves on */
        journal->awaited = 0;
    }
#endif
    if (!missing) {
        return;
    }
    address = slot_address(hole);
    fetch(record, address, OW_JOURNAL_SLOT_SIZE);
    if (!fits(record, missing)) {
        seal(record, CRC_AT);
        record[CRC_AT] ^= 0xFF;
        if (!is_released(record)) {
            record[DONE_AT] = (uint8_t)missing ^ RELEASED_MASK; /* it was not done */
        }
    }
    start(journal, JOB_MEND, address, OW_JOURNAL_SLOT_SIZE);
}
#endif

static void read_slots(struct ow_journal *journal)
{
    struct ow_entry entry;
    bool done;
#if OW_JOURNAL_MEMORY
    ow_slot first = NOWHERE, behind = NOWHERE; /* that is not done; and that is behind the head */
#endif
    for (ow_slot slot = 0; slot < OW_JOURNAL_SLOTS; slot++) {
        if (OW_JOURNAL_MEMORY && journal->job != JOB_NONE) { /* not in the program's setup */
            ow_hal_watch();
        }
        if (!read_slot(slot, &entry, &done)) {
            continue;
        }
        if (entry.sequence >= journal->next) {
            journal->next = after(entry.sequence);
            journal->head = ow_journal_following(slot);
#if OW_JOURNAL_MEMORY
            behind = NOWHERE;
#endif
        }
        if (!done) {
            journal->pending++;
            journal->released += entry.released;
#if OW_JOURNAL_MEMORY
            if (first == NOWHERE) {
                first = slot;
            }
            if (behind == NOWHERE && journal->head && slot >= journal->head) {
                behind = slot;
            }
#endif
        } else {
            note_done(journal, (uint16_t)entry.sequence);
        }
    }
    journal->tail = journal->head;
#if OW_JOURNAL_MEMORY
    if (first != NOWHERE) {
        journal->tail = behind != NOWHERE ? behind : first;
    }
#endif
    if (OW_PUBLICATIONS) { /* go on to the oldest: more may follow */
        ow_journal_find(journal, journal->tail, &entry);
    }
}

#if OW_SLOT_CHECK
static void count_again(struct ow_journal *journal)
{
    journal->pending = 0;
    journal->released = 0;
    read_slots(journal);
}

static void check_slots(struct ow_journal *journal)
{
    bool mended = journal->job == JOB_MEND;
#if OW_JOURNAL_MEMORY
    const bool later = mended && journal->awaited; /* once all are repaired */
#else
    const bool later = false;
#endif
    if (mended && !later) {
        count_again(journal);
    }
    journal->job = JOB_NONE;
    mend_one(journal);
    if (later && journal->job == JOB_NONE) {
        journal->job = JOB_MEND; /* so the watchdog is fed */
        count_again(journal);
        journal->job = JOB_NONE;
    }
}
#endif

void ow_journal_open(struct ow_journal *journal)
{
    memset(journal, 0, sizeof *journal);
    journal->next = 1;
#if OW_JOURNAL_MEMORY
    journal->missing = !ow_memory_begin();
#endif
    if (OW_PERSISTENCE) {
        open_incarnation(journal);
        read_slots(journal);
        for (uint8_t count = 0; count < CELLS; count++) {
            if (load(asked_address(count)) != ERASED) { /* a damaged slot, too: to ask is safe */
                journal->asked = (uint8_t)asked_address(count);
            }
        }
    }
    if (OW_SUBSCRIPTIONS) {
        open_held(journal);
    }
    open_boot(journal);
#if OW_SLOT_CHECK
    if (journal->job == JOB_NONE) {
        journal->job = JOB_BOOT; /* of no publication: then the slots are checked */
    }
#endif
}

/* --- publications --- */

bool ow_journal_find(struct ow_journal *journal, ow_slot slot, struct ow_entry *entry)
{
    bool done;
    if (journal->pending == 0) {
        return false;
    }
    do {
        if (read_slot(slot, entry, &done) && !done) {
            return true;
        }
        if (slot == journal->tail) {
            journal->tail = ow_journal_following(slot);
        }
        slot = ow_journal_following(slot);
    } while (slot != journal->head);
    return false;
}

#if OW_SLOT_CHECK
/* A mark that differs from the new sequence's mark in more than one bit. With 60 slots the mark of
 * the slot's previous publication always does. */
static uint8_t other_mark(uint8_t old, uint8_t mark)
{
    uint8_t difference = old ^ mark;
    difference &= difference - 1;
    if (difference == 0) {
        old ^= 0xFF;
    }
    return old;
}
#endif

bool ow_journal_append(struct ow_journal *journal, const uint8_t *source)
{
    struct ow_entry oldest;
    if (ow_journal_missing(journal) || !ow_journal_idle(journal) ||
        (uint8_t)(journal->next >> 24) == ERASED) {
        return false;
    }
    if (ow_journal_find(journal, journal->tail, &oldest) && oldest.slot == journal->head) {
        return false;
    }
    uint8_t *record = journal->record;
    uint8_t low = (uint8_t)journal->next;
    uint16_t address = slot_address(journal->head);
    ow_put_u32(record + SEQUENCE_AT, journal->next);
    memcpy(record + SOURCE_AT, source, OW_JOURNAL_SOURCE);
    seal(record, CRC_AT);
    fetch(record + RELEASED_AT, (uint16_t)(address + RELEASED_AT), 2);
    /* The marks of an earlier publication stay, to save writes. */
#if OW_SLOT_CHECK
    record[RELEASED_AT] = other_mark(record[RELEASED_AT], low ^ RELEASED_MASK);
    record[DONE_AT] = other_mark(record[DONE_AT], low ^ DONE_MASK);
#else
    if (record[RELEASED_AT] == (low ^ RELEASED_MASK)) {
        record[RELEASED_AT] ^= 0xFF;
    }
    if (record[DONE_AT] == (low ^ DONE_MASK)) {
        record[DONE_AT] ^= 0xFF;
    }
#endif
    start(journal, JOB_SLOT, address, OW_JOURNAL_SLOT_SIZE);
    return true;
}

#if OW_ANSWERS
void ow_journal_mark_answer(struct ow_journal *journal)
{
    journal->record[CRC_AT + 1] ^= 0xFF;
}
#endif

uint32_t ow_journal_left(const struct ow_journal *journal)
{
    uint32_t life = CELL_LIFE * OW_JOURNAL_SLOTS;
    return journal->next < life ? life - journal->next : 0;
}

void ow_journal_skip(struct ow_journal *journal)
{
    journal->next = after(journal->next);
}

static void write_byte(struct ow_journal *journal, uint16_t address, uint8_t value)
{
    journal->record[0] = value;
    start(journal, JOB_OTHER, address, 1);
}

static void mark(struct ow_journal *journal, ow_slot slot, uint8_t at, uint8_t value)
{
    write_byte(journal, (uint16_t)(slot_address(slot) + at), value);
}

void ow_journal_released(struct ow_journal *journal, ow_slot slot, uint16_t id)
{
    journal->released++;
    mark(journal, slot, RELEASED_AT, (uint8_t)id ^ RELEASED_MASK);
}

void ow_journal_not_released(struct ow_journal *journal, ow_slot slot, uint16_t id)
{
    journal->released--;
    mark(journal, slot, RELEASED_AT, (uint8_t) ~((uint8_t)id ^ RELEASED_MASK));
}

void ow_journal_done(struct ow_journal *journal, ow_slot slot, uint16_t id)
{
    journal->pending--;
    note_done(journal, id);
    journal->released -=
        load((uint16_t)(slot_address(slot) + RELEASED_AT)) == ((uint8_t)id ^ RELEASED_MASK);
    mark(journal, slot, DONE_AT, (uint8_t)id ^ DONE_MASK);
}

void ow_journal_ask(struct ow_journal *journal, bool asked)
{
    uint16_t address = asked ? asked_address((uint8_t)journal->next) : journal->asked;
    journal->asked = asked ? (uint8_t)address : 0;
    write_byte(journal, address, asked ? ASKED : ERASED);
}

void ow_journal_hold(struct ow_journal *journal, uint16_t id)
{
    uint8_t *record = journal->record;
    journal->held = id;
    record[0] = ++journal->held_count;
    ow_put_u16(record + 1, id);
    seal(record, 3);
    start(journal, JOB_OTHER, held_address(record[0]), HELD_SIZE);
}

/* --- identity --- */

static void write_incarnation(struct ow_journal *journal, uint16_t address)
{
    ow_put_u32(journal->record, journal->incarnation);
    seal(journal->record, 4);
    start(journal, JOB_OTHER, address, INCARNATION_SIZE);
}

void ow_journal_adopt(struct ow_journal *journal, uint32_t incarnation)
{
    journal->incarnation = incarnation;
    write_incarnation(journal, INCARNATION_A);
}

void ow_journal_confirm(struct ow_journal *journal)
{
    journal->confirmed = true;
    write_incarnation(journal, INCARNATION_B);
}

bool ow_journal_application_read(uint8_t *bytes, uint8_t at, uint8_t length)
{
    return read_checked(bytes, (uint16_t)(OW_JOURNAL_APPLICATION + at), length);
}

static void wait(void)
{
    while (ow_hal_eeprom_busy()) {
    }
}

bool ow_journal_application(const uint8_t *bytes, uint8_t length)
{
    OW_CHECK_CALL();
    if (length > OW_JOURNAL_APPLICATION_SIZE) {
        return false;
    }
    for (uint8_t i = 0; i < length; i++) {
        wait(); /* for a job's byte, or the one before */
        if (ow_hal_eeprom_read(OW_JOURNAL_APPLICATION + i) != bytes[i]) {
            ow_hal_eeprom_write(OW_JOURNAL_APPLICATION + i, bytes[i]);
        }
    }
    wait();
    return true;
}
