/*
 * Frames of the reliable link: COBS(body) 0x00, body = control payload crc
 * (gateway/links/README.md).
 *
 * Decoder: bytes from the line in, one at a time; whole bodies out. Encoder: control byte and
 * payload in; bytes for the line out, one at a time, so neither side needs a buffer for the encoded
 * form. The payload lies in a ring whose size is a power of two (mask = size - 1).
 */
#ifndef OW_FRAME_H
#define OW_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "ow_config.h"
#include "ow_crc.h"

#define OW_FRAME_OVERHEAD (1 + sizeof(ow_check)) /* control and CRC */
#define OW_FRAME_PAYLOAD_MAX 240
#define OW_FRAME_WELCOME (OW_KEYS ? 31 : 19) /* must fit, however short data are */
#define OW_FRAME_BODY                                                                             \
    ((OW_LINK_RX_MTU > OW_FRAME_WELCOME ? OW_LINK_RX_MTU : OW_FRAME_WELCOME) + OW_FRAME_OVERHEAD)

struct ow_frame_decoder {
    uint8_t length;  /* bytes decoded so far */
    uint8_t run;     /* bytes left in this COBS run */
    uint8_t state;   /* see ow_frame.c */
    uint8_t body[OW_FRAME_BODY];
};

/* Returns the length of the body (at least OW_FRAME_OVERHEAD) when `byte` ends a well-formed frame,
 * else 0. The body stays until the next call. Bytes that break COBS or are too many or too few
 * give 0, and `*broken` is counted up. The CRC is the caller's. */
uint8_t ow_frame_decode(struct ow_frame_decoder *decoder, uint8_t byte, uint16_t *broken);

struct ow_frame_encoder {
    const uint8_t *ring;
    ow_size mask;
    ow_size offset;
    uint8_t control;
    uint8_t end;      /* length of the body */
    uint8_t position; /* body byte that was consumed last, 0xFF before the first */
    uint8_t run;      /* bytes left in this COBS run */
    uint8_t crc[sizeof(ow_check)];
    bool busy;
};

/* `encoder->ring` and `encoder->mask` are set. length: 0…240 payload bytes from `offset`. lead: put
 * a 0x00 in front, against noise before. */
void ow_frame_begin(struct ow_frame_encoder *encoder, ow_check seed, uint8_t control,
    ow_size offset, uint8_t length, bool lead);

/* Aborts a frame under way; the peer drops the incomplete frame. */
void ow_frame_cut(struct ow_frame_encoder *encoder);

/* The next byte for the line; only while `busy`. */
uint8_t ow_frame_encode(struct ow_frame_encoder *encoder);

#endif
