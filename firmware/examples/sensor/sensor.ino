// The sketch is sensor.c: it is the same with and without the Arduino core. This file makes the
// Arduino IDE find the library.
#include <Onceway.h>
