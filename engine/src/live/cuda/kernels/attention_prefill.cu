// Prefill: turns and stores the chunk's keys and values, then causal attention on tensor cores over the paged cache.
// Reference: cpu/layer.rs, cpu/attention.rs.
//
// A block takes 64 queries of one sequence and head and runs through the keys in tiles of 64 from position 0. A tile that
// lies wholly behind a query leaves its sums as they are, so neither chunking nor packing changes a bit.

constexpr int QUERIES = 64, KEYS = 64, PREFILL_THREADS = 128;
constexpr int DIM = (HEAD_DIM + 15) / 16 * 16, DIM_STRIDE = DIM + 8;

struct PrefillArgs {
    const Header* header;
    const Row* tokens;      // one a token of the packed chunks
    const int4* tiles;      // first token, tokens, slot, position of the first
    bf16* qkv;
    const bf16* qk_bias;
    const float2* factors;
    bf16* pool;
    const int* tables;
    unsigned char* depths;
    bf16* out;
    int pages_max, planes, layout, boundary, depth, marks_depth;
};

// The block of a page that a loop of depth `from` wrote.
__device__ __forceinline__ int block_of(const PrefillArgs& a, int page, int from) {
    return a.boundary ? page : page * a.planes + plane_written(a.layout, from);
}

// One block a token: bias, rotation, and the new keys and values into the cache; the turned queries stay in `qkv`.
extern "C" __global__ void prefill_store(const __grid_constant__ PrefillArgs a) {
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= a.header->rows) return;
    Row token = a.tokens[blockIdx.x];
    bf16* qkv = a.qkv + (size_t)blockIdx.x * QKV_WIDTH;
    int page = a.tables[(size_t)token.slot * a.pages_max + token.position / BLOCK_TOKENS], offset = token.position % BLOCK_TOKENS;
    int block = block_of(a, page, a.depth);
    // Query heads, then KV heads: the same channels of the projection and of the bias.
    for (int i = threadIdx.x; i < (HEADS + KV_HEADS) * PAIRS; i += blockDim.x) {
        int head = i / PAIRS, pair = i % PAIRS, at = head * HEAD_DIM;
        float2 factor = a.factors[(size_t)token.position * PAIRS + pair];
        bf16 *x = qkv + at + first_of(pair), *y = qkv + at + second_of(pair);
        float p = widen(*x), q = widen(*y);
        if (a.qk_bias) {
            p = rounded(p + widen(a.qk_bias[at + first_of(pair)]));
            q = rounded(q + widen(a.qk_bias[at + second_of(pair)]));
        }
        turn(p, q, factor);
        bf16* key = a.pool + kv_offset(block, 0, max(head - HEADS, 0), offset);
        *(head < HEADS ? x : key + first_of(pair)) = narrow(p);
        *(head < HEADS ? y : key + second_of(pair)) = narrow(q);
    }
    for (int i = threadIdx.x; i < KV_WIDTH / 8; i += blockDim.x) {
        int head = i * 8 / HEAD_DIM, d = i * 8 % HEAD_DIM;
        *(uint4*)(a.pool + kv_offset(block, 1, head, offset) + d) = load_activations(qkv + ATTENTION + KV_WIDTH + i * 8);
    }
    if (threadIdx.x == 0 && a.marks_depth) a.depths[page * BLOCK_TOKENS + offset] = a.depth;
}

