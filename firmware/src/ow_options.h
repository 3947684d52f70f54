/*
 * The check that all files of a program were built with the same options. ow_config.h includes it.
 *
 * A sketch's own #define reaches the sketch and not the library's files. A structure of two sizes in
 * one program overwrites memory, so such a build ends with the linker's error, once an option:
 *
 *     undefined reference to `OW_KEYS_is_0_here_but_not_in_the_library__set_it_in_the_build_flags'
 *
 * Each file that includes the library refers to one symbol an option, with the option's value in its
 * name; ow_options.c defines the symbols of the library's values. The references stand in notes of
 * the ELF file, which are not loaded, so they cost the chip nothing. The linker resolves notes
 * before it strips (-s, -S), and --gc-sections keeps them; debug sections vanish unresolved. There
 * is no such check with an object file in another format than ELF, a linker script that discards
 * .note.onceway, or a linker that reports no undefined reference there (GNU ld reports it).
 *
 * A value outside an option's range is an error of the compiler, in every file.
 */
#ifndef OW_OPTIONS_H
#define OW_OPTIONS_H

#include <stdint.h>

/* Calls NUMBER(option, least, most) for each option of 16 bits in ow_config.h, and WIDE(option) for
 * each of 32. */
#define OW_OPTIONS(NUMBER, WIDE)                                                                   \
    NUMBER(OW_KEYS, 0, 1)                                                                          \
    NUMBER(OW_WATCHDOG, 0, 1)                                                                      \
    NUMBER(OW_LORA, 0, 1)                                                                          \
    NUMBER(OW_SX1276, 0, 1)                                                                        \
    NUMBER(OW_PERSISTENCE, 0, 1)                                                                   \
    NUMBER(OW_PUBLICATIONS, 0, 1)                                                                  \
    NUMBER(OW_SUBSCRIPTIONS, 0, 1)                                                                 \
    NUMBER(OW_JOURNAL_MEMORY, 0, 1)                                                                \
    NUMBER(OW_SLOT_CHECK, 0, 1)                                                                    \
    NUMBER(OW_ANSWERS, 0, 1)                                                                       \
    NUMBER(OW_DEBUG, 0, 1)                                                                         \
    NUMBER(OW_SEVERAL_BOARDS, 0, 1)                                                                \
    NUMBER(OW_TURN_MTU, 32, 248)                                                                   \
    NUMBER(OW_TURN_QUEUE, 48, 255)                                                                 \
    NUMBER(OW_LINK_RX_MTU, 1, 240)                                                                 \
    NUMBER(OW_LINK_WINDOW, 1, 4)                                                                   \
    NUMBER(OW_LINK_TX_SIZE, 64, 16384)                                                             \
    NUMBER(OW_MQTT_PACKET_SIZE, 32, 129)                                                           \
    NUMBER(OW_FLIGHTS, 1, 4)                                                                       \
    NUMBER(OW_KEEP_ALIVE_S, 0, 65535)                                                              \
    NUMBER(OW_CLOCK_PARTS, 1, 65535)                                                               \
    NUMBER(OW_LOG_SIZE, 0, 32768)                                                                  \
    NUMBER(OW_JOURNAL_SLOTS, 2, OW_JOURNAL_SLOTS_MAX)                                              \
    WIDE(OW_SESSION_EXPIRY_S)                                                                      \
    WIDE(OW_IDENTITY_PAGE)

#ifdef __cplusplus
#define OW_ASSERT static_assert
#else
#define OW_ASSERT _Static_assert
#endif

#define OW_IN_RANGE(option, least, most)                                                           \
    OW_ASSERT((long long)(option) >= (least) && (long long)(option) <= (most),                     \
        #option " must be from " #least " to " #most);
#define OW_IN_32_BITS(option) OW_ASSERT((uint32_t)(option) == (option), #option " has 32 bits");
OW_OPTIONS(OW_IN_RANGE, OW_IN_32_BITS)

#if defined(__GNUC__) && defined(__ELF__)

#define OW_OPTION_SYMBOL(name)                                                                     \
    name "_is_%c0_here_but_not_in_the_library__set_it_in_the_build_flags"

#define OW_REFER_TO(name, value)                                                                   \
    __asm__ volatile(OW_NOTE(OW_OPTION_SYMBOL(name))::"i"((long long)(value)));
#define OW_NOTE(symbol)                                                                            \
    ".pushsection .note.onceway,\"\",%%note\n\t"                                                   \
    ".balign 4\n\t.long 4, 4, 1\n\t.asciz \"owo\"\n\t.long " symbol "\n\t.popsection"
#define OW_REFER(option, least, most) OW_REFER_TO(#option, option)
#define OW_REFER_WIDE(option)                                                                      \
    OW_REFER_TO(#option, (uint32_t)(option) & 0xFFFF)                                              \
    OW_REFER_TO(#option "_upper_half", (uint32_t)(option) >> 16)

#define OW_DEFINE_AS(name, value)                                                                  \
    __asm__ volatile(".globl " OW_OPTION_SYMBOL(name) "\n\t.set " OW_OPTION_SYMBOL(                \
        name) ", 0" ::"i"((long long)(value)));
#define OW_DEFINE(option, least, most) OW_DEFINE_AS(#option, option)
#define OW_DEFINE_WIDE(option)                                                                     \
    OW_DEFINE_AS(#option, (uint32_t)(option) & 0xFFFF)                                             \
    OW_DEFINE_AS(#option "_upper_half", (uint32_t)(option) >> 16)

/* Never called: the linker drops the empty function. With -flto an archive is searched before the
 * names in assembly are known; the name of an object brings ow_options.c into the program. */
extern const char ow_library_options[];
static void __attribute__((used)) ow_options_refer(void)
{
    OW_OPTIONS(OW_REFER, OW_REFER_WIDE)
#ifdef __AVR__
    __asm__ volatile(OW_NOTE("%c0")::"i"(ow_library_options));
#endif
}

#else

#define OW_DEFINE(option, least, most)
#define OW_DEFINE_WIDE(option)

#endif

#endif
