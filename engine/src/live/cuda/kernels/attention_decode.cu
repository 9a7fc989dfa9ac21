// The kernels of decode attention, and how a row attends whose every query head has keys and values of its own.

// The keys and values of every row, before any row attends.
extern "C" __global__ void decode_store(const __grid_constant__ DecodeArgs a) {
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= a.header->rows) return;
    const Row row = a.rows[blockIdx.x];
    const int depth = a.depth ? a.depth : row.depth;
    const bf16* qkv = a.qkv + (size_t)blockIdx.x * QKV_WIDTH;
    bf16* to = a.pool + (size_t)address(a, row.slot, depth, row.position, true) * HEAD_DIM;
    for (int i = threadIdx.x; i < KV_HEADS * PAIRS; i += blockDim.x) {
        int head = i / PAIRS, pair = i % PAIRS;
        const bf16* bias = a.qk_bias ? a.qk_bias + ATTENTION + head * HEAD_DIM : nullptr;
        float x, y;
        turned(qkv + ATTENTION + head * HEAD_DIM, bias, a.factors[(size_t)row.position * PAIRS + pair], pair, x, y);
        bf16* key = to + (size_t)head * BLOCK_TOKENS * HEAD_DIM;
        key[first_of(pair)] = narrow(x);
        key[second_of(pair)] = narrow(y);
    }
    for (int i = threadIdx.x; i < KV_WIDTH; i += blockDim.x)
        to[(size_t)(KV_HEADS + i / HEAD_DIM) * BLOCK_TOKENS * HEAD_DIM + i % HEAD_DIM] = qkv[ATTENTION + KV_WIDTH + i];
    if (threadIdx.x == 0 && a.marks_depth) {
        int page = a.tables[(size_t)row.slot * a.pages_max + row.position / BLOCK_TOKENS];
        a.depths[page * BLOCK_TOKENS + row.position % BLOCK_TOKENS] = depth;
    }
}

