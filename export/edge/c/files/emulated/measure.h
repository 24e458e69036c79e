/* What an emulated processor has to offer. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>

/* A clock that goes by instructions, and how many instructions one of its ticks is worth, times 1000. */
uint32_t clock_ticks(void);
uint32_t clock_milli_instructions(void);

/* Where the caller's stack ends just now, and the lowest address that a stack may reach. */
uintptr_t stack_pointer(void);
uintptr_t stack_floor(void);

#endif
