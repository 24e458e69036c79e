/* The self-test, and what one action costs: instructions (the emulator's clock goes by them) and stack. */
#include "@PREFIX@.h"
#include "@PREFIX@_golden.h"
#include "emulated/measure.h"

#include <stddef.h>
#include <stdio.h>

#define PAINT 0xA5u
#define MARGIN 64u /* bytes below the stack pointer that are left alone while painting */

int @PREFIX@_selftest(void);

static void act(size_t row)
{
    @PREFIX@_action_t action[@MACRO@_ACTION_SIZE];
    (void)@PREFIX@_act(golden_obs[row], action);
}

/* From here down to the deepest byte that one action wrote to: what is painted below stays as it is beyond that. */
static uint32_t stack_of_one_action(void)
{
    const uintptr_t here = stack_pointer();
    volatile uint8_t *at;
    for (at = (uint8_t *)stack_floor(); (uintptr_t)at < here - MARGIN; at++) {
        *at = PAINT;
    }
    act(0u);
    at = (uint8_t *)stack_floor();
    while ((uintptr_t)at < here && *at == PAINT) {
        at++;
    }
    return (uint32_t)(here - (uintptr_t)at);
}

int main(void)
{
    const int failed = @PREFIX@_selftest();
    uint64_t ticks = 0u;
    size_t row;
    for (row = 0u; row < @MACRO@_GOLDEN_ROWS; row++) {
        const uint32_t before = clock_ticks();
        act(row);
        ticks += clock_ticks() - before;
    }
    (void)printf("instructions per action: %lu\n",
                 (unsigned long)(ticks * clock_milli_instructions() / 1000u / @MACRO@_GOLDEN_ROWS));
    (void)printf("stack of one action: %lu bytes\n", (unsigned long)stack_of_one_action());
    return failed;
}
