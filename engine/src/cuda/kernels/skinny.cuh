// y = x W^T for few rows: the weights are streamed once, at the memory's speed. Reference: cpu/linear.rs.
//
// The warps of a block split K; each streams its share of 8 weight rows at a time from memory to registers, where they are
// the 8-column operand of mma.sync. The order of k inside a product is free, so that plain row-major weights serve as
// 16-byte lanes. Partial sums are added in the order of the warps (and, where K is too long for the activations to fit in
// shared memory, of the passes), whatever the number of rows: a row's bits do not depend on its batch.

#ifndef SKINNY_WARPS
#define SKINNY_WARPS 16
#endif
constexpr int SKINNY_THREADS = SKINNY_WARPS * 32, SKINNY_K_MAX = 5632;
enum Epilogue { STORE, STORE_F32, STORE_GATED };

// As few passes as the activations allow, and of those a number that gives every warp the same share if there is one.
__host__ __device__ constexpr int passes(int chunks, int fewest) {
    for (int p = fewest; p < 2 * fewest; p++)
        if (fewest > 1 && chunks % (p * SKINNY_WARPS) == 0) return p;
    return fewest;
}

template <int ROWS, int K, int EPILOGUE> struct Skinny {
    static_assert(K % 8 == 0, "rows of weights are read 16 bytes at a time");
    static constexpr int CHUNKS = (K + 31) / 32;                     // of 32 k
    static constexpr int PASSES = passes(CHUNKS, (K + SKINNY_K_MAX - 1) / SKINNY_K_MAX);
    static constexpr int PASS_CHUNKS = (CHUNKS + PASSES - 1) / PASSES;
    static constexpr int WARP_CHUNKS = (PASS_CHUNKS + SKINNY_WARPS - 1) / SKINNY_WARPS;
    static constexpr int WARPS_USED = (PASS_CHUNKS + WARP_CHUNKS - 1) / WARP_CHUNKS;
    static constexpr int WIDTH = WARPS_USED * WARP_CHUNKS * 32;       // of the activations in shared memory
    // Two rows of a quarter warp fall on different banks if a row ends in the middle of the 32 banks.
    static constexpr int STRIDE = WIDTH + (96 - WIDTH % 64) % 64;
    // No used warp and no lane is ever without a chunk.
    static constexpr bool EXACT = PASSES * WARPS_USED * WARP_CHUNKS * 32 == K;
    static constexpr int AHEAD = WARP_CHUNKS >= 7 ? 1 : 2;            // tiles in flight
    static constexpr int GROUP = ROWS == 8 ? 16 : 4;                  // tiles between two reductions: barriers cost bandwidth
    static constexpr int OUTPUTS = EPILOGUE == STORE_GATED ? 4 : 8;   // per tile
    // Where the ring leaves registers for it, the next kernel's blocks fit beside this one's and fetch weights meanwhile.
    static constexpr int BLOCKS = ROWS == 8 && (SKINNY_WARPS == 8 || WARP_CHUNKS < 7) ? 2 : 1;
    static_assert(GROUP % AHEAD == 0, "a group starts with the ring's first slot");
    static_assert(PASSES == 1 || AHEAD == 1, "the ring's slots follow the tiles of a pass");

    const bf16* weights;
    int outputs, tiles;

    // The first of this lane's numbers in tile number `t` of a pass. A gated tile pairs 4 gate rows with 4 up rows.
    __device__ __forceinline__ const bf16* at(int pass, int t) const {
        int lane = threadIdx.x & 31, g = lane >> 2, tile = blockIdx.x + t * gridDim.x;
        int row = EPILOGUE == STORE_GATED ? (g < 4 ? tile * 4 + g : outputs + tile * 4 + g - 4) : tile * 8 + g;
        return weights + (size_t)row * K + first_k(pass);
    }
    __device__ __forceinline__ static int first_k(int pass) {
        return (pass * PASS_CHUNKS + (int)(threadIdx.x >> 5) * WARP_CHUNKS) * 32 + (int)(threadIdx.x & 3) * 8;
    }
    __device__ __forceinline__ static bool used() { return WARPS_USED == SKINNY_WARPS || threadIdx.x >> 5 < WARPS_USED; }
    __device__ __forceinline__ static bool has(int pass, int i) {
        return EXACT || ((int)(threadIdx.x >> 5) * WARP_CHUNKS + i < PASS_CHUNKS && first_k(pass) + i * 32 < K);
    }
    __device__ __forceinline__ static void load(uint4& to, const bf16* p, bool exists, int pass, int i) {
        // Always assigned: a load without an else would keep the old value alive.
        to = make_uint4(0, 0, 0, 0);
        if (exists && has(pass, i)) to = load_weights(p + i * 32);
    }

    // `stage(pass, to, rows)` puts the activations of a pass into shared memory, as rows of `STRIDE`; it runs behind the wait.
    template <class Stage> __device__ __forceinline__ void run(Stage stage, void* y, int rows) {
        extern __shared__ __align__(16) char shared[];
        bf16* sx = (bf16*)shared;
        float* partial = (float*)(shared + ROWS * STRIDE * 2);
        float* carried = partial + GROUP * SKINNY_WARPS * ROWS * 8;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2;
        const int all_tiles = outputs / OUTPUTS;
        tiles = (all_tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
        rows -= blockIdx.y * ROWS;
        if (rows > ROWS) rows = ROWS;

        uint4 ring[AHEAD * WARP_CHUNKS];
        #pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const bool exists = used() && s < tiles;
            const bf16* p = at(0, exists ? s : 0);
            #pragma unroll
            for (int i = 0; i < WARP_CHUNKS; i++) load(ring[s * WARP_CHUNKS + i], p, exists, 0, i);
        }
        wait_for_previous();

        #pragma unroll 1
        for (int pass = 0; pass < PASSES; pass++) {
            if (pass) __syncthreads();
            stage(pass, sx, rows);
            __syncthreads();
            const uint4* xa = (const uint4*)(sx + g * STRIDE + warp * WARP_CHUNKS * 32 + (lane & 3) * 8);
            const uint4* xb = (const uint4*)(sx + (g + 8) * STRIDE + warp * WARP_CHUNKS * 32 + (lane & 3) * 8);
            #pragma unroll 1
            for (int t0 = 0; t0 < tiles; t0 += GROUP) {
                const int group = tiles - t0 < GROUP ? tiles - t0 : GROUP;
                #pragma unroll 1
                for (int q0 = 0; q0 < group; q0 += AHEAD)
                #pragma unroll
                for (int ahead = 0; ahead < AHEAD; ahead++) if (q0 + ahead < group) {
                    const int q = q0 + ahead;
                    float c[4] = {0, 0, 0, 0};
                    // Behind a pass's last tile comes the next pass's first.
                    const bool wraps = t0 + q + AHEAD >= tiles;
                    const int next_pass = wraps ? pass + 1 : pass, next = wraps ? t0 + q + AHEAD - tiles : t0 + q + AHEAD;
                    const bool exists = used() && next_pass < PASSES;
                    const bf16* p = at(exists ? next_pass : 0, exists ? next : 0);
                    #pragma unroll
                    for (int i = 0; i < WARP_CHUNKS; i++) {
                        const int slot = ahead * WARP_CHUNKS + i;
                        uint4 b = ring[slot], a = make_uint4(0, 0, 0, 0), d = make_uint4(0, 0, 0, 0);
                        load(ring[slot], p, exists, next_pass, i);
                        if (g < rows && used()) a = xa[i * 4];
                        if (ROWS == 16 && g + 8 < rows && used()) d = xb[i * 4];
                        mma(c, a.x, d.x, a.y, d.y, b.x, b.y);
                        mma(c, a.z, d.z, a.w, d.w, b.z, b.w);
                    }
                    float* to = partial + ((q * SKINNY_WARPS + warp) * ROWS + g) * 8 + (lane & 3) * 2;
                    *(float2*)to = make_float2(c[0], c[1]);
                    if (ROWS == 16) *(float2*)(to + 64) = make_float2(c[2], c[3]);
                }
                __syncthreads();
                reduce(partial, carried, y, rows, t0, pass);
                __syncthreads();
            }
        }
    }

    // Activations as they are.
    __device__ __forceinline__ static void copy(const bf16* x, int pass, bf16* to, int rows) {
        const int k0 = pass * PASS_CHUNKS * 32;
        x += (size_t)blockIdx.y * ROWS * K + k0;
        for (int v = threadIdx.x; v < rows * (WIDTH / 8); v += SKINNY_THREADS) {
            int row = v / (WIDTH / 8), k = v % (WIDTH / 8) * 8;
            bool inside = k0 + k < K && k < PASS_CHUNKS * 32;
            *(uint4*)(to + row * STRIDE + k) = inside ? load_activations(x + (size_t)row * K + k) : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void reduce(const float* partial, float* carried, void* y, int rows, int t0, int pass) const {
        const int group = tiles - t0 < GROUP ? tiles - t0 : GROUP;
        for (int i = threadIdx.x; i < group * ROWS * OUTPUTS; i += SKINNY_THREADS) {
            int t = i / (ROWS * OUTPUTS), row = i / OUTPUTS % ROWS, output = i % OUTPUTS;
            const float* p = partial + (t * SKINNY_WARPS * ROWS + row) * 8 + output;
            float sum = 0, up = 0;
            #pragma unroll
            for (int w = 0; w < WARPS_USED; w++) {
                sum += p[w * ROWS * 8];
                if (EPILOGUE == STORE_GATED) up += p[w * ROWS * 8 + 4];
            }
            if (PASSES > 1) {
                float* kept = carried + ((t0 + t) * ROWS + row) * 8 + output;
                if (pass) sum += *kept;
                *kept = sum;
            }
            if (pass == PASSES - 1 && row < rows) {
                size_t to = (size_t)(blockIdx.y * ROWS + row) * outputs + (blockIdx.x + (t0 + t) * gridDim.x) * OUTPUTS + output;
                if (EPILOGUE == STORE) ((bf16*)y)[to] = narrow(sum);
                if (EPILOGUE == STORE_F32) ((float*)y)[to] = sum;
                if (EPILOGUE == STORE_GATED) ((bf16*)y)[to] = narrow(gated(sum, up));
            }
        }
    }
};
