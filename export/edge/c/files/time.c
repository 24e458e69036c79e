/* Processor time of one action on this machine, over the golden vectors: the best of ten stretches of 50 ms. */
#include "@PREFIX@.h"
#include "@PREFIX@_golden.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

#define STRETCHES 10
#define STRETCH ((double)CLOCKS_PER_SEC / 20.0)

int main(void)
{
    double best = 0.0;
    int stretch;
    for (stretch = 0; stretch < STRETCHES; stretch++) {
        const clock_t began = clock();
        unsigned long actions = 0u;
        double us;
        while ((double)(clock() - began) < STRETCH) {
            size_t row;
            for (row = 0u; row < @MACRO@_GOLDEN_ROWS; row++) {
                @PREFIX@_action_t action[@MACRO@_ACTION_SIZE];
                (void)@PREFIX@_act(golden_obs[row], action);
            }
            actions += @MACRO@_GOLDEN_ROWS;
        }
        us = (double)(clock() - began) * 1e6 / (double)CLOCKS_PER_SEC / (double)actions;
        best = stretch == 0 || us < best ? us : best;
    }
    (void)printf("microseconds per action: %.3f\n", best);
    return 0;
}
