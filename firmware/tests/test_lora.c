/* Frames and packed packets of the turn link against tests/vectors/lora.txt. */
#include "ow_ccm.h"
#include "ow_cmac.h"
#include "ow_pack.h"
#include "vectors.h"

static void check_ccm(bool good)
{
    uint8_t key[OW_KEY_SIZE], frame[256], copy[256], content[256];
    bytes("key", key);
    unsigned length = bytes("frame", frame);
    enum ow_direction direction = (enum ow_direction)number("direction");
    uint16_t counter = (uint16_t)number("counter");
    memcpy(copy, frame, length);
    CHECK(ow_ccm_open(key, direction, counter, copy, (uint8_t)length) == good, "%s", line);
    if (!good) {
        return;
    }
    unsigned size = bytes("content", content);
    CHECK_EQUAL(size + OW_CCM_OVERHEAD, length);
    CHECK(memcmp(copy + OW_CCM_HEADER, content, size) == 0, "%s", line);
    memset(copy + OW_CCM_HEADER + size, 0xAA, OW_CCM_TAG);
    ow_ccm_seal(key, direction, counter, copy, (uint8_t)length);
    CHECK(memcmp(copy, frame, length) == 0, "%s", line);
    for (unsigned bit = 0; bit < 8 * length; bit++) {
        memcpy(copy, frame, length);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(!ow_ccm_open(key, direction, counter, copy, (uint8_t)length), "bit %u", bit);
    }
}

static void check_turn(void)
{
    uint8_t packets[300], content[300], answers[300], packet[OW_ANSWER_SIZE];
    unsigned length = bytes("packets", packets);
    unsigned packed = bytes("content", content);
    unsigned answered = bytes("answers", answers);
    unsigned asks = number("time");
    CHECK_EQUAL(ow_pack_turn(packets, (uint8_t)length), packed - asks);
    CHECK(memcmp(packets, content + asks, packed - asks) == 0, "%s", line);
    struct ow_answers state = {.turn = content, .length = (uint8_t)packed};
    unsigned at = 0;
    for (uint8_t size; (size = ow_pack_answer(&state, packet)); at += size) {
        CHECK(at + size <= answered && memcmp(packet, answers + at, size) == 0, "%s", line);
    }
    CHECK_EQUAL(at, answered);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage: test_lora FILE");
    FILE *file = fopen(argv[1], "r");
    CHECK(file, "cannot open %s", argv[1]);
    unsigned count = 0;
    while (fgets(line, sizeof line, file)) {
        if (is("ccm") || is("badccm")) {
            check_ccm(is("ccm"));
            count++;
        } else if (is("turn")) {
            check_turn();
            count++;
        }
    }
    fclose(file);
    CHECK(count > 40, "only %u vectors", count);
    printf("  %u vectors\n", count);
    return 0;
}
