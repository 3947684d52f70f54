/* The journal against a model: what was taken and is not done comes back, in order, whatever write
 * the power cut tears. */
#include "Onceway.h"
#include "board.h"
#include "check.h"
#include "ow_bytes.h"
#include "ow_crc.h"
#include "ow_journal.h"

enum { MODEL_MAX = 4096 };

static struct ow_journal journal;

/* What has been promised so far: jobs that have ended. */
static struct {
    uint32_t taken; /* highest sequence whose append has ended */
    uint32_t done;  /* all up to here are done */
    bool released;  /* of done + 1 */
    uint16_t boot;
    uint32_t incarnation;
    bool confirmed;
} model;

/* The sequence or mark that was being written at the cut. */
static enum { NOTHING, APPEND, RELEASED, DONE, ADOPT, CONFIRM } doing;

static void settle(void)
{
    while (!ow_journal_idle(&journal)) {
        board.now++;
        ow_journal_poll(&journal);
    }
}

static void source_of(uint32_t sequence, uint8_t *source)
{
    ow_put_u32(source, sequence * 2654435761u);
    ow_put_u32(source + 4, sequence ^ 0xA5A5A5A5u);
}

static uint32_t skip(uint32_t sequence)
{
    return (uint16_t)sequence ? sequence : sequence + 1;
}

static void open(void)
{
    doing = NOTHING;
    ow_journal_open(&journal);
    settle();
    model.boot = journal.boot;
}

static bool append(void)
{
    uint8_t source[OW_JOURNAL_SOURCE];
    uint32_t sequence = journal.next;
    source_of(sequence, source);
    doing = APPEND;
    if (!ow_journal_append(&journal, source)) {
        return false;
    }
    settle();
    model.taken = sequence;
    return true;
}

static struct ow_entry oldest(void)
{
    struct ow_entry entry;
    CHECK(ow_journal_find(&journal, journal.tail, &entry));
    return entry;
}

static void release_oldest(void)
{
    struct ow_entry entry = oldest();
    doing = RELEASED;
    ow_journal_released(&journal, entry.slot, (uint16_t)entry.sequence);
    settle();
    model.released = true;
}

static void finish_oldest(void)
{
    struct ow_entry entry = oldest();
    doing = DONE;
    ow_journal_done(&journal, entry.slot, (uint16_t)entry.sequence);
    settle();
    model.done = entry.sequence;
    model.released = false;
}

/* What a new start must find. */
static void check_recovery(void)
{
    uint32_t first = skip(model.done + 1);
    uint32_t last = model.taken;
    struct ow_entry entry;
    uint8_t slot = journal.tail, source[OW_JOURNAL_SOURCE];
    if (doing == DONE && (!ow_journal_find(&journal, slot, &entry) || entry.sequence != first)) {
        first = skip(first + 1); /* the mark got through */
    }
    if (doing == APPEND && journal.next == skip(skip(last + 1) + 1)) {
        last = skip(last + 1); /* so did the record */
    }
    CHECK_EQUAL(journal.next, skip(last + 1));
    uint32_t count = 0;
    for (uint32_t sequence = first; sequence <= last; sequence = skip(sequence + 1)) {
        CHECK(ow_journal_find(&journal, slot, &entry), "sequence %u is gone", sequence);
        CHECK_EQUAL(entry.sequence, sequence);
        source_of(sequence, source);
        CHECK(memcmp(source, entry.source, sizeof source) == 0, "sequence %u", sequence);
        bool may_be_released =
            sequence == first && (model.released || doing == RELEASED || doing == DONE);
        bool must_be_released = sequence == model.done + 1 && model.released;
        CHECK(entry.released ? may_be_released : !must_be_released, "sequence %u", sequence);
        slot = ow_journal_following(entry.slot);
        count++;
    }
    CHECK_EQUAL(journal.pending, count);
}

static void sequences_and_order(void)
{
    board_new("s1");
    memset(&model, 0, sizeof model);
    open();
    CHECK_EQUAL(journal.next, 1);
    CHECK_EQUAL(journal.boot, 1);
    CHECK_EQUAL(journal.pending, 0);
    for (int i = 0; i < OW_JOURNAL_SLOTS; i++) {
        CHECK(append());
    }
    CHECK(!append(), "a full journal took one more");
    check_recovery();
    finish_oldest();
    CHECK(append());
    CHECK(!append());
    while (journal.pending) {
        release_oldest();
        finish_oldest();
    }
    open();
    check_recovery();
    CHECK_EQUAL(journal.next, OW_JOURNAL_SLOTS + 2);
    CHECK_EQUAL(journal.boot, 2);
}

