// Seeded weights made on the device: the numbers of the host's `Weights::random`, so that a full-size model needs no file.
// Reference: models/weights.rs.

extern "C" __global__ void fill_weights(bf16* to, u64 numbers, u64 seed, u64 stream, float mean, float scale) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < numbers; i += step)
        // No contraction: the host multiplies and adds.
        to[i] = narrow(__fadd_rn(mean, __fmul_rn(scale, centred(draw(seed, 1, stream, i)))));
}

// Unit noise for measuring with a full cache that no prompt filled.
extern "C" __global__ void fill_noise(bf16* to, u64 numbers, u64 seed) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < numbers; i += step)
        to[i] = narrow(3.4641016f * centred(draw(seed, 9, 0, i)));
}
