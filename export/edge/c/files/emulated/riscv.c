/* A RISC-V in an emulator: it counts its instructions itself. */
#include "emulated/measure.h"

extern char __heap_end[];

uint32_t clock_ticks(void)
{
    uint32_t count;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop" : "=r"(count));
    return count;
}

uint32_t clock_milli_instructions(void)
{
    return 1000u;
}

uintptr_t stack_pointer(void)
{
    uintptr_t here;
    __asm__ volatile("mv %0, sp" : "=r"(here));
    return here;
}

uintptr_t stack_floor(void)
{
    return (uintptr_t)__heap_end;
}
