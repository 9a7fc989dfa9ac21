// Ouro's GEMMs for few rows, two of them with the norms in front. Reference: cpu/layer.rs (`run`), and `norm.cu`.
//
// Ouro's branch sum and norm, computed by every block for itself instead of by a kernel in between: x + norm(branch), and
// its norm into shared memory. Block 0 also stores the sum, in another buffer than the one that the others still read.
struct Fused {
    const Header* header;
    const Row* rows;
    const bf16* x;
    const bf16* branch;      // or null: x alone
    const bf16* branch_norm;
    const bf16* next_norm;
    bf16* x_out;
    const bf16* weights;
    bf16* y;
    int outputs, count;
    int x_by_slot;           // x is a looped state
};

// Adds over the threads of one row; `scratch` holds one float a warp.
template <int WARPS_PER_ROW> __device__ __forceinline__ float row_sum(float x, float* scratch) {
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
    const int warp = threadIdx.x >> 5, first = warp / WARPS_PER_ROW * WARPS_PER_ROW;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[warp] = x;
    __syncthreads();
    float sum = 0;
    #pragma unroll
    for (int w = 0; w < WARPS_PER_ROW; w++) sum += scratch[first + w];
    return sum;
}

__device__ __forceinline__ float vector_squares(uint4 x) {
    float v[8], sum = 0;
    unpack8(x, v);
    #pragma unroll
    for (int i = 0; i < 8; i++) sum += v[i] * v[i];
    return sum;
}

// The norms' weights, which do not change, are fetched before the wait: two lists of HIDDEN behind the activations.
__device__ __forceinline__ void fetch_norms(const Fused& a, bf16* to) {
    for (int i = threadIdx.x * 8; i < HIDDEN; i += SKINNY_THREADS * 8) {
        if (a.branch) *(uint4*)(to + i) = load_weights(a.branch_norm + i);
        *(uint4*)(to + HIDDEN + i) = load_weights(a.next_norm + i);
    }
    __syncthreads();
}

template <int ROWS_AT_ONCE, int STRIDE, int WIDTH>
__device__ __forceinline__ void stage_norm(const Fused& a, const bf16* norms, bf16* to, int rows) {
    constexpr int PER_ROW = SKINNY_THREADS / ROWS_AT_ONCE, VECTORS = (HIDDEN / 8 + PER_ROW - 1) / PER_ROW;
    __shared__ float scratch[SKINNY_WARPS];
    const int row = threadIdx.x / PER_ROW, lane = threadIdx.x % PER_ROW;
    const bool real = row < rows;
    const size_t from = real ? (size_t)(a.x_by_slot && row < a.header->rows ? a.rows[row].slot : row) * HIDDEN : 0;
    uint4 x[VECTORS];
    float v[8], w[8];
    auto has = [&](int j) { return real && (lane + j * PER_ROW) * 8 < HIDDEN; };
    auto at = [&](int j) { return (lane + j * PER_ROW) * 8; };
    auto zero = make_uint4(0, 0, 0, 0);
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) x[j] = has(j) ? load_activations(a.x + from + at(j)) : zero;
    if (a.branch) {
        uint4 z[VECTORS];
        float squares = 0;
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) z[j] = has(j) ? load_activations(a.branch + (size_t)row * HIDDEN + at(j)) : zero;
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) squares += vector_squares(z[j]);
        float scale = 1.f / sqrtf(row_sum<PER_ROW / 32>(squares, scratch) / HIDDEN + 1e-6f);
        #pragma unroll
        for (int j = 0; j < VECTORS; j++) if (has(j)) {
            float u[8];
            unpack8(*(const uint4*)(norms + at(j)), w);
            unpack8(x[j], v);
            unpack8(z[j], u);
            #pragma unroll
            for (int i = 0; i < 8; i++) v[i] += rounded(rounded(u[i] * scale) * w[i]);
            x[j] = pack8(v);
        }
    }
    float squares = 0;
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        if (blockIdx.x == 0 && has(j)) *(uint4*)(a.x_out + (size_t)row * HIDDEN + at(j)) = x[j];
        squares += vector_squares(x[j]);
    }
    float scale = 1.f / sqrtf(row_sum<PER_ROW / 32>(squares, scratch) / HIDDEN + 1e-6f);
    #pragma unroll
    for (int j = 0; j < VECTORS; j++) if (has(j)) {
        unpack8(*(const uint4*)(norms + HIDDEN + at(j)), w);
        unpack8(x[j], v);
        #pragma unroll
        for (int i = 0; i < 8; i++) v[i] = rounded(v[i] * scale) * w[i];
        *(uint4*)(to + row * STRIDE + at(j)) = pack8(v);
    }
    // Columns behind the row that a chunk of 32 still reads.
    for (int k = HIDDEN + lane * 8; real && k < WIDTH; k += PER_ROW * 8) *(uint4*)(to + row * STRIDE + k) = zero;
}

#define FUSED(name, EPILOGUE, ROWS_AT_ONCE, STAGES)                                                                  \
    extern "C" __global__ void __launch_bounds__(SKINNY_THREADS, 2) name##_##ROWS_AT_ONCE(const __grid_constant__ Fused a) { \
        launch_dependents();                                                                                          \
        typedef Ring<HIDDEN, EPILOGUE, STAGES> Gemm;                                                                  \
        const Gemm gemm{a.weights, a.outputs};                                                                        \
        extern __shared__ __align__(128) char shared[];                                                               \
        bf16* norms = (bf16*)shared + Gemm::ACTIVATIONS_AT + ROWS_AT_ONCE * Gemm::STRIDE;                             \
        auto stage = [&](int, bf16* to, int rows) {                                                                   \
            stage_norm<ROWS_AT_ONCE, Gemm::STRIDE, Gemm::WIDTH>(a, norms, to, rows);                                  \
        };                                                                                                            \
        gemm.run([&] { fetch_norms(a, norms); }, stage, a.y, a.count);                                                \
    }

FUSED(fused_hidden, STORE, 1, 5)
FUSED(fused_hidden, STORE, 8, 4)
FUSED(fused_gated, STORE_GATED, 1, 5)
FUSED(fused_gated, STORE_GATED, 8, 4)

#define RING(name, K, EPILOGUE, ROWS, STAGES)                                                                        \
    extern "C" __global__ void __launch_bounds__(SKINNY_THREADS, 2)                                                   \
    name##_##ROWS(const bf16* weights, const bf16* x, void* y, int outputs, int rows) {                               \
        launch_dependents();                                                                                          \
        typedef Ring<K, EPILOGUE, STAGES> Gemm;                                                                       \
        const Gemm gemm{weights, outputs};                                                                            \
        gemm.run([] {}, [&](int, bf16* to, int staged) { Gemm::copy(x, to, staged); }, y, rows);                             \
    }

RING(ring_attention, ATTENTION, STORE, 1, 5)
RING(ring_attention, ATTENTION, STORE, 8, 4)
RING(ring_ffn, FFN, STORE, 1, 5)
RING(ring_ffn, FFN, STORE, 8, 4)
RING(ring_logits, HIDDEN, STORE_F32, 1, 5)
RING(ring_logits, HIDDEN, STORE_F32, 8, 4)
