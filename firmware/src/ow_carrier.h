/*
 * The transport of MQTT packets: the reliable link of a serial line, or the turn link of LoRa. A
 * build has one of the two (OW_LORA). Both offer the interface in this file to the packet encoders
 * and the client; the differences are in ow_mqtt.c.
 */
#ifndef OW_CARRIER_H
#define OW_CARRIER_H

#include "ow_config.h"

#if OW_LORA

#include "ow_turn.h"

typedef struct ow_turn ow_carrier;
typedef struct ow_turn_counts ow_carrier_counts;
#define ow_carrier_close ow_turn_close
#define ow_carrier_room ow_turn_room
#define ow_carrier_put ow_turn_put
#define ow_carrier_ask_time ow_turn_ask_time

#else

#include "ow_link.h"

typedef struct ow_link ow_carrier;
typedef struct ow_link_counts ow_carrier_counts;
#define ow_carrier_close ow_link_close
#define ow_carrier_room ow_link_room
#define ow_carrier_put ow_link_put
#define ow_carrier_ask_time ow_link_ask_time

#endif

#endif
