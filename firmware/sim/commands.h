/* The command lines of the control socket and of recordings; README.md is their reference. */
#ifndef SIM_COMMANDS_H
#define SIM_COMMANDS_H

#include "simulator.h"

/* Answer one command line. False if it is refused. */
bool command_answer(struct simulator *simulator, char *line, char *reply, bool *wants_events);

#endif
