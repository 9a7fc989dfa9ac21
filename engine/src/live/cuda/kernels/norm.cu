// Everything between two GEMMs that is not attention: residual sum, norms, and at the end of a loop the exit signal.
// Reference: cpu/norm.rs, cpu/layer.rs, cpu/model.rs (`hazard`, `distance`).
//
// One block a row, the row in registers. RMSNorm: mean of squares in f32, times the reciprocal root, rounded, times the
// weight, rounded.

constexpr int NORM_THREADS = HIDDEN > 4096 ? 704 : 256, NORM_VECTORS = (HIDDEN / 8 + NORM_THREADS - 1) / NORM_THREADS, SHARES_MAX = 4;

struct NormArgs {
    const Header* header;
    const Row* rows;
    const bf16* x;          // the residual stream
    const void* branch;     // a branch's output to add, or null: bf16, or f32 in so many `shares` to be added first
    const bf16* branch_norm; // norms the branch, or the sum
    const bf16* final_norm; // norms the sum once more
    const bf16* next_norm;  // norms what the next GEMM reads, where norms stand before branches
    bf16* x_out;            // the new residual stream, or null
    bf16* y_out;            // the next GEMM's input, or null
    bf16* state;            // end of a loop: the looped state, or null
    const bf16* gates[2];   // the released and the lookahead gate's weights, or null
    const bf16* biases[2];
    float2* signals;        // by row; without gates x is the normalised distance to the last state
    int x_by_place;         // x is a state: read it at the row's place
    int state_by_place;
    int shares;             // 0: the branch is bf16
};

struct Vectors {
    float v[NORM_VECTORS][8];
    __device__ __forceinline__ static bool has(int j) { return (threadIdx.x + j * NORM_THREADS) * 8 < HIDDEN; }
    __device__ __forceinline__ static int at(int j) { return (threadIdx.x + j * NORM_THREADS) * 8; }
    __device__ __forceinline__ void load(const bf16* p) {
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++) unpack8(has(j) ? load_activations(p + at(j)) : make_uint4(0, 0, 0, 0), v[j]);
    }
    // What a GEMM left in shares of K, [share][row][HIDDEN]: added in order and rounded, as it would have been by itself.
    __device__ __forceinline__ void load_shares(const float* p, int shares) {
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++) {
            float4 part[SHARES_MAX][2];
            #pragma unroll
            for (int s = 0; s < SHARES_MAX; s++)
                #pragma unroll
                for (int half = 0; half < 2; half++) {
                    part[s][half] = make_float4(0, 0, 0, 0);
                    if (s < shares && has(j)) part[s][half] = __ldcg((const float4*)(p + (size_t)s * gridDim.x * HIDDEN + at(j) + half * 4));
                }
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                float sum = (&part[0][0].x)[i];
                #pragma unroll
                for (int s = 1; s < SHARES_MAX; s++) sum += (&part[s][0].x)[i];
                v[j][i] = rounded(sum);
            }
        }
    }
    __device__ __forceinline__ void store(bf16* p) const {
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++) if (has(j)) *(uint4*)(p + at(j)) = pack8(v[j]);
    }
    __device__ __forceinline__ float squares() const {
        float s = 0;
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++)
            #pragma unroll
            for (int i = 0; i < 8; i++) s += v[j][i] * v[j][i];
        return s;
    }
    __device__ __forceinline__ float dot(const bf16* p) const {
        float s = 0;
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++) if (has(j)) {
            float w[8];
            unpack8(load_activations(p + at(j)), w);
            #pragma unroll
            for (int i = 0; i < 8; i++) s += v[j][i] * w[i];
        }
        return s;
    }
    __device__ __forceinline__ void add(const Vectors& other) {
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++)
            #pragma unroll
            for (int i = 0; i < 8; i++) v[j][i] = rounded(v[j][i] + other.v[j][i]);
    }
    __device__ __forceinline__ void norm(const uint4* weight, float* scratch) {
        float mean = block_sum<NORM_THREADS / 32>(squares(), scratch) / HIDDEN;
        float scale = 1.f / sqrtf(mean + NORM_EPSILON);
        #pragma unroll
        for (int j = 0; j < NORM_VECTORS; j++) {
            float w[8];
            unpack8(weight[j], w);
            #pragma unroll
            for (int i = 0; i < 8; i++) v[j][i] = rounded(rounded(v[j][i] * scale) * w[i]);
        }
    }
};

