/* The library for Arduino sketches, in C++. What it offers stands in ow_mqtt.h; the examples show
 * how it is used. */
#ifndef ONCEWAY_H
#define ONCEWAY_H

extern "C" {
#include "ow_bytes.h"
#include "ow_clock.h"
#include "ow_hal.h"
#include "ow_mqtt.h"
#include "ow_senml.h"
}

#endif