static void zeroed_eeprom_is_empty(void)
{
    board_new("s1");
    memset(board.eeprom, 0, sizeof board.eeprom);
    open();
    CHECK_EQUAL(journal.next, 1);
    CHECK_EQUAL(journal.pending, 0);
    CHECK_EQUAL(journal.incarnation, 0);
}

static void packet_identifier_zero_is_skipped(void)
{
    board_new("s1");
    memset(&model, 0, sizeof model);
    open();
    journal.next = 0xFFFE;
    model.taken = model.done = 0xFFFD;
    CHECK(append() && append() && append());
    CHECK_EQUAL(model.taken, 0x10001);
    open();
    check_recovery();
}

static void boot_counter_wraps(void)
{
    board_new("s1");
    for (int i = 0; i < 6; i++) {
        open();
    }
    CHECK_EQUAL(journal.boot, 6);
    for (unsigned cell = 0; cell < 4; cell++) { /* as after 65,531 starts */
        uint8_t *at = board.eeprom + 0x010 + 4 * cell;
        ow_put_u16(at, (uint16_t)(0xFFF8 + cell));
        ow_put_u16(at + 2, ow_crc(OW_CRC_INITIAL, at, 2));
    }
    for (uint32_t boot = 0xFFFC; boot != 0x1000C; boot++) {
        open();
        CHECK_EQUAL(journal.boot, (uint16_t)boot);
    }
}

/* Appends and finishes so that slots are used again, with a start in between. */
static void script(void)
{
    open();
    doing = ADOPT;
    if (journal.incarnation == 0) {
        ow_journal_adopt(&journal, 0xCAFE0001);
    }
    settle();
    model.incarnation = 0xCAFE0001;
    doing = CONFIRM;
    ow_journal_confirm(&journal);
    settle();
    model.confirmed = true;
    for (int i = 0; i < 3; i++) {
        if (append() && journal.pending > 2) {
            release_oldest();
            finish_oldest();
        }
    }
    doing = NOTHING;
}

static void age(uint32_t publications)
{
    board_new("s1");
    memset(&model, 0, sizeof model);
    open();
    for (uint32_t i = 0; i < publications; i++) {
        CHECK(append());
        release_oldest();
        finish_oldest();
    }
    CHECK(append());
}

/* Returns whether the power was cut before the script had ended. */
static bool script_is_cut(void)
{
    if (setjmp(board.cut)) {
        return true;
    }
    script();
    return false;
}

static bool cut_and_recover(uint32_t before, uint32_t at, enum tear tear)
{
    age(before);
    board_power_on();
    board.tear = tear;
    board.cut_at_write = at;
    bool cut = script_is_cut();
    board.cut_at_write = 0;
    board_power_on();

    uint16_t boot = model.boot;
    ow_journal_open(&journal);
    settle();
    check_recovery();
    CHECK(journal.boot > boot);
    CHECK(journal.incarnation == 0 ? model.incarnation == 0 : journal.incarnation == 0xCAFE0001);
    CHECK(journal.confirmed ? model.confirmed || doing == CONFIRM : !model.confirmed);
    /* And it works on from there, without using a sequence twice. */
    uint32_t next = journal.next;
    CHECK(append());
    CHECK_EQUAL(journal.next, skip(next + 1));
    return cut;
}

static void a_cut_at_every_write(uint32_t before)
{
    uint32_t cuts = 0;
    bool cut = true;
    for (uint32_t at = 1; cut; at++) {
        for (int tear = 0; tear < TEARS; tear++) {
            cut = cut_and_recover(before, at, (enum tear)tear);
            cuts += cut;
        }
    }
    CHECK(cuts > 100, "only %u cuts", cuts);
}

static void a_cut_at_every_write_of_a_young_eeprom(void)
{
    a_cut_at_every_write(0);
}

static void a_cut_at_every_write_of_an_old_eeprom(void)
{
    a_cut_at_every_write(2 * OW_JOURNAL_SLOTS - 1);
}

static void worn_slots_are_skipped(void)
{
    board_new("s1");
    memset(&model, 0, sizeof model);
    board.dead_cell[0x040 + 3] = true;      /* the first slot's sequence */
    board.dead_cell[0x040 + 2 * 16 + 12] = true; /* the third slot's CRC */
    board.dead_cell[0x010 + 1] = true;      /* the first boot cell */
    open();
    CHECK_EQUAL(journal.boot, 1);
    CHECK(append() && append() && append());
    CHECK_EQUAL(journal.worn, 3);
    open();
    check_recovery();
    CHECK_EQUAL(journal.boot, 2);
}

