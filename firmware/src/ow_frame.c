#include "ow_frame.h"

#include "ow_bytes.h"

enum { START, INSIDE, BAD };

static uint8_t end_of_frame(struct ow_frame_decoder *decoder, uint16_t *broken)
{
    uint8_t length = 0;
    if (decoder->state == INSIDE && decoder->run == 0 && decoder->length >= OW_FRAME_OVERHEAD) {
        length = decoder->length;
    } else if (decoder->state != START) {
        (*broken)++;
    }
    decoder->state = START;
    decoder->length = 0;
    return length;
}

uint8_t ow_frame_decode(struct ow_frame_decoder *decoder, uint8_t byte, uint16_t *broken)
{
    if (byte == 0) {
        return end_of_frame(decoder, broken);
    }
    if (decoder->state == START) {
        decoder->state = INSIDE;
        decoder->run = (uint8_t)(byte - 1);
        return 0;
    }
    if (decoder->state == BAD) {
        return 0;
    }
    if (decoder->run == 0) { /* this byte is a code: the run before it ended in a zero */
        decoder->run = byte;
        byte = 0;
    }
    if (decoder->length == OW_FRAME_BODY) {
        decoder->state = BAD;
        return 0;
    }
    decoder->body[decoder->length++] = byte;
    decoder->run--;
    return 0;
}

static uint8_t body_byte(const struct ow_frame_encoder *encoder, uint8_t index)
{
    if (index == 0) {
        return encoder->control;
    }
    uint8_t covered = (uint8_t)(encoder->end - sizeof encoder->crc);
    if (index >= covered) {
        return encoder->crc[index - covered];
    }
    return encoder->ring[(encoder->offset + index - 1) & encoder->mask];
}

#define LEAD 0xFE   /* a 0x00 is due before the frame */
#define BEFORE 0xFF /* nothing of the body is consumed */

void ow_frame_begin(struct ow_frame_encoder *encoder, ow_check seed, uint8_t control,
    ow_size offset, uint8_t length, bool lead)
{
    encoder->control = control;
    encoder->offset = offset;
    encoder->end = (uint8_t)(length + OW_FRAME_OVERHEAD);
    for (uint8_t i = 0; i <= length; i++) {
        seed = ow_check_byte(seed, body_byte(encoder, i));
    }
    seed = (ow_check)~seed;
#if OW_KEYS /* the lowest bits come first in a CRC-32 */
    for (uint8_t i = 0; i < sizeof encoder->crc; i++) {
        encoder->crc[i] = (uint8_t)seed;
        seed >>= 8;
    }
#else
    ow_put_u16(encoder->crc, seed);
#endif
    encoder->position = lead ? LEAD : BEFORE;
    encoder->run = 0;
    encoder->busy = true;
}

void ow_frame_cut(struct ow_frame_encoder *encoder)
{
    encoder->run = 0;
    encoder->position = encoder->end;
}

uint8_t ow_frame_encode(struct ow_frame_encoder *encoder)
{
    if (encoder->position == LEAD) {
        encoder->position = BEFORE;
        return 0;
    }
    uint8_t byte;
    if (encoder->run) {
        encoder->run--;
        byte = body_byte(encoder, ++encoder->position);
    } else if (encoder->position == encoder->end) {
        encoder->busy = false;
        return 0;
    } else {
        uint8_t start = (uint8_t)(encoder->position + 1);
        uint8_t zero = start;
        while (zero < encoder->end && body_byte(encoder, zero) != 0) {
            zero++;
        }
        encoder->run = (uint8_t)(zero - start);
        byte = (uint8_t)(encoder->run + 1);
    }
    if (encoder->run == 0) {
        encoder->position++; /* step over the zero, or over the end, at which this run ends */
    }
    return byte;
}