#if HEADS == KV_HEADS
// Few rows take 8 warps a block, so that a split's keys and values are all on their way before the wait. STORED: the new
// keys and values are in the cache already.
template <int WARPS, bool STORED> __device__ __forceinline__ void attend(const DecodeArgs& a) {
    __shared__ int addresses[SPLIT];
    __shared__ __align__(16) float query[HEAD_DIM];
    __shared__ __align__(16) bf16 new_key[HEAD_DIM], new_value[HEAD_DIM];
    __shared__ float sums[WARPS * 2][HEAD_DIM];
    __shared__ float2 stats[WARPS * 2];
    __shared__ int shared_next;
    __shared__ bool is_last;
    launch_dependents();
    const int tid = threadIdx.x, warp = tid >> 5, half = (tid >> 4) & 1, c = tid & 15;
    const bool active = c * 8 < HEAD_DIM;
    const int work = a.header->items * HEADS;
    const float scale = rsqrtf((float)HEAD_DIM);
    bool waited = false;

    for (int w = blockIdx.x; w < work;) {
        const Item item = a.items[w / HEADS];
        const int head = w % HEADS;
        const int length = item.position + 1, t0 = item.split * SPLIT, t1 = min(length, t0 + SPLIT);
        const int depth = a.depth ? a.depth : item.depth, fresh = STORED ? item.fresh : length - 1;
        const int token = t0 + tid, here = tid < SPLIT && token < t1;
        if (here && (!STORED || token < fresh)) addresses[tid] = address(a, item.slot, depth, token, token >= fresh);
        __syncthreads();

        // Keys and values of earlier tokens were stored by earlier batches, so the first ones are fetched before the wait.
        const size_t head_base = (size_t)head * BLOCK_TOKENS;
        uint4 k[8], v[8];
        auto fetch = [&](int g) {
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                int t = g + j * 2 + half;
                k[j] = make_uint4(0, 0, 0, 0);
                v[j] = make_uint4(0, 0, 0, 0);
                if (active && t < t1 && t < fresh) {
                    const bf16* p = a.pool + (head_base + addresses[t - t0]) * HEAD_DIM + c * 8;
                    k[j] = load_kv(p);
                    v[j] = load_kv(p + (size_t)KV_HEADS * BLOCK_TOKENS * HEAD_DIM);
                }
            }
        };
        fetch(t0 + warp * 16);
        float2 factor = make_float2(0, 0);
        if (tid < PAIRS) factor = a.factors[(size_t)item.position * PAIRS + tid];
        if (!waited) wait_for_previous();
        waited = true;
        // Of the tokens from `fresh` on some ran with this one, and some have left: the depths say so now.
        if (STORED && here && token >= fresh) addresses[tid] = address_now(a, item.slot, depth, token);
        if (tid == 0) shared_next = gridDim.x + atomicAdd(a.next, 1);

        const bf16* qkv = a.qkv + (size_t)item.row * QKV_WIDTH;
        if (tid < PAIRS) {
            const int at = head * HEAD_DIM;
            float x, y;
            turned(qkv + at, a.qk_bias ? a.qk_bias + at : nullptr, factor, tid, x, y);
            query[first_of(tid)] = x;
            query[second_of(tid)] = y;
        }
        if (!STORED && t1 == length) {
            bf16* to = a.pool + (head_base + addresses[length - 1 - t0]) * HEAD_DIM;
            if (tid < PAIRS) {
                const int at = ATTENTION + head * HEAD_DIM;
                float x, y;
                turned(qkv + at, a.qk_bias ? a.qk_bias + at : nullptr, factor, tid, x, y);
                int i = first_of(tid), j = second_of(tid);
                to[i] = new_key[i] = narrow(x);
                to[j] = new_key[j] = narrow(y);
            }
            to += (size_t)KV_HEADS * BLOCK_TOKENS * HEAD_DIM;
            if (tid < HEAD_DIM) to[tid] = new_value[tid] = qkv[ATTENTION + KV_WIDTH + head * HEAD_DIM + tid];
            if (tid == 0 && head == 0 && a.marks_depth) {
                int page = a.tables[(size_t)item.slot * a.pages_max + item.position / BLOCK_TOKENS];
                a.depths[page * BLOCK_TOKENS + item.position % BLOCK_TOKENS] = depth;
            }
        }
        __syncthreads();

        float q[8], m = -INFINITY, l = 0, o[8] = {};
        #pragma unroll
        for (int i = 0; i < 8; i++) q[i] = active ? query[c * 8 + i] : 0;
        #pragma unroll 1
        for (int at = t0 + warp * 16; at < t1;) {
            // The new token is in one warp's last group.
            if (fresh < at + 16 && active) {
                #pragma unroll
                for (int j = 0; j < 8; j++) {
                    int t = at + j * 2 + half;
                    if (STORED && t >= fresh && t < t1) {
                        const bf16* p = a.pool + (head_base + addresses[t - t0]) * HEAD_DIM + c * 8;
                        k[j] = load_kv(p);
                        v[j] = load_kv(p + (size_t)KV_HEADS * BLOCK_TOKENS * HEAD_DIM);
                    } else if (!STORED && t == length - 1) {
                        k[j] = *(const uint4*)(new_key + c * 8);
                        v[j] = *(const uint4*)(new_value + c * 8);
                    }
                }
            }
            float s[8], largest = m;
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                int t = at + j * 2 + half;
                float f[8], dot = 0;
                unpack8(k[j], f);
                #pragma unroll
                for (int i = 0; i < 8; i++) dot += f[i] * q[i];
                #pragma unroll
                for (int step = 8; step; step >>= 1) dot += __shfl_xor_sync(~0u, dot, step);
                s[j] = t < t1 ? dot * scale : -INFINITY;
                largest = fmaxf(largest, s[j]);
            }
            // -inf minus -inf is not a number: a half that has seen no token yet keeps zeros.
            float correction = m == -INFINITY ? 0.f : __expf(m - largest);
            l *= correction;
            #pragma unroll
            for (int i = 0; i < 8; i++) o[i] *= correction;
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                float p = s[j] == -INFINITY ? 0.f : __expf(s[j] - largest), f[8];
                l += p;
                unpack8(v[j], f);
                #pragma unroll
                for (int i = 0; i < 8; i++) o[i] += p * f[i];
            }
            m = largest;
            at += WARPS * 16;
            if (at < t1) fetch(at);
        }

        // The half warps of this block, in order.
        if (active)
            #pragma unroll
            for (int i = 0; i < 8; i++) sums[warp * 2 + half][c * 8 + i] = o[i];
        if (c == 0) stats[warp * 2 + half] = make_float2(m, l);
        __syncthreads();
        float largest = -INFINITY, total = 0, value = 0;
        #pragma unroll
        for (int i = 0; i < WARPS * 2; i++) largest = fmaxf(largest, stats[i].x);
        #pragma unroll
        for (int i = 0; i < WARPS * 2; i++) {
            float e = stats[i].x == -INFINITY ? 0.f : __expf(stats[i].x - largest);
            total += e * stats[i].y;
            if (tid < HEAD_DIM) value += e * sums[i][tid];
        }
        if (item.splits == 1) {
            if (tid < HEAD_DIM) a.out[(size_t)item.row * ATTENTION + head * HEAD_DIM + tid] = narrow(value / total);
        } else {
            if (tid < HEAD_DIM) a.parts[(size_t)w * HEAD_DIM + tid] = value;
            if (tid == 0) a.part_sums[w] = make_float2(largest, total);
        }
        if (item.splits > 1) {
            __threadfence();
            __syncthreads();
            if (tid == 0) {
                unsigned* arrived = a.arrived + item.row * HEADS + head;
                is_last = atomicAdd(arrived, 1) == (unsigned)item.splits - 1;
                if (is_last) *arrived = 0;
            }
            __syncthreads();
            if (is_last) {
                __threadfence();
                float top = -INFINITY, sum = 0, x = 0;
                for (int s = 0; s < item.splits; s++) top = fmaxf(top, __ldcg(&a.part_sums[(size_t)(item.first + s) * HEADS + head]).x);
                for (int s = 0; s < item.splits; s++) {
                    size_t other = (size_t)(item.first + s) * HEADS + head;
                    float2 stat = __ldcg(&a.part_sums[other]);
                    float e = __expf(stat.x - top);
                    sum += e * stat.y;
                    if (tid < HEAD_DIM) x += e * __ldcg(&a.parts[other * HEAD_DIM + tid]);
                }
                if (tid < HEAD_DIM) a.out[(size_t)item.row * ATTENTION + head * HEAD_DIM + tid] = narrow(x / sum);
            }
        }
        w = shared_next;
        __syncthreads();
    }
    if (!waited) wait_for_previous();
}

#endif

// Warps of a block, and blocks of a multiprocessor; `ops.rs` has the same.
#if HEADS == KV_HEADS
constexpr int WARPS = 4, BLOCKS = 4, WARPS_WIDE = 8, BLOCKS_WIDE = 2;
#else
constexpr int WARPS = 1, BLOCKS = HEAD_DIM <= 64 ? 16 : 12, WARPS_WIDE = 4, BLOCKS_WIDE = 3;
#endif
extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS) decode_attention(const __grid_constant__ DecodeArgs a) { attend<WARPS, false>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS) decode_attention_stored(const __grid_constant__ DecodeArgs a) { attend<WARPS, true>(a); }
extern "C" __global__ void __launch_bounds__(WARPS_WIDE * 32, BLOCKS_WIDE) decode_attention_wide(const __grid_constant__ DecodeArgs a) { attend<WARPS_WIDE, false>(a); }