static void a_stale_mark_does_not_fit_a_new_sequence(void)
{
    board_new("s1");
    memset(&model, 0, sizeof model);
    board.eeprom[0x040 + 14] = 1 ^ 0x55; /* what sequence 1 would write itself */
    board.eeprom[0x040 + 15] = 1 ^ 0xAA;
    open();
    CHECK(append());
    open();
    check_recovery();
}

static void the_applications_bytes_are_bounded(void)
{
    uint8_t bytes[OW_JOURNAL_APPLICATION_SIZE + 1] = {0};
    board_new("s1");
    board.instant = true;
    CHECK(ow_journal_application(bytes, OW_JOURNAL_APPLICATION_SIZE));
    CHECK(board.eeprom[OW_JOURNAL_APPLICATION + OW_JOURNAL_APPLICATION_SIZE - 1] == 0);
    CHECK(!ow_journal_application(bytes, sizeof bytes));
    CHECK_EQUAL(board.eeprom[OW_JOURNAL_APPLICATION + OW_JOURNAL_APPLICATION_SIZE], 0xFF);
}

static uint32_t most_written(uint16_t from, uint16_t to)
{
    uint32_t most = 0;
    for (uint16_t i = from; i < to; i++) {
        most = board.cell_writes[i] > most ? board.cell_writes[i] : most;
    }
    return most;
}

/* A program that crashes after a second is reset by the watchdog, three seconds after each start:
 * a hundred million times in ten years. A supply that is too weak does the same by brown-outs. */
static void a_loop_spares_the_boot_cells(enum ow_reset_cause cause)
{
    enum { RESETS = 30000 };
    board_new("s1");
    board.cause = OW_RESET_POWER_ON;
    open();
    board.cause = cause;
    for (uint32_t i = 1; i <= RESETS; i++) {
        uint16_t boot = journal.boot;
        open();
        CHECK_EQUAL(journal.boot, (uint16_t)(boot + 1));
    }
    CHECK(most_written(0x010, 0x020) * 900 < RESETS, "%u", most_written(0x010, 0x020));
    uint16_t boot = journal.boot;
    board.cause = OW_RESET_POWER_ON;
    open();
    CHECK((int16_t)(journal.boot - boot) > 0, "a number is used twice");
    CHECK((uint16_t)(journal.boot - boot) <= 256, "%u after %u", journal.boot, boot);
}

static void a_loop_of_resets_spares_the_boot_cells(void)
{
    a_loop_spares_the_boot_cells(OW_RESET_WATCHDOG);
}

static void a_loop_of_brown_outs_does_so_too(void)
{
    a_loop_spares_the_boot_cells(OW_RESET_BROWN_OUT);
}

/* Resets and power cuts in any order, also during the write. */
static void no_start_has_the_number_of_another(void)
{
    static bool used[0x10000];
    board_new("s1");
    for (uint32_t i = 0; i < 20000; i++) {
        board.cause = board_random() % 4 ? OW_RESET_WATCHDOG : OW_RESET_BROWN_OUT;
        board_power_on();
        board.tear = (enum tear)(board_random() % TEARS);
        board.cut_at_write = board_random() % 3 ? 0 : 1 + board_random() % 4;
        if (setjmp(board.cut) == 0) {
            open();
            CHECK(!used[journal.boot], "start %u", journal.boot);
            used[journal.boot] = true;
            used[(uint16_t)(journal.boot + 0x8000)] = false;
        }
        board.cut_at_write = 0;
    }
}

static void remaining_publications_end_with_the_life_of_the_cells(void)
{
    const uint32_t life = 100000ul * OW_JOURNAL_SLOTS;
    board_new("s1");
    open();
    CHECK_EQUAL(ow_journal_left(&journal), life - 1);
    for (int more = -1; more <= 1; more++) {
        journal.next = life + (uint32_t)more;
        CHECK_EQUAL(ow_journal_left(&journal), more < 0);
    }
}

