/* Sizes of the buffers, chosen for 2 KiB of RAM; a build may set others. */
#ifndef OW_SIZES_H
#define OW_SIZES_H

#include <stdint.h>

#ifndef OW_LINK_RX_MTU
#define OW_LINK_RX_MTU 56 /* longest payload of a frame from the gateway; a full window of such frames fits the UART's receive ring */
#endif

#ifndef OW_LINK_WINDOW
#define OW_LINK_WINDOW 2 /* frames in flight, each way */
#endif

#ifndef OW_LINK_TX_SIZE
#define OW_LINK_TX_SIZE 128 /* bytes written and not yet acknowledged; also the longest packet that can be sent. A power of two */
#endif

#ifndef OW_MQTT_PACKET_SIZE
#define OW_MQTT_PACKET_SIZE 96 /* longest packet that the client takes, at most 129 */
#endif

#ifndef OW_FLIGHTS
#define OW_FLIGHTS 1 /* publications in flight */
#endif

#if OW_LINK_TX_SIZE <= 128
typedef uint8_t ow_size;
#else
typedef uint16_t ow_size;
#endif

#endif
