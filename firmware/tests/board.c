#include "board.h"

#include <string.h>

#include "check.h"
#include "ow_crc.h"

enum { EEPROM_WRITE_MS = 4, MEMORY_WRITE_MS = 5, WAITS = 100 };

struct board board;
static uint8_t identity[OW_IDENTITY_SIZE];
static uint32_t seed = 1;

uint32_t board_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

void board_new(const char *name)
{
    memset(&board, 0, sizeof board);
    memset(board.eeprom, 0xFF, sizeof board.eeprom);
    memset(board.memory, 0xFF, sizeof board.memory);
    memset(identity, 0xFF, sizeof identity);
    memset(identity, 0, 45);
    memcpy(identity, "OWID\1", 5);
    identity[5] = (uint8_t)strlen(name);
    memcpy(identity + 6, name, strlen(name));
    uint16_t crc = ow_crc(OW_CRC_INITIAL, identity, 45);
    identity[45] = (uint8_t)(crc >> 8);
    identity[46] = (uint8_t)crc;
}

void board_identity(const uint8_t *page, uint8_t length)
{
    memcpy(identity, page, length);
}

void board_power_on(void)
{
    board.writes = board.sent = 0;
    board.watched = false;
    board.busy_until = board.memory_busy_until = board.now;
    board.to_device_tail = board.to_device_head;
}

uint16_t ow_hal_millis(void)
{
    return (uint16_t)board.now;
}

enum ow_reset_cause ow_hal_reset_cause(void)
{
    return board.cause;
}

void ow_hal_reboot(void)
{
    board.rebooted = true;
}

int16_t ow_hal_uart_read(void)
{
    return board.to_device_tail == board.to_device_head ? -1
                                                        : board.to_device[board.to_device_tail++];
}

bool ow_hal_uart_writable(void)
{
    return true;
}

void ow_hal_uart_write(uint8_t byte)
{
    board.to_gateway[board.to_gateway_head++] = byte;
    if (++board.sent == board.cut_at_sent) {
        longjmp(board.cut, 1);
    }
}

uint8_t ow_hal_eeprom_read(uint16_t address)
{
    CHECK(address < OW_EEPROM_SIZE, "%u", address);
    CHECK(!ow_hal_eeprom_busy(), "a read would wait for a write");
    return board.eeprom[address];
}

static bool is_busy(uint32_t until, uint16_t *asked)
{
    if ((int32_t)(until - board.now) <= 0) {
        *asked = 0;
        return false;
    }
    if (++*asked == WAITS) { /* a caller waits for it, and time passes */
        *asked = 0;
        board.now++;
    }
    return true;
}

bool ow_hal_eeprom_busy(void)
{
    return is_busy(board.busy_until, &board.asked);
}

static uint8_t torn(uint8_t before, uint8_t after)
{
    switch (board.tear) {
    case TEAR_NOTHING_WRITTEN:
        return before;
    case TEAR_WRITTEN:
        return after;
    case TEAR_ERASED:
        return 0xFF;
    default:
        return after | (uint8_t)board_random(); /* erased, and only some of the zeros programmed */
    }
}

void ow_hal_eeprom_write(uint16_t address, uint8_t value)
{
    CHECK(address < OW_EEPROM_SIZE, "%u", address);
    CHECK(!ow_hal_eeprom_busy(), "a write during a write");
    bool cut = ++board.writes == board.cut_at_write;
    board.cell_writes[address]++;
    if (!board.dead_cell[address]) {
        board.eeprom[address] = cut ? torn(board.eeprom[address], value) : value;
    }
    if (cut) {
        longjmp(board.cut, 1);
    }
    board.busy_until = board.now + (board.instant ? 0 : EEPROM_WRITE_MS);
}

bool ow_memory_begin(void)
{
    return !board.memory_missing;
}

bool ow_memory_busy(void)
{
    return is_busy(board.memory_busy_until, &board.memory_asked);
}

void ow_memory_read(uint8_t *to, uint16_t address, uint8_t length)
{
    CHECK(!ow_memory_busy(), "a read would wait for a write");
    CHECK(address + length <= OW_MEMORY_SIZE, "%u", address);
    memcpy(to, board.memory + address, length);
}

void ow_memory_write(uint16_t address, uint8_t value)
{
    CHECK(address < OW_MEMORY_SIZE && !ow_memory_busy(), "%u", address);
    bool cut = ++board.writes == board.cut_at_write;
    board.memory[address] = cut ? torn(board.memory[address], value) : value;
    if (cut) {
        longjmp(board.cut, 1);
    }
    board.memory_busy_until = board.now + (board.instant ? 0 : MEMORY_WRITE_MS);
}

void ow_hal_identity_read(uint8_t *bytes, uint8_t length)
{
    memcpy(bytes, identity, length);
}

uint16_t ow_hal_adc_read(uint8_t channel)
{
    CHECK(channel < 8, "%u", channel);
    return board.adc;
}

void ow_hal_watch(void)
{
    board.watched = true;
}

#if OW_DEBUG

bool ow_hal_may_call(void)
{
    return !board.interrupted;
}

void ow_hal_wrong_call(void)
{
    longjmp(board.cut, 1);
}

#endif

void ow_hal_led(bool on)
{
    board.led = on;
}

void ow_hal_idle(void)
{
}

uint32_t ow_hal_entropy(void)
{
    return board_random();
}
