/* Start-up of a Cortex-M in an emulator, and its SysTick timer as the clock. */
#include "emulated/measure.h"

#include <stdlib.h>
#include <string.h>

#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define SYSTICK_RELOAD  (*(volatile uint32_t *)0xE000E014u)
#define SYSTICK_VALUE   (*(volatile uint32_t *)0xE000E018u)
#define CPACR           (*(volatile uint32_t *)0xE000ED88u)
#define TICKS_MASK 0xFFFFFFu
#define LOOPS 200000u

extern uint32_t __data_start[], __data_end[], __data_load[], __bss_start[], __bss_end[], __stack_top[], end[];
extern void initialise_monitor_handles(void);
int main(void);
void reset(void);

void reset(void)
{
#ifdef __ARM_FP
    CPACR |= 0xF00000u; /* the floating-point unit */
#endif
    (void)memcpy(__data_start, __data_load, (size_t)((char *)__data_end - (char *)__data_start));
    (void)memset(__bss_start, 0, (size_t)((char *)__bss_end - (char *)__bss_start));
    SYSTICK_RELOAD = TICKS_MASK;
    SYSTICK_VALUE = 0u;
    SYSTICK_CONTROL = 5u;
    initialise_monitor_handles();
    exit(main());
}

static void fault(void)
{
    abort();
}

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    handler handlers[15];
} vectors = {__stack_top, {reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault}};

uint32_t clock_ticks(void)
{
    return TICKS_MASK - SYSTICK_VALUE;
}

/* By a loop of two instructions. */
uint32_t clock_milli_instructions(void)
{
    uint32_t loops = LOOPS;
    const uint32_t before = clock_ticks();
    __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b\n" : "+l"(loops) : : "cc");
    return (uint32_t)((uint64_t)LOOPS * 2u * 1000u / ((clock_ticks() - before) & TICKS_MASK));
}

uintptr_t stack_pointer(void)
{
    uintptr_t here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
}

uintptr_t stack_floor(void)
{
    return (uintptr_t)end + 4096u; /* what printf may take from the heap lies below */
}
