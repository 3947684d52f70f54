/* Damage at rest: bits of the EEPROM, or of the memory on the bus, that change while the board is
 * off. Each publication that was not done comes out as it went in, or is reported with its sequence;
 * no sequence is used again. */
#include "Onceway.h"
#include "board.h"
#include "check.h"
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_journal.h"
#include "ow_lost.h"

enum { FLIPS = 10000, SLOTS_AT = 0x040, MOST = 1024 };

static struct ow_journal journal;
static uint8_t *const slots = OW_JOURNAL_MEMORY ? board.memory : board.eeprom + SLOTS_AT;

/* The board as it was switched off. */
static struct {
    uint8_t eeprom[OW_EEPROM_SIZE], slots[OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE];
} image;

static void keep(void)
{
    memcpy(image.eeprom, board.eeprom, sizeof image.eeprom);
    memcpy(image.slots, slots, sizeof image.slots);
}

static void restore(void)
{
    memcpy(board.eeprom, image.eeprom, sizeof image.eeprom);
    memcpy(slots, image.slots, sizeof image.slots);
}

/* The publications before the damage: taken up to `newest`, done up to `done`. */
static uint32_t newest, done;

static uint32_t delivered[MOST], reported[MOST];
static uint32_t again; /* publications that were done and come once more */

static void settle(void)
{
    while (!ow_journal_idle(&journal)) {
        ow_journal_poll(&journal);
    }
}

static void start(void)
{
    board_power_on();
    board.instant = true;
    ow_journal_open(&journal);
    settle();
}

static void source_of(uint32_t sequence, uint8_t *source)
{
    ow_put_u32(source, sequence * 2654435761u);
    ow_put_u32(source + 4, ~sequence);
}

static void publish(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    source_of(journal.next, source);
    CHECK(ow_journal_append(&journal, source));
    settle();
}

static void release(const struct ow_entry *entry)
{
    ow_journal_released(&journal, entry->slot, (uint16_t)entry->sequence);
    settle();
}

static void finish(const struct ow_entry *entry)
{
    ow_journal_done(&journal, entry->slot, (uint16_t)entry->sequence);
    settle();
}

static struct ow_entry oldest(void)
{
    struct ow_entry entry;
    CHECK(ow_journal_find(&journal, journal.tail, &entry));
    return entry;
}

/* A board that has taken so many publications, of which so many wait; the oldest may be released. */
static void make(uint32_t count, uint32_t waiting, bool released)
{
    board_new("s1");
    start();
    for (uint32_t i = 1; i <= count; i++) {
        publish();
        if (i + waiting <= count) {
            struct ow_entry entry = oldest();
            release(&entry);
            finish(&entry);
        }
    }
    if (released && waiting) {
        struct ow_entry entry = oldest();
        release(&entry);
    }
    newest = count;
    done = count - waiting;
}

/* What the gateway gets now, all of it. */
static void drain(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    while (journal.pending) {
        struct ow_entry entry = oldest();
        if (entry.kind == OW_KIND_LOST) {
            CHECK(entry.sequence <= newest, "%u", entry.sequence);
            reported[entry.sequence] += entry.sequence > done;
            again += entry.sequence <= done; /* the gateway takes it for a repetition */
        } else {
            source_of(entry.sequence, source);
            CHECK(memcmp(source, entry.source, sizeof source) == 0, "%u", entry.sequence);
            delivered[entry.sequence]++;
            again += entry.sequence <= done; /* as it was: the gateway knows it */
        }
        if (!entry.released) {
            release(&entry);
        }
        finish(&entry);
    }
    CHECK_EQUAL(journal.released, 0);
}

static void forget(void)
{
    memset(delivered, 0, sizeof delivered);
    memset(reported, 0, sizeof reported);
}

/* Returns how many were lost. */
static uint32_t check_all(void)
{
    uint32_t lost = 0;
    for (uint32_t sequence = done + 1; sequence <= newest; sequence++) {
        CHECK(delivered[sequence] + reported[sequence], "%u was lost in silence", sequence);
        CHECK(delivered[sequence] <= 1 && reported[sequence] <= 1, "%u: %u, %u", sequence,
            delivered[sequence], reported[sequence]);
        CHECK(!delivered[sequence] || !reported[sequence], "%u came and is told lost", sequence);
        lost += reported[sequence] != 0;
    }
    return lost;
}

