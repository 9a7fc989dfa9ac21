// What a row's logits say of leaving after this loop: their entropy, their divergence from the last loop's, or the largest.
// Reference: cpu/readout.rs.
//
// One block a row. The LM head has just left the logits in L2, and they are read twice: for the largest, then for the sums.

constexpr int READ_THREADS = 1024, READ_WARPS = READ_THREADS / 32;

struct ReadoutArgs {
    const Header* header;
    const Row* rows;
    const float* logits;   // by row
    float* last;           // by place, of the last loop; divergences only
    float2* signals;       // by row
    int signal;            // 0 entropy, 1 divergence, 2 the largest logit's id
};

extern "C" __global__ void __launch_bounds__(READ_THREADS) exit_signal(const __grid_constant__ ReadoutArgs a) {
    __shared__ float scratch[READ_WARPS];
    __shared__ int ids[READ_WARPS];
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= a.header->rows) return;
    const Row row = a.rows[blockIdx.x];
    const float4* now = (const float4*)(a.logits + (size_t)blockIdx.x * VOCAB);
    float4* last = (float4*)(a.last + (size_t)row.place * VOCAB);
    bool diverges = a.signal == 1, uniform = row.depth == 1;

    float best = -INFINITY, last_best = -INFINITY;
    int id = 0x7fffffff, last_id = 0;
    for (int i = threadIdx.x; i < VOCAB / 4; i += READ_THREADS) {
        float4 x = __ldcg(now + i);
        #pragma unroll
        for (int j = 0; j < 4; j++) if ((&x.x)[j] > best) { best = (&x.x)[j]; id = 4 * i + j; }
        if (diverges && !uniform) {
            float4 y = __ldcg(last + i);
            last_best = fmaxf(fmaxf(last_best, fmaxf(y.x, y.y)), fmaxf(y.z, y.w));
        }
    }
    block_best<READ_WARPS>(best, id, scratch, ids);
    float signal = (float)id;
    if (diverges) {
        if (!uniform) block_best<READ_WARPS>(last_best, last_id, scratch, ids);
        // Before the first loop stands the uniform distribution.
        float sum = 0, last_sum = 0, moved = 0;
        for (int i = threadIdx.x; i < VOCAB / 4; i += READ_THREADS) {
            float4 x = __ldcg(now + i), y = make_float4(0, 0, 0, 0);
            if (!uniform) y = __ldcg(last + i);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                float below = (&x.x)[j] - best, last_below = uniform ? 0.f : (&y.x)[j] - last_best, weight = expf(last_below);
                sum += expf(below);
                last_sum += weight;
                moved += weight * (last_below - below);
            }
            last[i] = x;
        }
        sum = block_sum<READ_WARPS>(sum, scratch);
        last_sum = block_sum<READ_WARPS>(last_sum, scratch);
        moved = block_sum<READ_WARPS>(moved, scratch);
        signal = moved / last_sum - logf(last_sum) + logf(sum);
    } else if (a.signal == 0) {
        float sum = 0, mean = 0;
        for (int i = threadIdx.x; i < VOCAB / 4; i += READ_THREADS) {
            float4 x = __ldcg(now + i);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                float below = (&x.x)[j] - best, weight = expf(below);
                sum += weight;
                mean += weight * below;
            }
        }
        sum = block_sum<READ_WARPS>(sum, scratch);
        signal = logf(sum) - block_sum<READ_WARPS>(mean, scratch) / sum;
    }
    if (threadIdx.x == 0) a.signals[blockIdx.x] = make_float2(signal, 0);
}
