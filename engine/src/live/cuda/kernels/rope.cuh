// Rotary positions, with factors that the host computed. Reference: models/rope.rs, cpu/rope.rs.

constexpr int PAIRS = HEAD_DIM / 2;

__device__ __forceinline__ int first_of(int pair) { return ROPE_HALVES ? pair : 2 * pair; }
__device__ __forceinline__ int second_of(int pair) { return ROPE_HALVES ? pair + PAIRS : 2 * pair + 1; }

__device__ __forceinline__ void turn(float& a, float& b, float2 factor) {
    float x = a, y = b;
    if (ROPE_HALVES) {
        a = rounded(rounded(__fmul_rn(x, factor.x)) + rounded(__fmul_rn(-y, factor.y)));
        b = rounded(rounded(__fmul_rn(y, factor.x)) + rounded(__fmul_rn(x, factor.y)));
    } else {
        a = rounded(__fsub_rn(__fmul_rn(x, factor.x), __fmul_rn(y, factor.y)));
        b = rounded(__fadd_rn(__fmul_rn(y, factor.x), __fmul_rn(x, factor.y)));
    }
}
