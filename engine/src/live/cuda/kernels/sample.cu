// Chooses a row's token from its logits: the largest (of equal ones the lowest id), or the largest of logit over temperature
// plus Gumbel noise, which draws from the softmax. Reference: live/sampling.rs, whose noise this is, bit for bit.
//
// Every row says how, so that one captured graph serves every request. The noise is keyed by the request's seed, the output
// token and the id, so no schedule changes a draw. Candidates are cut to the top k and to the smallest set whose probability
// reaches p by bisecting on the logit, which needs no sort; equal logits stay together. A banned id counts as minus infinity;
// the logits themselves stay as they are, since they may be read back.

constexpr int SAMPLE_THREADS = 512, SAMPLE_WARPS = SAMPLE_THREADS / 32;

struct SampleArgs {
    const Header* header;
    const Draw* draws;    // by row
    const float* logits;
    int* inputs;          // by place
    unsigned* chosen;     // by row; ~0 where a logit is not finite
};

// `+ - * /` in f32, in this order, without contraction.
__device__ __forceinline__ float ln(float x) {
    int bits = __float_as_int(x), exponent = (bits >> 23) - 127;
    float mantissa = __int_as_float((bits & 0x007fffff) | 0x3f800000);
    if (mantissa > 1.41421356f) {
        mantissa = __fmul_rn(mantissa, 0.5f);
        exponent++;
    }
    float s = __fdiv_rn(__fsub_rn(mantissa, 1.f), __fadd_rn(mantissa, 1.f)), z = __fmul_rn(s, s);
    float series = __fadd_rn(__fmul_rn(0.11111111f, z), 0.14285715f);
    series = __fadd_rn(__fmul_rn(series, z), 0.2f);
    series = __fadd_rn(__fmul_rn(series, z), 0.33333334f);
    series = __fmul_rn(series, z);
    float twice = __fmul_rn(2.f, s);
    return __fadd_rn(__fmul_rn((float)exponent, 0.69314718f), __fadd_rn(twice, __fmul_rn(twice, series)));
}

__device__ __forceinline__ float gumbel(u64 seed, int token, int id) {
    u64 bits = draw(seed, 4, (u64)token, (u64)id);
    float uniform = __fmul_rn((float)((bits >> 41) * 2 + 1), 1.f / (1u << 24));
    return -ln(-ln(uniform));
}

__device__ __forceinline__ bool is_banned(const int* banned, int id) {
    bool found = false;
    for (int i = 0; i < BANNED_MAX; i++) found |= banned[i] == id;
    return found;
}

// One row's token. BANNED: some ids count as minus infinity; a row without any pays nothing for it.
template <bool BANNED> __device__ __forceinline__ void choose(const SampleArgs& a, const Draw& how) {
    __shared__ float scratch[SAMPLE_WARPS];
    __shared__ int best_ids[SAMPLE_WARPS];
    __shared__ float bests[SAMPLE_WARPS];
    const float* logits = a.logits + (size_t)blockIdx.x * VOCAB;
    const int* banned = (const int*)((const char*)a.draws + how.banned_at);
    auto allowed = [&](int id) { return BANNED && is_banned(banned, id) ? -INFINITY : logits[id]; };
    float best = -INFINITY;
    int id = 0x7fffffff;
    bool finite = true;
    for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) {
        float x = logits[i];
        finite &= fabsf(x) < INFINITY;
        if (BANNED) x = allowed(i);
        if (x > best) { best = x; id = i; }
    }
    bool all_finite = __syncthreads_and(finite);
    block_best<SAMPLE_WARPS>(best, id, bests, best_ids);

    if (how.temperature > 0 && all_finite) {
        float inverse = 1.f / how.temperature, low = -INFINITY;
        // Keep logits >= low: bisect for the largest `low` that keeps k candidates, then p of the probability.
        for (int cut = 0; cut < 2; cut++) {
            if (cut == 0 ? how.top_k == 0 : how.top_p >= 1) continue;
            float from = fmaxf(low, best - 80.f * how.temperature), to = best, total = 0;
            for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) if (allowed(i) >= low) total += __expf((allowed(i) - best) * inverse);
            total = block_sum<SAMPLE_WARPS>(total, scratch);
            for (int round = 0; round < 24; round++) {
                float middle = 0.5f * (from + to), kept = 0;
                for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS)
                    if (allowed(i) >= middle) kept += cut == 0 ? 1.f : __expf((allowed(i) - best) * inverse);
                kept = block_sum<SAMPLE_WARPS>(kept, scratch);
                if (kept >= (cut == 0 ? (float)how.top_k : how.top_p * total)) from = middle; else to = middle;
            }
            low = from;
        }
        float most = -INFINITY;
        int drawn = 0x7fffffff;
        for (int i = threadIdx.x; i < VOCAB; i += SAMPLE_THREADS) if (allowed(i) >= low) {
            float score = (allowed(i) - best) * inverse + gumbel(how.seed, how.token, i);
            if (score > most) { most = score; drawn = i; }
        }
        block_best<SAMPLE_WARPS>(most, drawn, bests, best_ids);
        id = drawn;
    }
    if (threadIdx.x == 0) {
        a.chosen[blockIdx.x] = all_finite ? (unsigned)id : ~0u;
        if (all_finite && how.place >= 0) a.inputs[how.place] = id;
    }
}

extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) sample(const __grid_constant__ SampleArgs a) {
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= a.header->rows) return;
    const Draw how = a.draws[blockIdx.x];
    if (how.banned_at) choose<true>(a, how); else choose<false>(a, how);
}
