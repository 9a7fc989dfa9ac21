// Chooses a row's token from its logits: the largest (of equal ones the lowest id), or a seeded draw.
// Reference: cpu/stages.rs (`argmax`).
//
// The draw is keyed by request and token index, so no schedule changes it. Candidates are cut to the top k and to the
// smallest set whose probability reaches p by bisecting on the logit, which needs no sort; equal logits stay together.

constexpr int SAMPLE_THREADS = 512, SAMPLE_WARPS = SAMPLE_THREADS / 32;

struct SampleArgs {
    const Header* header;
    const Row* rows;
    const int2* keys;     // request and output token, by row
    const float* logits;
    int* last_tokens;     // by slot
    unsigned* chosen;     // by row; ~0 where a logit is not finite
    float temperature, top_p; // temperature 0: the largest
    int top_k;            // 0: all
    u64 seed;
};

__device__ __forceinline__ float block_max(float x, float* scratch) {
    for (int o = 16; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
    __syncthreads();
    float y = scratch[0];
    for (int w = 1; w < SAMPLE_WARPS; w++) y = fmaxf(y, scratch[w]);
    return y;
}

extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) sample(const __grid_constant__ SampleArgs a) {
    __shared__ float scratch[SAMPLE_WARPS];
    __shared__ int best_ids[SAMPLE_WARPS];
    __shared__ float bests[SAMPLE_WARPS];
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= a.header->rows) return;
    const float* logits = a.logits + (size_t)blockIdx.x * VOCAB;
    float best = -INFINITY;
    int id = 0x7fffffff;
    bool finite = true;
    for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) {
        float x = logits[i];
        finite &= fabsf(x) < INFINITY;
        if (x > best) { best = x; id = i; }
    }
    bool all_finite = __syncthreads_and(finite);
    for (int o = 16; o; o >>= 1) {
        float x = __shfl_xor_sync(~0u, best, o);
        int j = __shfl_xor_sync(~0u, id, o);
        if (x > best || (x == best && j < id)) { best = x; id = j; }
    }
    if ((threadIdx.x & 31) == 0) { bests[threadIdx.x >> 5] = best; best_ids[threadIdx.x >> 5] = id; }
    __syncthreads();
    for (int w = 0; w < SAMPLE_WARPS; w++)
        if (bests[w] > best || (bests[w] == best && best_ids[w] < id)) { best = bests[w]; id = best_ids[w]; }

    if (a.temperature > 0 && all_finite) {
        // Keep logits >= low: bisect for the largest `low` that keeps k candidates, then p of the probability.
        float inverse = 1.f / a.temperature, low = best - 80.f * a.temperature, total = 0;
        for (int cut = 0; cut < 2; cut++) {
            float from = low, to = best, goal = 0;
            for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) if (logits[i] >= low) goal += __expf((logits[i] - best) * inverse);
            total = block_sum<SAMPLE_WARPS>(goal, scratch);
            if (cut == 0 ? a.top_k == 0 : a.top_p >= 1) continue;
            for (int round = 0; round < 24; round++) {
                float middle = 0.5f * (from + to), kept = 0;
                for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS)
                    if (logits[i] >= middle) kept += cut == 0 ? 1.f : __expf((logits[i] - best) * inverse);
                kept = block_sum<SAMPLE_WARPS>(kept, scratch);
                if (kept >= (cut == 0 ? (float)a.top_k : a.top_p * total)) from = middle; else to = middle;
            }
            low = from;
        }
        float mine = 0;
        for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) if (logits[i] >= low) mine += __expf((logits[i] - best) * inverse);
        total = block_sum<SAMPLE_WARPS>(mine, scratch);
        int2 key = a.keys[blockIdx.x];
        float u = (centred(draw(a.seed, 4, (u64)key.x, (u64)key.y)) + 0.5f) * total;
        // Gumbel-free inversion: thread by thread in order, then within the thread's own candidates.
        __shared__ float shares[SAMPLE_THREADS];
        shares[threadIdx.x] = mine;
        __syncthreads();
        float before = 0;
        int owner = 0;
        for (; owner < SAMPLE_THREADS - 1 && before + shares[owner] < u; owner++) before += shares[owner];
        __shared__ int drawn;
        if (threadIdx.x == 0) drawn = id;
        __syncthreads();
        if ((int)threadIdx.x == owner) {
            for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) if (logits[i] >= low) {
                before += __expf((logits[i] - best) * inverse);
                drawn = i;
                if (before >= u) break;
            }
        }
        __syncthreads();
        id = drawn;
    }
    if (threadIdx.x == 0) {
        a.chosen[blockIdx.x] = all_finite ? (unsigned)id : ~0u;
        if (all_finite) a.last_tokens[a.rows[blockIdx.x].slot] = id;
    }
}
