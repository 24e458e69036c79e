/* The bundle's golden vectors against this policy: @TITLE@
 *
 * Returns 0 and prints PASS where every vector gives what it gave when the policy was exported. Define
 * @MACRO@_NO_MAIN to call @PREFIX@_selftest() from a program of yours. */
#include "@PREFIX@.h"
#include "@PREFIX@_golden.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

int @PREFIX@_selftest(void);

/* Largest |got - expected| over max(1, largest magnitude in the row). */
static double row_error(const float *got, const float *expected, size_t count)
{
    double scale = 1.0;
    double worst = 0.0;
    size_t i;
    for (i = 0u; i < count; i++) {
        const double difference = fabs((double)got[i] - (double)expected[i]);
        const double magnitude = fabs((double)expected[i]);
        scale = magnitude > scale ? magnitude : scale;
        worst = difference > worst || difference != difference ? difference : worst;
    }
    return worst / scale;
}

/* How far one vector is off; more than any tolerance where another action is chosen. */
static double golden_error(size_t row)
{
    @PREFIX@_action_t action[@MACRO@_ACTION_SIZE];
    float head[@MACRO@_HEAD_SIZE];
    double worst;
    if (@PREFIX@_evaluate(golden_obs[row], action, head) != @MACRO@_OK) {
        return HUGE_VAL;
    }
    worst = row_error(head, golden_head[row], @MACRO@_HEAD_SIZE);
#if @MACRO@_CHOOSES
    /* Where two choices are as good as equal, either is right. */
    if (golden_decided[row] != 0u && action[0] != golden_action[row][0]) {
        return HUGE_VAL;
    }
#else
    {
        float acted[@MACRO@_ACTION_SIZE];
        float expected[@MACRO@_ACTION_SIZE];
        double error;
        size_t i;
        for (i = 0u; i < @MACRO@_ACTION_SIZE; i++) {
            acted[i] = (float)action[i];
            expected[i] = (float)golden_action[row][i];
        }
        error = row_error(acted, expected, @MACRO@_ACTION_SIZE);
        worst = error > worst ? error : worst;
    }
#endif
    return worst;
}

#if @MACRO@_OBS_IS_REAL
/* Whether an observation that is not a number is refused. */
static int refuses_nan(void)
{
    @PREFIX@_obs_t obs[@MACRO@_OBS_SIZE];
    @PREFIX@_action_t action[@MACRO@_ACTION_SIZE];
    size_t i;
    for (i = 0u; i < @MACRO@_OBS_SIZE; i++) {
        obs[i] = golden_obs[0][i];
    }
    obs[@MACRO@_OBS_SIZE - 1] = (@PREFIX@_obs_t)NAN;
    return @PREFIX@_act(obs, action) == @MACRO@_BAD_OBSERVATION;
}
#endif

int @PREFIX@_selftest(void)
{
    double worst = 0.0;
    size_t row;
    int failures = 0;
    for (row = 0u; row < @MACRO@_GOLDEN_ROWS; row++) {
        const double error = golden_error(row);
        if (!(error <= @MACRO@_GOLDEN_TOLERANCE)) {
            failures++;
            (void)printf("vector %u is off by %g\n", (unsigned)row, error);
        }
        worst = error > worst ? error : worst;
    }
#if @MACRO@_OBS_IS_REAL
    if (!refuses_nan()) {
        failures++;
        (void)printf("an observation that is not a number was taken\n");
    }
#endif
    (void)printf("%s: %u golden vectors, off by at most %g where %g is allowed\n", failures == 0 ? "PASS" : "FAIL",
                 (unsigned)@MACRO@_GOLDEN_ROWS, worst, @MACRO@_GOLDEN_TOLERANCE);
    return failures == 0 ? 0 : 1;
}

#ifndef @MACRO@_NO_MAIN
int main(void)
{
    return @PREFIX@_selftest();
}
#endif