/* Bits are counted from the first slot on. */
static void flip(uint32_t bit)
{
    slots[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* The next start finds all of it settled, and goes on with new sequences. */
static void check_afterwards(void)
{
    uint32_t next = journal.next;
    CHECK(next > newest, "%u is used again", next);
    start();
    CHECK_EQUAL(journal.pending, 0);
    CHECK_EQUAL(journal.next, next);
    publish();
    struct ow_entry entry = oldest();
    CHECK_EQUAL(entry.sequence, next);
}

static void no_single_bit_loses_a_publication_in_silence(void)
{
    uint32_t lost = 0, flips = 0;
    while (flips < FLIPS) {
        uint32_t count = 1 + board_random() % 200;
        uint32_t most = count < OW_JOURNAL_SLOTS ? count : OW_JOURNAL_SLOTS;
        make(count, board_random() % (most + 1), board_random() % 2);
        keep();
        for (unsigned i = 0; i < 40; i++, flips++) {
            restore();
            forget();
            flip(board_random() % (8 * sizeof image.slots));
            start();
            drain();
            lost += check_all();
            check_afterwards();
        }
    }
    CHECK(lost > FLIPS / 10, "only %u", lost);
    CHECK(again < FLIPS / 10, "%u", again);
    printf("  %u flips: %u lost and told, %u published again as before, 0 silent, 0 used again\n",
        flips, lost, again);
}

/* The cells before the slots: incarnation, marks, boot counter, and the gateway's identifier. */
static void no_single_bit_of_a_cell_costs_a_publication_or_an_identity(void)
{
    enum { INCARNATION = 0x1234ABCD };
    for (uint32_t count = 0; count <= 70; count += 14) {
        make(count, count / 3, count % 4 == 2);
        ow_journal_adopt(&journal, INCARNATION);
        settle();
        ow_journal_confirm(&journal);
        settle();
        for (uint16_t id = 1; id <= count / 14; id++) { /* obeyed, and let go; of the last not yet */
            ow_journal_hold(&journal, 255 * id);
            settle();
            ow_journal_hold(&journal, count % 28 ? 255 * id : 0);
            settle();
        }
        uint32_t next = journal.next;
        uint16_t boot = journal.boot, held = journal.held;
        keep();
        for (uint32_t bit = 0; bit < 8 * SLOTS_AT; bit++) {
            restore();
            forget();
            board.eeprom[bit / 8] ^= (uint8_t)(1u << bit % 8);
            start();
            CHECK_EQUAL(journal.incarnation, INCARNATION);
            CHECK(journal.confirmed, "bit %u: the session would be ended, with its commands", bit);
            CHECK_EQUAL(journal.boot, boot + 1);
            CHECK_EQUAL(journal.next, next);
            CHECK_EQUAL(journal.held, held); /* else a command would be obeyed twice */
            drain();
            CHECK_EQUAL(check_all(), 0);
            check_afterwards();
        }
    }
}

/* The sequence alone: the rest of the slot passes its check with the one that belongs there. */
static void a_damaged_sequence_is_repaired(void)
{
    for (uint32_t count = 1; count <= 130; count += 43) {
        for (unsigned bit = 0; bit < 32; bit++) {
            make(count, 1, false);
            forget();
            flip(8 * ((count - 1) % OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE) + bit);
            start();
            drain();
            CHECK_EQUAL(check_all(), 0);
            check_afterwards();
        }
    }
}

/* All bytes of some slots: what chips lose by heat, by a bad supply, by a page that was erased. */
static void damaged_slots_are_told_one_by_one(void)
{
    for (unsigned round = 0; round < 500; round++) {
        uint32_t waiting = 3 + board_random() % (OW_JOURNAL_SLOTS - 2);
        uint32_t count = waiting + board_random() % 100;
        make(count, waiting, false);
        forget();
        uint32_t many = 1 + board_random() % (waiting - 2);
        uint32_t first = count - waiting + 2; /* the neighbours are whole */
        for (uint32_t sequence = first; sequence < first + many && sequence < count; sequence++) {
            unsigned at = (sequence - 1) % OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE;
            for (unsigned i = 0; i < OW_JOURNAL_SLOT_SIZE; i++) {
                slots[at + i] = round % 2 ? 0xFF : 0;
            }
        }
        start();
        drain();
        CHECK_EQUAL(check_all(), many);
        check_afterwards();
    }
}

static void a_power_cut_at_any_write_loses_no_report(void)
{
    make(150, 20, false);
    for (unsigned bit = 0; bit < 112; bit += 37) {
        flip(8 * ((135 - 1) % OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE) + bit);
    }
    keep();
    volatile bool cut = true;
    for (volatile uint32_t at = 1; cut; at++) {
        for (volatile int tear = 0; tear < TEARS; tear++) {
            restore();
            forget();
            board.tear = (enum tear)tear;
            cut = false;
            board_power_on();
            board.cut_at_write = at;
            if (setjmp(board.cut)) {
                cut = true;
            } else {
                ow_journal_open(&journal);
                settle();
            }
            board.cut_at_write = 0;
            start();
            drain();
            CHECK_EQUAL(check_all(), 1);
            check_afterwards();
        }
    }
}

/* The report needs no room: it stands where the publication stood. */
static void a_full_journal_reports(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    for (uint32_t damaged = 41; damaged <= 100; damaged++) {
        make(100, OW_JOURNAL_SLOTS, false);
        forget();
        flip(8 * ((damaged - 1) % OW_JOURNAL_SLOTS * OW_JOURNAL_SLOT_SIZE + 6));
        start();
        CHECK_EQUAL(journal.next, 101);
        CHECK_EQUAL(journal.pending, OW_JOURNAL_SLOTS);
        CHECK(!ow_journal_append(&journal, source), "it takes the report's place");
        drain();
        CHECK_EQUAL(check_all(), 1);
        CHECK_EQUAL(reported[damaged], 1);
        check_afterwards();
    }
}

/* A slot that could not be written leaves no gap in the sequences. */
static void worn_slots_hold_nothing_that_is_lost(void)
{
    board_new("s1");
    for (unsigned slot = 3; slot < OW_JOURNAL_SLOTS; slot += 7) {
        board.dead_cell[SLOTS_AT + slot * OW_JOURNAL_SLOT_SIZE + slot % 14] = true;
    }
    start();
    forget();
    for (done = 0, newest = 0; newest < 150;) {
        publish();
        newest++;
        if (journal.pending > 20) {
            struct ow_entry entry = oldest();
            release(&entry);
            finish(&entry);
            done = entry.sequence > done ? entry.sequence : done;
        }
        if (newest % 10 == 0) {
            start();
            /* one in front of the oldest may come out as an older publication: the gateway knows that */
            for (struct ow_entry entry; journal.pending && (entry = oldest()).sequence <= done;) {
                finish(&entry);
            }
            CHECK_EQUAL(journal.pending, newest - done);
        }
    }
    drain();
    CHECK_EQUAL(check_all(), 0);
    check_afterwards();
}

/* A slot that was never used stays empty. */
static void an_erased_eeprom_with_a_changed_bit_is_empty(void)
{
    for (uint32_t bit = 0; bit < 8 * sizeof image.slots; bit++) {
        board_new("s1");
        flip(bit);
        start();
        CHECK_EQUAL(journal.next, 1);
    }
}

static void the_last_sequences_are_refused(void)
{
    uint8_t source[OW_JOURNAL_SOURCE] = {0};
    make(3, 0, false);
    journal.next = 0xFEFFFFFF;
    CHECK(ow_journal_append(&journal, source));
    settle();
    CHECK(journal.next >= 0xFF000000);
    CHECK(!ow_journal_append(&journal, source), "it would be gone at the next start");
    uint32_t next = journal.next;
    start();
    CHECK_EQUAL(journal.next, next);
    CHECK_EQUAL(journal.pending, 1);
    CHECK(!ow_journal_append(&journal, source));
}

static void a_report_is_a_word_under_the_lost_sequence(void)
{
    static struct ow_mqtt client = {.logs = "logs/", .name = "abcdefghijklmnopqrstuvw"};
    struct ow_message message = {0};
    ow_lost_packet(&client, &message);
    CHECK_EQUAL(message.qos, 2);
    CHECK_EQUAL(message.size, 4);
    CHECK(memcmp(message.payload, "lost", 4) == 0);
    CHECK_EQUAL(message.topic_length, 28);
    CHECK(memcmp(message.topic, "logs/abcdefghijklmnopqrstuvw", 28) == 0);
}

/* What a board in the field holds: an image that firmware 0.2.0 wrote while no gateway was there. */
static void a_full_journal_of_0_2_0_is_finished(const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(image.eeprom, 1, OW_EEPROM_SIZE, file) == OW_EEPROM_SIZE, "%s", path);
    fclose(file);
    memcpy(image.slots, image.eeprom + SLOTS_AT, sizeof image.slots);
    board_new("s1");
    restore();
    start();
    CHECK_EQUAL(journal.pending, OW_JOURNAL_SLOTS);
    for (uint32_t sequence = 1; sequence <= OW_JOURNAL_SLOTS; sequence++) {
        struct ow_entry entry = oldest();
        CHECK_EQUAL(entry.sequence, sequence);
        CHECK(memcmp(entry.source, image.slots + (sequence - 1) * OW_JOURNAL_SLOT_SIZE + 4,
                  OW_JOURNAL_SOURCE) == 0);
        release(&entry);
        finish(&entry);
    }
    newest = OW_JOURNAL_SLOTS;
    check_afterwards();
}

int main(int count, char **arguments)
{
    CHECK_EQUAL(count, 2);
    a_full_journal_of_0_2_0_is_finished(arguments[1]);
    printf("  a_full_journal_of_0_2_0_is_finished\n");
    RUN(no_single_bit_loses_a_publication_in_silence);
    RUN(no_single_bit_of_a_cell_costs_a_publication_or_an_identity);
    RUN(a_damaged_sequence_is_repaired);
    RUN(damaged_slots_are_told_one_by_one);
    RUN(a_power_cut_at_any_write_loses_no_report);
    RUN(a_full_journal_reports);
    if (!OW_JOURNAL_MEMORY) { /* whose cells do not wear out here */
        RUN(worn_slots_hold_nothing_that_is_lost);
    }
    RUN(an_erased_eeprom_with_a_changed_bit_is_empty);
    RUN(the_last_sequences_are_refused);
    RUN(a_report_is_a_word_under_the_lost_sequence);
    return 0;
}
