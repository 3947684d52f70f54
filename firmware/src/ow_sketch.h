/* A program for a board: `setup` runs once after the start, `loop` over and over, as in an Arduino
 * sketch. */
#ifndef OW_SKETCH_H
#define OW_SKETCH_H

void setup(void);
void loop(void);

#endif