/* One changed bit must not make it a mark. */
static void an_old_mark_is_two_bits_away_from_a_new_one(void)
{
    for (unsigned old = 0; old < 256; old++) {
        board_new("s1");
        board.instant = true;
        uint8_t *slot = board.eeprom + 0x040, mask[] = {0x55, 0xAA};
        slot[14] = slot[15] = (uint8_t)old;
        open();
        CHECK(append());
        for (unsigned i = 0; i < 2; i++) {
            int bits = __builtin_popcount(slot[14 + i] ^ 1 ^ mask[i]);
            int before = __builtin_popcount(old ^ 1 ^ mask[i]);
            CHECK_EQUAL(bits, before < 2 ? 8 - before : before); /* else it stays, to save a write */
        }
    }
}

static void the_applications_bytes_come_back(void)
{
    uint8_t bytes[OW_JOURNAL_APPLICATION_SIZE], back[5];
    board_new("s1");
    for (uint8_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(17 * i + 3);
    }
    ow_put_u16(bytes + 6, ow_crc(OW_CRC_INITIAL, bytes + 4, 2));
    CHECK(ow_journal_application(bytes, sizeof bytes));
    CHECK(!ow_hal_eeprom_busy());
    CHECK(memcmp(board.eeprom + OW_JOURNAL_APPLICATION, bytes, sizeof bytes) == 0);
    CHECK(ow_journal_application_read(back, 4, 4));
    CHECK(memcmp(back, bytes + 4, 4) == 0);
    uint32_t writes = board.writes;
    CHECK(ow_journal_application(bytes, sizeof bytes));
    CHECK_EQUAL(board.writes, writes);
}

static void a_search_ends_at_the_head(void)
{
    struct ow_entry entry;
    age(0);
    CHECK(append());
    ow_slot second = ow_journal_following(journal.tail);
    CHECK(ow_journal_find(&journal, second, &entry) && entry.slot == second);
    ow_journal_done(&journal, second, (uint16_t)entry.sequence);
    settle();
    CHECK(!ow_journal_find(&journal, second, &entry));
    CHECK(ow_journal_find(&journal, journal.tail, &entry) && entry.slot != second);
}

static void state_in_ram_is_that_of_the_next_start(void)
{
    age(0);
    ow_journal_adopt(&journal, 7);
    settle();
    CHECK(!journal.confirmed);
    ow_journal_confirm(&journal);
    settle();
    CHECK(journal.confirmed);
    ow_journal_ask(&journal, true);
    settle();
    CHECK(journal.asked);
    ow_journal_ask(&journal, false);
    settle();
    CHECK_EQUAL(journal.asked, 0);
    ow_journal_hold(&journal, 9);
    settle();
    struct ow_journal before = journal;
    open();
    CHECK(journal.confirmed && journal.incarnation == 7 && journal.asked == 0);
    CHECK(journal.held == 9 && journal.held_count == before.held_count);
    CHECK(journal.head == before.head && journal.tail == before.tail);
}

/* The RAM of another board, or of an EEPROM that was erased since. */
static void a_count_in_ram_that_does_not_agree_is_not_used(void)
{
    for (int i = 0; i < 3; i++) {
        board_new("s1");
        board.cause = OW_RESET_WATCHDOG;
        open();
        CHECK_EQUAL(journal.boot, 1);
        open();
        CHECK_EQUAL(journal.boot, 2);
    }
}

static void the_applications_bytes_are_no_boot_cell(void)
{
    uint8_t record[4];
    board_new("s1");
    board.instant = true;
    ow_put_u16(record, 500);
    ow_put_u16(record + 2, ow_crc(OW_CRC_INITIAL, record, 2));
    CHECK(ow_journal_application(record, sizeof record));
    open();
    CHECK_EQUAL(journal.boot, 1);
}

/* Runs `work`; returns whether the power was cut at this write. */
static bool is_cut(uint32_t at, enum tear tear, void (*work)(void))
{
    board_power_on();
    board.tear = tear;
    board.cut_at_write = at;
    bool cut = setjmp(board.cut) != 0;
    if (!cut) {
        work();
    }
    board.cut_at_write = 0;
    board_power_on();
    return cut;
}

/* The newest cell stays as it is until another cell is whole, also if the next cell is worn. */
static void a_cut_beside_a_worn_boot_cell_loses_no_number(void)
{
    for (unsigned worn = 0; worn < 4; worn++) {
        for (volatile uint32_t at = 1; at < 9; at++) {
            for (volatile int tear = 0; tear < TEARS; tear++) {
                board_new("s1");
                for (unsigned i = 0; i < 4 + worn; i++) {
                    open();
                }
                uint16_t boot = journal.boot;
                memset(board.dead_cell + 0x010 + 4 * (boot % 4), true, 4); /* the next one */
                is_cut(at, (enum tear)tear, open);
                open();
                CHECK(journal.boot == boot + 1 || journal.boot == boot + 2, "%u", journal.boot);
            }
        }
    }
}

