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
enum { JOB_NONE, JOB_BOOT, JOB_SLOT, JOB_OTHER, JOB_REPAIR, JOB_CHECK };
/* Residue of a slot that holds the report of a lost publication: its CRC is stored inverted. Three
 * bits at least lie between a report and a publication. */
enum { REPORT_RESIDUE = 0x1D0F };
enum { NO_REPORT, REPORT_BEGUN, REPORT_WRITTEN };
enum { CHECKED_AT_ONCE = 64 }; /* slots a poll */
#define SEQUENCES_END 0xFF000000ul /* a slot whose first byte is 0xFF counts as never written */

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

/* Reads `length` bytes whose last two are their CRC. */
static bool read_checked(uint8_t *to, uint16_t address, uint8_t length)
{
    fetch(to, address, length);
    return ow_crc(OW_CRC_INITIAL, to, length) == 0;
}

static void seal(uint8_t *record, uint8_t length)
{
    ow_put_u16(record + length, ow_crc(OW_CRC_INITIAL, record, length));
}

static uint16_t asked_address(uint8_t count)
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

/* The check of the slots goes on between jobs. */
static void ended(struct ow_journal *journal)
{
#if OW_SLOT_CHECK
    journal->job = journal->unchecked ? JOB_CHECK : JOB_NONE;
#else
    journal->job = JOB_NONE;
#endif
}

static void succeeded(struct ow_journal *journal)
{
    if (journal->job == JOB_SLOT) {
        journal->head = ow_journal_following(journal->head);
        journal->next = after(journal->next);
        journal->pending++;
#if OW_SLOT_CHECK
        journal->report += journal->report == REPORT_BEGUN;
    } else if (journal->job == JOB_REPAIR) {
        uint16_t released_at = (uint16_t)(journal->address + RELEASED_AT);
        journal->pending++;
        journal->released += load(released_at) == (journal->record[SEQUENCE_AT + 3] ^ RELEASED_MASK);
#endif
    }
    ended(journal);
}

#if OW_SLOT_CHECK
static void count_lost(struct ow_journal *journal, bool one)
{
    journal->lost += one && journal->lost != 0xFF;
}

static void check_slot(struct ow_journal *journal);
#endif

/* A slot or a boot cell goes to the next place. A mark that cannot be kept costs a repetition after
 * the next start, so it is let go. */
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
#if OW_SLOT_CHECK
        count_lost(journal, journal->job == JOB_REPAIR);
#endif
        ended(journal);
    }
}

/* The last byte first, so that a slot's CRC cannot match before its marks are right. */
void ow_journal_poll(struct ow_journal *journal)
{
    if (journal->job == JOB_NONE || busy()) {
        return;
    }
#if OW_SLOT_CHECK
    for (uint8_t slots = 0; journal->job == JOB_CHECK && slots < CHECKED_AT_ONCE; slots++) {
        check_slot(journal);
    }
    if (journal->job == JOB_CHECK || journal->job == JOB_NONE) {
        return;
    }
#endif
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

/* A reset leaves the RAM as it was, and so do most brown-outs: so not each start in a loop of them
 * needs a write. The more there were since the RAM was lost, the more numbers are reserved at a
 * time. What stands here counts only if it agrees with the EEPROM, which has the highest number
 * that is reserved. */
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
        uint8_t record[HELD_SIZE];
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
    uint8_t copy[INCARNATION_SIZE];
    if (read_checked(copy, INCARNATION_B, INCARNATION_SIZE)) {
        journal->confirmed = true;
        journal->incarnation = ow_get_u32(copy);
    } else if (read_checked(copy, INCARNATION_A, INCARNATION_SIZE)) {
        journal->incarnation = ow_get_u32(copy);
    }
}

#if OW_SLOT_CHECK
/* A slot's content passes its check. */
static OW_ONE_COPY bool is_whole(const uint8_t *record, bool *report)
{
    uint16_t residue = ow_crc(OW_CRC_INITIAL, record, RELEASED_AT);
    *report = residue == REPORT_RESIDUE;
    return residue == 0 || *report;
}

static bool is_one_bit_or_none(uint8_t difference)
{
    return !(difference & (difference - 1));
}

/* One bit of the mark has changed, and it is neither that of the publication before nor erased.
 * Without this, one that is done would be published again. */
static bool is_done_but_for_a_bit(uint8_t mark, uint8_t low)
{
    uint8_t before = (uint8_t)(low - OW_JOURNAL_SLOTS);
    return is_one_bit_or_none(mark ^ low ^ DONE_MASK) &&
           !is_one_bit_or_none(mark ^ before ^ DONE_MASK) && !is_one_bit_or_none(mark ^ ERASED);
}

/* Erased, but for a bit. */
static bool is_blank(const uint8_t *record)
{
    return is_one_bit_or_none((uint8_t)~record[SEQUENCE_AT]);
}
#endif

