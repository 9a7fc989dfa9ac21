// Embeddings, and Huginn's initial state, which is a function of (seed, position, channel) alone.
// Reference: cpu/model.rs (`embed`), models/initial_state.rs, bit for bit.

// One block a row. A row without an id takes the token that was chosen for its place, so that a successor enters without
// the host's help.
extern "C" __global__ void embed(const Header* header, const Row* rows, const int* chosen, const bf16* table, bf16* x, float scale) {
    wait_for_previous();
    launch_dependents();
    if (blockIdx.x >= header->rows) return;
    Row row = rows[blockIdx.x];
    int token = row.token >= 0 ? row.token : chosen[row.place];
    const bf16* from = table + (size_t)token * HIDDEN;
    bf16* to = x + (size_t)blockIdx.x * HIDDEN;
    for (int i = threadIdx.x; i < HIDDEN; i += blockDim.x) to[i] = narrow(__fmul_rn(widen(from[i]), scale));
}

// `+ - * /` in f32, in this order, without contraction.
__device__ float truncated_normal(u64 seed, int position, int channel) {
    float q = __fmul_rn(0.9973002f, centred(draw(seed, 3, (u64)position, (u64)channel)));
    float u = __fmul_rn(__fsub_rn(0.5f, q), __fadd_rn(0.5f, q));
    float p = __fadd_rn(__fmul_rn(1.4945215f, u), 0.7349653f);
    p = __fadd_rn(__fmul_rn(p, u), 0.018001003f);
    p = __fadd_rn(__fmul_rn(p, u), 2.9585228e-5f);
    float d = __fadd_rn(u, 0.20639053f);
    d = __fadd_rn(__fmul_rn(d, u), 0.0034189187f);
    d = __fadd_rn(__fmul_rn(d, u), 4.188604e-6f);
    return __fmul_rn(q, __fdiv_rn(p, d));
}

// Where a row's state lies: at its place in decode, at its own number in prefill.
__device__ __forceinline__ int place(const Row& row, int index, int by_place) { return by_place ? row.place : index; }

// What the prelude made is injected into every loop, and the loop starts from noise or zeros.
extern "C" __global__ void start_loop(const Header* header, const Row* rows, const bf16* x, bf16* injected, bf16* state, int by_place, int noise, u64 seed) {
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= header->rows) return;
    Row row = rows[blockIdx.x];
    size_t to = (size_t)place(row, blockIdx.x, by_place) * HIDDEN, from = (size_t)blockIdx.x * HIDDEN;
    for (int i = threadIdx.x; i < HIDDEN; i += blockDim.x) {
        injected[to + i] = x[from + i];
        state[to + i] = noise ? narrow(__fmul_rn(NOISE_STD, truncated_normal(seed, row.position, i))) : 0;
    }
}

// The adapter's input: state and injected embedding side by side.
extern "C" __global__ void join(const Header* header, const Row* rows, const bf16* state, const bf16* injected, bf16* joined, int by_place) {
    launch_dependents();
    wait_for_previous();
    if (blockIdx.x >= header->rows) return;
    size_t from = (size_t)place(rows[blockIdx.x], blockIdx.x, by_place) * HIDDEN, to = (size_t)blockIdx.x * 2 * HIDDEN;
    for (int i = threadIdx.x * 8; i < HIDDEN; i += blockDim.x * 8) {
        *(uint4*)(joined + to + i) = load_activations(state + from + i);
        *(uint4*)(joined + to + HIDDEN + i) = load_activations(injected + from + i);
    }
}

// Rows that make a token, picked out of a packed prefill.
extern "C" __global__ void gather(const int* picks, const bf16* from, bf16* to) {
    launch_dependents();
    wait_for_previous();
    size_t source = (size_t)picks[blockIdx.x] * HIDDEN, target = (size_t)blockIdx.x * HIDDEN;
    for (int i = threadIdx.x * 8; i < HIDDEN; i += blockDim.x * 8) *(uint4*)(to + target + i) = load_activations(from + source + i);
}