static uint16_t holding;

static void hold(void)
{
    ow_journal_hold(&journal, holding);
    settle();
}

/* Else a command would be obeyed twice. */
static void a_cut_loses_no_identifier_that_is_held(void)
{
    board_new("s1");
    open();
    for (holding = 1; holding <= 300; holding++) { /* more than the cells can count */
        uint32_t at = holding % 7;
        bool cut = is_cut(at, (enum tear)(board_random() % TEARS), hold);
        ow_journal_open(&journal);
        settle();
        CHECK(journal.held == holding || (cut && journal.held == holding - 1), "%u", journal.held);
        if (journal.held != holding) {
            hold();
        }
    }
}

static void the_marks_of_a_doubtful_session_are_spread(void)
{
    age(0);
    board.instant = true;
    for (int i = 0; i < 400; i++) {
        ow_journal_ask(&journal, true);
        settle();
        ow_journal_open(&journal);
        settle();
        CHECK(journal.asked);
        ow_journal_ask(&journal, false);
        settle();
        ow_journal_open(&journal);
        settle();
        CHECK(!journal.asked);
        finish_oldest();
        CHECK(append());
    }
    for (uint16_t cell = 0; cell < 0x010; cell++) { /* between them is the incarnation */
        bool mark = cell == 0x006 || cell == 0x007 || cell == 0x00E || cell == 0x00F;
        CHECK_EQUAL(board.cell_writes[cell], mark ? 200 : 0);
    }
}

/* The CRC leaves first: here the one of twelve erased bytes, and then the power goes. */
static void an_erased_slot_is_empty_whatever_its_crc(void)
{
    enum { FIRST_SLOT = 0x040, CONTENT = 12 };
    board_new("s1");
    uint8_t *slot = board.eeprom + FIRST_SLOT;
    ow_put_u16(slot + CONTENT, ow_crc(OW_CRC_INITIAL, slot, CONTENT));
    open();
    CHECK_EQUAL(journal.next, 1);
    CHECK_EQUAL(journal.pending, 0);
}

static void wear(void)
{
    enum { READINGS = 6000 };
    age(0);
    memset(board.cell_writes, 0, sizeof board.cell_writes);
    for (int i = 0; i < READINGS; i++) {
        CHECK(append());
        release_oldest();
        finish_oldest();
    }
    uint32_t most = 0;
    for (unsigned i = 0; i < OW_EEPROM_SIZE; i++) {
        most = board.cell_writes[i] > most ? board.cell_writes[i] : most;
    }
    double years = 100000.0 / most * READINGS / (365.25 * 24 * 60);
    printf("  a reading a minute wears the EEPROM out in %.1f years\n", years);
    CHECK(years >= 10);
}

int main(void)
{
    RUN(sequences_and_order);
    RUN(zeroed_eeprom_is_empty);
    RUN(packet_identifier_zero_is_skipped);
    RUN(boot_counter_wraps);
    RUN(a_cut_at_every_write_of_a_young_eeprom);
    RUN(a_cut_at_every_write_of_an_old_eeprom);
    RUN(worn_slots_are_skipped);
    RUN(a_stale_mark_does_not_fit_a_new_sequence);
    RUN(the_applications_bytes_are_bounded);
    RUN(a_loop_of_resets_spares_the_boot_cells);
    RUN(a_loop_of_brown_outs_does_so_too);
    RUN(no_start_has_the_number_of_another);
    RUN(remaining_publications_end_with_the_life_of_the_cells);
    RUN(an_old_mark_is_two_bits_away_from_a_new_one);
    RUN(the_applications_bytes_come_back);
    RUN(a_search_ends_at_the_head);
    RUN(state_in_ram_is_that_of_the_next_start);
    RUN(a_count_in_ram_that_does_not_agree_is_not_used);
    RUN(the_applications_bytes_are_no_boot_cell);
    RUN(a_cut_beside_a_worn_boot_cell_loses_no_number);
    RUN(a_cut_loses_no_identifier_that_is_held);
    RUN(the_marks_of_a_doubtful_session_are_spread);
    RUN(an_erased_slot_is_empty_whatever_its_crc);
    RUN(wear);
    return 0;
}