/* Reads a slot into `entry`; false if it holds no publication. */
static OW_ONE_COPY bool read_slot(ow_slot slot, struct ow_entry *entry, bool *done)
{
    uint8_t record[OW_JOURNAL_SLOT_SIZE];
    fetch(record, slot_address(slot), OW_JOURNAL_SLOT_SIZE);
#if OW_SLOT_CHECK
    if (!is_whole(record, &entry->lost)) {
        return false;
    }
#else
    if (ow_crc(OW_CRC_INITIAL, record, RELEASED_AT) != 0) {
        return false;
    }
#endif
    uint8_t low = record[SEQUENCE_AT + 3];
    entry->slot = slot;
    entry->sequence = ow_get_u32(record + SEQUENCE_AT);
    memcpy(entry->source, record + SOURCE_AT, OW_JOURNAL_SOURCE);
    entry->released = record[RELEASED_AT] == (low ^ RELEASED_MASK);
#if OW_SLOT_CHECK
    if (entry->released && is_done_but_for_a_bit(record[DONE_AT], low)) {
        record[DONE_AT] = low ^ DONE_MASK;
    }
#endif
    *done = record[DONE_AT] == (low ^ DONE_MASK);
    /* A new slot whose CRC was written before the power went may fit its erased rest by chance. No
     * EEPROM lives to see a sequence that begins so. */
    return (uint16_t)entry->sequence != 0 && record[SEQUENCE_AT] != ERASED;
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
 * known sequence: the one between its neighbours. After a start each slot is looked at once. If only
 * the sequence has changed, the slot is written again as it was. If the slot's publication was done,
 * nothing is lost. Else the publication is lost: a report takes the next slot and a new sequence,
 * then the damaged slot is marked as done. A power cut between the two repeats the report. */

/* Whether nothing but the sequence has changed, if it was this one. The record has it then. */
static OW_ONE_COPY bool fits(uint8_t *record, uint32_t sequence)
{
    bool report;
    ow_put_u32(record + SEQUENCE_AT, sequence);
    return is_whole(record, &report);
}

/* Whether a damaged slot held a publication that was done: its mark is the one of its sequence, or
 * of the sequence that passes the check. Alters the record. */
static OW_ONE_COPY bool was_done(uint8_t *record)
{
    uint8_t low = record[DONE_AT] ^ DONE_MASK;
    bool report;
    if (record[SEQUENCE_AT + 3] == low) {
        return true;
    }
    record[SEQUENCE_AT + 3] = low;
    return is_whole(record, &report);
}

/* The sequence of the first whole slot from this one on, and how many slots away it is. */
static OW_ONE_COPY uint32_t sequence_from(const struct ow_journal *journal, ow_slot slot, uint16_t *distance)
{
    struct ow_entry entry;
    bool done;
    *distance = 0;
    do {
        if (read_slot(slot, &entry, &done)) {
            return entry.sequence;
        }
        ++*distance;
        slot = ow_journal_following(slot);
    } while (slot != journal->head);
    return journal->next;
}

/* From the oldest slot on. In front of sequence 1 the expected one is SEQUENCES_END or more: such
 * slots were never used. */
static void begin_check(struct ow_journal *journal)
{
    uint16_t distance;
    uint32_t first = sequence_from(journal, journal->head, &distance);
    uint32_t expected = first - distance;
    if ((uint16_t)expected == 0 || (uint16_t)expected > (uint16_t)first) {
        expected--; /* one sequence in 65,536 is left out */
    }
    journal->expected = expected;
    journal->checked = journal->head;
    journal->anchored = false;
}

/* The slots behind the newest whole one may hold newer publications that are damaged. Their
 * sequences are not used again. A slot whose write the power cut has ended still has the marks and
 * the sequence of a publication that is done, or passes the check with its new sequence. */
static void pass_damaged(struct ow_journal *journal)
{
    bool any = journal->next != 1;
    for (ow_slot i = 0; i < OW_JOURNAL_SLOTS; i++) {
        uint8_t record[OW_JOURNAL_SLOT_SIZE];
        bool report;
        fetch(record, slot_address(journal->head), OW_JOURNAL_SLOT_SIZE);
        uint32_t found = ow_get_u32(record + SEQUENCE_AT);
        if (is_whole(record, &report) || is_blank(record)) {
            return;
        }
        if (!fits(record, journal->next)) {
            begin_check(journal);
            if (found == journal->expected || fits(record, journal->expected)) {
                return; /* the oldest one */
            }
            ow_put_u32(record + SEQUENCE_AT, found);
            bool marked = (record[DONE_AT] ^ DONE_MASK) == (uint8_t)journal->next;
            if (any ? !marked && was_done(record) : found != journal->next) {
                return;
            }
        }
        journal->head = ow_journal_following(journal->head);
        journal->next = after(journal->next);
    }
}

static bool append(struct ow_journal *journal, const uint8_t *source, bool report);
static void mark(struct ow_journal *journal, ow_slot slot, uint8_t at, uint8_t value);

/* True: the report is in the journal, and the damaged slot is being marked or written over. `low`:
 * of the sequence that stands in the slot. */
static bool report_lost(struct ow_journal *journal, uint32_t sequence, uint8_t low)
{
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    ow_slot slot = journal->checked;
    if (journal->report == REPORT_WRITTEN) {
        journal->report = NO_REPORT;
        mark(journal, slot, DONE_AT, low ^ DONE_MASK);
        return true;
    }
    ow_put_u32(source, sequence);
    bool over_it = slot == journal->head;
    journal->report = over_it ? NO_REPORT : REPORT_BEGUN;
    if (!append(journal, source, true)) {
        journal->job = JOB_NONE; /* the journal is full: again when a publication is done */
        return false;
    }
    return over_it;
}

/* Without a loss there is no second round. */
static void end_of_round(struct ow_journal *journal)
{
    if (journal->lost) {
        begin_check(journal);
    } else {
        journal->unchecked = 0;
    }
}

/* Looks at one slot. The first round repairs and counts, the second one reports: so the journal is
 * in order when a report has to wait for room. */
static void check_slot(struct ow_journal *journal)
{
    uint8_t record[OW_JOURNAL_SLOT_SIZE];
    struct ow_entry entry;
    bool done;
    uint16_t distance;
    bool second = journal->unchecked <= OW_JOURNAL_SLOTS;
    ow_slot slot = journal->checked;
    uint32_t expected = journal->expected;
    if (read_slot(slot, &entry, &done)) {
        expected = entry.sequence;
        journal->anchored = true;
    } else if (expected < SEQUENCES_END && expected < sequence_from(journal, slot, &distance)) {
        fetch(record, slot_address(slot), OW_JOURNAL_SLOT_SIZE);
        uint32_t found = ow_get_u32(record + SEQUENCE_AT);
        bool unused = is_blank(record) && !journal->anchored;
        bool fitting = fits(record, expected);
        if (!fitting) {
            ow_put_u32(record + SEQUENCE_AT, found);
        }
        bool lost = !unused && !was_done(record);
        if (lost && second && !report_lost(journal, expected, (uint8_t)found)) {
            return;
        }
        if (lost && !second && fitting) {
            ow_put_u32(journal->record, expected);
            start(journal, JOB_REPAIR, slot_address(slot), SOURCE_AT);
        }
        count_lost(journal, lost && !second && !fitting);
    }
    journal->expected = after(expected);
    journal->checked = ow_journal_following(slot);
    if (--journal->unchecked == OW_JOURNAL_SLOTS) {
        end_of_round(journal);
    }
    if (journal->unchecked == 0 && journal->job == JOB_CHECK) {
        journal->job = JOB_NONE;
    }
}
#endif

static void open_slots(struct ow_journal *journal)
{
    struct ow_entry entry;
    bool done;
    for (ow_slot slot = 0; slot < OW_JOURNAL_SLOTS; slot++) {
        if (!read_slot(slot, &entry, &done)) {
            continue;
        }
        if (entry.sequence >= journal->next) {
            journal->next = after(entry.sequence);
            journal->head = ow_journal_following(slot);
        }
        if (!done) {
            journal->pending++;
            journal->released += entry.released;
        } else {
            note_done(journal, (uint16_t)entry.sequence);
        }
    }
#if OW_SLOT_CHECK
    pass_damaged(journal);
    journal->unchecked = 2 * OW_JOURNAL_SLOTS;
    begin_check(journal);
#endif
    journal->tail = journal->head;
}

void ow_journal_open(struct ow_journal *journal)
{
    memset(journal, 0, sizeof *journal);
    journal->next = 1;
#if OW_JOURNAL_MEMORY
    journal->missing = !ow_memory_begin();
#endif
    if (OW_PERSISTENCE) {
        open_incarnation(journal);
        open_slots(journal);
        for (uint8_t count = 0; count < CELLS; count++) {
            if (load(asked_address(count)) == ASKED) {
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
        ended(journal);
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
/* A mark that is not that of the new sequence, and more than one bit away from it. With 60 slots the
 * mark of the publication before always is. */
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

static bool append(struct ow_journal *journal, const uint8_t *source, bool report)
{
    struct ow_entry oldest;
    if (ow_journal_missing(journal) || (uint8_t)(journal->next >> 24) == ERASED) {
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
    if (report) {
        record[CRC_AT] ^= 0xFF;
        record[CRC_AT + 1] ^= 0xFF;
    }
    fetch(record + RELEASED_AT, (uint16_t)(address + RELEASED_AT), 2);
    /* The marks of an earlier publication stay, to spare the cells. */
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

bool ow_journal_append(struct ow_journal *journal, const uint8_t *source)
{
#if OW_SLOT_CHECK
    if (journal->unchecked) {
        return false; /* a report comes first */
    }
#endif
    return ow_journal_idle(journal) && append(journal, source, false);
}

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

static void wait(void)
{
    while (ow_hal_eeprom_busy()) {
    }
}

bool ow_journal_application(const uint8_t *bytes, uint8_t length)
{
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
