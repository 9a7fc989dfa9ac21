// What every kernel shares: bf16 without a header, loads that keep their place around a dependency wait, and the model's
// shape. The host defines HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB and BLOCK_TOKENS on the command line, and
// NORM_EPSILON, NOISE_STD and, as 1 or 0, NORM_BEFORE, NORM_BRANCH, NORM_SUM, ROPE_HALVES and EXIT_HAZARD, which say what the model's
// family does.
//
// bf16 is handled as raw bits: NVRTC then needs no include folder, and the rounding points are the ones in the text.

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef unsigned short bf16;
typedef unsigned long long u64;

constexpr int ATTENTION = HEADS * HEAD_DIM, KV_WIDTH = KV_HEADS * HEAD_DIM, QKV_WIDTH = ATTENTION + 2 * KV_WIDTH;
// Consecutive query heads that share a KV head.
constexpr int SHARING = HEADS / KV_HEADS;

// What the host uploads for a batch, at a fixed address, so that one captured graph serves every batch of its bucket.
// `place`: where a position's state and its input token lie, (slot, position mod window). `token`: its id, or -1 for the one
// at its place.
struct Row { int slot, place, position, depth, token; };
// A token to choose: for `place`, where the next position looks for its input, or for nobody (-1). `banned_at`: where ids that
// it cannot have lie, in bytes behind the first draw, BANNED_MAX of them or -1; 0 if it can have any.
struct Draw { unsigned long long seed; int place, token; float temperature, top_p; int top_k, banned_at; };
constexpr int BANNED_MAX = 8;
// `appended_at`: where the new table entries lie, in bytes behind the header.
struct Header { int rows, items, appended, appended_at; };

__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ bf16 narrow(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float rounded(float x) { return widen(narrow(x)); }
// Two numbers, the first in the lower half.
__device__ __forceinline__ unsigned pack(float a, float b) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(b), "f"(a));
    return y;
}
__device__ __forceinline__ void unpack(unsigned x, float& a, float& b) {
    a = __uint_as_float(x << 16);
    b = __uint_as_float(x & 0xffff0000u);
}
__device__ __forceinline__ void unpack8(uint4 x, float* y) {
    unpack(x.x, y[0], y[1]);
    unpack(x.y, y[2], y[3]);
    unpack(x.z, y[4], y[5]);
    unpack(x.w, y[6], y[7]);
}
__device__ __forceinline__ uint4 pack8(const float* x) {
    return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
}

// Programmatic dependent launch. A kernel lets the next one start at once, and waits for the previous one before it
// touches anything that changes: the next kernel's prefetch of weights overlaps with this kernel's tail.
//
// Every block of every kernel waits, so "the previous kernel is complete" holds for all earlier ones too.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Weights: read once, so kept out of L1. A plain load with a clobber stays where it stands; `ld.global.nc`, __ldg and
// const __restrict__ may move across the wait.
__device__ __forceinline__ uint4 load_weights(const bf16* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// Activations: written by the previous kernel, so read from L2.
__device__ __forceinline__ uint4 load_activations(const bf16* p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ void mma(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// 16 bytes to shared memory, zeros if not `valid`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

__device__ __forceinline__ void load_matrices(unsigned* r, const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(unsigned* r, const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}

// A sum over the block, the same in every thread: lanes by butterfly, then warps in order. `scratch` holds one float a warp.
template <int WARPS> __device__ __forceinline__ float block_sum(float x, float* scratch) {
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
    __syncthreads();
    float sum = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) sum += scratch[w];
    return sum;
}

// The largest of all threads' numbers, and of equal ones the lowest id; the same in every thread. One float and one int a warp.
template <int WARPS> __device__ __forceinline__ void block_best(float& best, int& id, float* bests, int* ids) {
    for (int o = 16; o; o >>= 1) {
        float x = __shfl_xor_sync(~0u, best, o);
        int j = __shfl_xor_sync(~0u, id, o);
        if (x > best || (x == best && j < id)) { best = x; id = j; }
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) { bests[threadIdx.x >> 5] = best; ids[threadIdx.x >> 5] = id; }
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        if (bests[w] > best || (bests[w] == best && ids[w] < id)) { best = bests[w]; id = ids[w]; }
}

// The quick division is right to a bit of f32, and what comes of it is rounded to bf16.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
// Both factors rounded, as the released models do.
__device__ __forceinline__ float gated(float gate, float up) {
    gate = rounded(gate);
    return rounded(gate * sigmoid(gate)) * rounded(up);
}

// Counter-based randomness, the same bits as the host's: a function of (seed, stream, a, b).
__device__ __forceinline__ u64 mix(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ u64 draw(u64 seed, u64 stream, u64 a, u64 b) {
    const u64 stride = 0x9e3779b97f4a7c15ull;
    u64 key = mix(seed ^ (stream * stride));
    return mix(mix(key ^ (a * stride)) + b * stride);
}
__device__ __forceinline__ float centred(u64 bits) {
    int odd = (int)(bits >> 40) * 2 + 1 - (1 << 24);
    return __fmul_rn((float)odd, 1.f / (1u << 25));
}

// Pools are [layer][block][K, V][head][token][dim]; a layer's base is added by the host.
__device__ __forceinline__ size_t kv_offset(int block, int part, int head, int offset) {
    return ((((size_t)block * 2 + part) * KV_HEADS + head) * BLOCK_TOKENS + offset) * HEAD_DIM;
}

// Layouts, numbered as the host does: 0 depth_indexed, 1 last_exited, 2 shared, 3 first_then_shared.
__device__ __forceinline__ int plane_written(int layout, int depth) {
    return layout <= 1 ? depth - 1 : (layout == 2 ? 0 : (depth > 1 ? 1 : 0));
}