extern "C" __global__ void __launch_bounds__(PREFILL_THREADS) prefill_attention(const __grid_constant__ PrefillArgs a) {
    extern __shared__ __align__(16) char shared[];
    bf16* sk = (bf16*)shared;                 // two stages of keys, then of values
    bf16* sv = sk + 2 * KEYS * DIM_STRIDE;
    launch_dependents();
    wait_for_previous();
    const int4 tile = a.tiles[blockIdx.x];
    const int head = blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2;
    const int first = tile.w, length = first + tile.y;
    const int* table = a.tables + (size_t)tile.z * a.pages_max;
    // A token that left early, in pages that were adopted, is read where it left.
    const bool by_exit = !a.boundary && a.layout == 1;
    const int key_tiles = (length + KEYS - 1) / KEYS;

    auto fetch = [&](int n) {
        if (n < key_tiles) {
            bf16 *to_k = sk + (n & 1) * KEYS * DIM_STRIDE, *to_v = sv + (n & 1) * KEYS * DIM_STRIDE;
            for (int i = threadIdx.x; i < KEYS * (DIM / 8); i += PREFILL_THREADS) {
                int t = i / (DIM / 8), d = i % (DIM / 8) * 8, position = n * KEYS + t;
                bool inside = position < length && d < HEAD_DIM;
                const bf16* from = a.pool;
                if (inside) {
                    int page = table[position / BLOCK_TOKENS], offset = position % BLOCK_TOKENS, depth = a.depth;
                    if (by_exit) depth = min(depth, (int)a.depths[page * BLOCK_TOKENS + offset]);
                    from += kv_offset(block_of(a, page, depth), 0, head / SHARING, offset) + d;
                }
                copy_async(to_k + t * DIM_STRIDE + d, from, inside);
                copy_async(to_v + t * DIM_STRIDE + d, inside ? from + (size_t)KV_HEADS * BLOCK_TOKENS * HEAD_DIM : from, inside);
            }
        }
        copy_commit();
    };

    // Queries as fragments; rows behind the chunk's end are zeros and are not stored.
    unsigned q[DIM / 16][4];
    const bf16* queries = a.qkv + (size_t)tile.x * QKV_WIDTH + head * HEAD_DIM;
    const int row = warp * 16 + g;
    #pragma unroll
    for (int i = 0; i < DIM / 16; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            int r = row + (j & 1) * 8, d = i * 16 + (j >> 1) * 8 + (lane & 3) * 2;
            q[i][j] = r < tile.y && d < HEAD_DIM ? *(const unsigned*)(queries + (size_t)r * QKV_WIDTH + d) : 0;
        }
    float o[DIM / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
    #pragma unroll
    for (int i = 0; i < DIM / 8; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++) o[i][j] = 0;
    const float scale = rsqrtf((float)HEAD_DIM);

    fetch(0);
    for (int n = 0; n < key_tiles; n++) {
        fetch(n + 1);
        copy_wait<1>();
        __syncthreads();
        const bf16 *tk = sk + (n & 1) * KEYS * DIM_STRIDE, *tv = sv + (n & 1) * KEYS * DIM_STRIDE;
        float s[KEYS / 8][4];
        #pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            #pragma unroll
            for (int i = 0; i < 4; i++) s[j][i] = 0;
        #pragma unroll
        for (int i = 0; i < DIM / 16; i++)
            #pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                unsigned b[4];
                load_matrices(b, tk + (j * 16 + (lane & 7) + (lane >> 4) * 8) * DIM_STRIDE + i * 16 + (lane >> 3 & 1) * 8);
                mma(s[2 * j], q[i][0], q[i][1], q[i][2], q[i][3], b[0], b[1]);
                mma(s[2 * j + 1], q[i][0], q[i][1], q[i][2], q[i][3], b[2], b[3]);
            }
        // Causal: a query at position p sees keys up to p.
        float largest[2] = {m[0], m[1]};
        #pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = n * KEYS + j * 8 + (lane & 3) * 2 + (i & 1), position = first + row + (i >> 1) * 8;
                s[j][i] = key <= position ? s[j][i] * scale : -INFINITY;
                largest[i >> 1] = fmaxf(largest[i >> 1], s[j][i]);
            }
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 1));
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 2));
            float correction = m[h] == -INFINITY ? 0.f : __expf(m[h] - largest[h]);
            m[h] = largest[h];
            l[h] *= correction;
            #pragma unroll
            for (int i = 0; i < DIM / 8; i++) {
                o[i][2 * h] *= correction;
                o[i][2 * h + 1] *= correction;
            }
        }
        #pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                s[j][i] = s[j][i] == -INFINITY ? 0.f : __expf(s[j][i] - m[i >> 1]);
                l[i >> 1] += s[j][i];
            }
        #pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            unsigned p[4] = {pack(s[2 * j][0], s[2 * j][1]), pack(s[2 * j][2], s[2 * j][3]), pack(s[2 * j + 1][0], s[2 * j + 1][1]),
                             pack(s[2 * j + 1][2], s[2 * j + 1][3])};
            #pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                unsigned b[4];
                load_matrices_transposed(b, tv + (j * 16 + (lane & 15)) * DIM_STRIDE + i * 16 + (lane >> 4) * 8);
                mma(o[2 * i], p[0], p[1], p[2], p[3], b[0], b[1]);
                mma(o[2 * i + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        l[h] += __shfl_xor_sync(~0u, l[h], 1);
        l[h] += __shfl_xor_sync(~0u, l[h], 2);
        int r = row + h * 8;
        if (r >= tile.y) continue;
        bf16* out = a.out + (size_t)(tile.x + r) * ATTENTION + head * HEAD_DIM;
        #pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            int d = i * 8 + (lane & 3) * 2;
            if (d < HEAD_DIM) *(unsigned*)(out + d) = pack(o[i][2 * h] / l[h], o[i][2 * h + 1] / l[h]);
        }
    }
}