// Weights do not change, so they are fetched before the wait.
__device__ __forceinline__ void fetch(uint4* w, const bf16* p) {
    #pragma unroll
    for (int j = 0; j < NORM_VECTORS; j++) {
        w[j] = make_uint4(0, 0, 0, 0);
        if (p && Vectors::has(j)) w[j] = load_weights(p + Vectors::at(j));
    }
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS) norm_step(const __grid_constant__ NormArgs a) {
    __shared__ float scratch[NORM_THREADS / 32];
    launch_dependents();
    uint4 branch_norm[NORM_VECTORS], final_norm[NORM_VECTORS], next_norm[NORM_VECTORS];
    fetch(branch_norm, a.branch_norm);
    fetch(final_norm, a.final_norm);
    fetch(next_norm, a.next_norm);
    wait_for_previous();
    int index = blockIdx.x;
    if (index >= a.header->rows) return;
    int place = a.rows[index].place;
    Vectors x;
    x.load(a.x + (size_t)(a.x_by_place ? place : index) * HIDDEN);
    if (a.branch) {
        Vectors z;
        if (a.shares) z.load_shares((const float*)a.branch + (size_t)index * HIDDEN, a.shares);
        else z.load((const bf16*)a.branch + (size_t)index * HIDDEN);
        if (NORM_BRANCH) z.norm(branch_norm, scratch);
        x.add(z);
        if (NORM_SUM) x.norm(branch_norm, scratch);
    }
    if (a.final_norm) x.norm(final_norm, scratch);
    if (a.x_out) x.store(a.x_out + (size_t)index * HIDDEN);
    if (a.state) {
        bf16* state = a.state + (size_t)(a.state_by_place ? place : index) * HIDDEN;
        if (a.signals) {
            float2 signal = make_float2(0, 0);
            if (EXIT_HAZARD) {
                for (int g = 0; g < 2; g++) if (a.gates[g]) {
                    float s = block_sum<NORM_THREADS / 32>(x.dot(a.gates[g]), scratch);
                    (g ? signal.y : signal.x) = 1.f / (1.f + expf(-(s + widen(*a.biases[g]))));
                }
            } else {
                Vectors last;
                last.load(state);
                #pragma unroll
                for (int j = 0; j < NORM_VECTORS; j++)
                    #pragma unroll
                    for (int i = 0; i < 8; i++) last.v[j][i] = x.v[j][i] - last.v[j][i];
                float moved = block_sum<NORM_THREADS / 32>(last.squares(), scratch);
                signal.x = sqrtf(moved / block_sum<NORM_THREADS / 32>(x.squares(), scratch));
            }
            if (threadIdx.x == 0) a.signals[index] = signal;
        }
        x.store(state);
    }
    if (a.y_out) {
        if (NORM_BEFORE) x.norm(next_norm, scratch);
        x.store(a.y_out + (size_t)index * HIDDEN);
    }
}

// The norms of all queries and of all keys of a row, in place. One block a row and part.
extern "C" __global__ void qk_norm(const Header* header, bf16* qkv, const bf16* queries, const bf16* keys) {
    __shared__ float scratch[8];
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= header->rows) return;
    const int width = blockIdx.y ? KV_WIDTH : ATTENTION;
    const bf16* weight = blockIdx.y ? keys : queries;
    bf16* x = qkv + (size_t)blockIdx.x * QKV_WIDTH + (blockIdx.y ? ATTENTION : 0);
    float squares = 0;
    for (int i = threadIdx.x; i < width; i += 256) squares += widen(x[i]) * widen(x[i]);
    float scale = 1.f / sqrtf(block_sum<8>(squares, scratch) / width + NORM_EPSILON);
    for (int i = threadIdx.x; i < width; i += 256) x[i] = narrow(rounded(widen(x[i]) * scale) * widen(weight[i]));
}

// silu(gate) * up of a GEMM's output [rows][gate | up], for batches whose GEMM is not ours.
extern "C" __global__ void silu(const bf16* wide, bf16* out, u64 vectors) {
    launch_dependents();
    wait_for_previous();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < vectors; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / (FFN / 8), at = i % (FFN / 8) * 8;
        float gate[8], up[8];
        unpack8(load_activations(wide + row * 2 * FFN + at), gate);
        unpack8(load_activations(wide + row * 2 * FFN + FFN + at), up);
        #pragma unroll
        for (int j = 0; j < 8; j++) gate[j] = gated(gate[j], up[j]);
        *(uint4*)(out + row * FFN + at) = pack8(gate);
    }
}
