"""Small C functions that steps share; a file gets those that it calls."""

from __future__ import annotations

FINITE = """\
/* Whether every element is a finite number. */
static int {name}(const {type} *values, size_t count)
{{
    size_t i;
    for (i = 0u; i < count; i++) {{
        if (!(values[i] >= -FLT_MAX && values[i] <= FLT_MAX)) {{
            return 0;
        }}
    }}
    return 1;
}}
"""

BLOCKS = """\
/* How many outputs of a layer are summed at once: as many as the registers of a vector unit, or of none, hold. */
#if defined(__SSE2__) || defined(_M_X64) || defined(__ARM_NEON) || defined(__riscv_vector)
#define BLOCK 64u
#else
#define BLOCK 8u
#endif
#define WIDTH(outputs) ((outputs) < BLOCK ? (outputs) : BLOCK)
"""

HELPERS = {
    "clamp": """\
static float clamp(float value, float low, float high)
{
    const float above = value < low ? low : value;
    return above > high ? high : above;
}
""",
    "relu_each": """\
static void relu_each(float *values, size_t count)
{
    size_t i;
    for (i = 0u; i < count; i++) {
        values[i] = values[i] < 0.0f ? 0.0f : values[i];
    }
}
""",
    "tanh_inside": """\
/* tanh for |x| <= 9, beyond which it is 1 in float32: the rational approximation of Eigen and ONNX Runtime. */
static float tanh_inside(float x)
{
    const float s = x * x;
    float p = -2.76076847742355e-16f;
    float q = 1.19825839466702e-06f;
    p = p * s + 2.00018790482477e-13f;
    p = p * s - 8.60467152213735e-11f;
    p = p * s + 5.12229709037114e-08f;
    p = p * s + 1.48572235717979e-05f;
    p = p * s + 6.37261928875436e-04f;
    p = p * s + 4.89352455891786e-03f;
    q = q * s + 1.18534705686654e-04f;
    q = q * s + 2.26843463243900e-03f;
    q = q * s + 4.89352518554385e-03f;
    return p * x / q;
}
""",
    "tanh_each": """\
/* Two loops, since compilers vectorise each of them, and not both in one. */
static void tanh_each(float *values, size_t count)
{
    size_t i;
    for (i = 0u; i < count; i++) {
        values[i] = clamp(values[i], -9.0f, 9.0f);
    }
    for (i = 0u; i < count; i++) {
        values[i] = tanh_inside(values[i]);
    }
}
""",
    "on_grid": """\
/* A real number in steps of a grid, halves to even. What is not a number becomes the lowest. */
static int32_t on_grid(float value, float step, float low, float high)
{
    const float steps = value / step;
    const float above = steps > low ? steps : low;
    return (int32_t)rintf(above < high ? above : high);
}
""",
    "scaled": """\
/* sum * multiplier / 2^shift, to the nearest. */
static int32_t scaled(int32_t sum, int32_t multiplier, unsigned shift)
{
    return (int32_t)(((int64_t)sum * multiplier + ((int64_t)1 << (shift - 1u))) >> shift);
}
""",
    "within": """\
static int32_t within(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : (value > high ? high : value);
}
""",
    "step_of_tanh": """\
/* tanh in steps of int8: how many thresholds lie at or below |argument|, with its sign. */
static int8_t step_of_tanh(int32_t argument, const int32_t thresholds[128])
{
    const int32_t magnitude = argument < 0 ? -argument : argument;
    int32_t steps = 0;
    steps += magnitude >= thresholds[steps + 63] ? 64 : 0;
    steps += magnitude >= thresholds[steps + 31] ? 32 : 0;
    steps += magnitude >= thresholds[steps + 15] ? 16 : 0;
    steps += magnitude >= thresholds[steps + 7] ? 8 : 0;
    steps += magnitude >= thresholds[steps + 3] ? 4 : 0;
    steps += magnitude >= thresholds[steps + 1] ? 2 : 0;
    steps += magnitude >= thresholds[steps + 0] ? 1 : 0;
    if (argument >= 0) {
        return (int8_t)steps;
    }
    return (int8_t)(magnitude >= thresholds[127] ? -128 : -steps);
}
""",
}
"""By name; the order is the order in a file."""

NEEDS = {"tanh_each": ("clamp", "tanh_inside"), "tanh_of": ("clamp", "tanh_inside")}
"""What a helper calls itself."""
