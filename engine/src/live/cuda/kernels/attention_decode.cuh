// Decode attention: one query a row over paged KV, rows of any depth in one launch. `attention_decode.cu` has the kernels,
// `attention_decode_shared.cuh` what they do where query heads share keys and values.
// Reference: cpu/attention.rs, cpu/layer.rs, cpu/places.rs.
//
// A work item is 128 tokens of one row and KV head; the split does not depend on the batch, and the last block to arrive at a
// (row, KV head) merges the parts in order: no batch and no timing changes a bit. The block with a row's last tokens also
// turns and stores the new key and value.
//
// `last_exited` needs no copies: a loop at depth d reads token j from plane min(d, exit of j).
//
// Where several positions of a sequence run together, `decode_store` stores the keys and values of all rows first, and a row
// reads those from its first fresh position on after the wait: the same numbers in the same order, so the same bits.

static_assert(HEAD_DIM <= 128, "one thread a pair, and 16 lanes a token");
constexpr int SPLIT = 128;

// With what it needs of its row, so that nothing hangs on a second load.
struct __align__(16) Item { int row, split, first, splits, slot, position, depth, fresh; };

struct DecodeArgs {
    const Header* header;
    const Row* rows;
    const Item* items;
    const bf16* qkv;
    const bf16* qk_bias;   // or null
    const float2* factors; // by position, then pair
    bf16* pool;            // this layer's
    const int* tables;     // by slot: pages
    unsigned char* depths; // by page, then token: the deepest loop that ran
    float* parts;          // by item, then head
    float2* part_sums;
    unsigned* arrived;     // by row, then head; zero at rest
    unsigned* next;        // this launch's work counter
    bf16* out;
    int pages_max, planes, layout, boundary;
    int depth;             // all rows' depth, or 0 for each row's own
    int marks_depth;       // the first core layer notes the depth of the new token
};

__device__ __forceinline__ int page_of(const DecodeArgs& a, int slot, int token) {
    return a.tables[(size_t)slot * a.pages_max + token / BLOCK_TOKENS];
}

// Of a token in a page, as a loop at `depth` reads it, or writes it if it is `fresh`.
__device__ __forceinline__ int address_in(const DecodeArgs& a, int page, int depth, int token, bool fresh) {
    int block = page;
    if (!a.boundary) {
        int from = depth;
        if (a.layout == 1 && !fresh) from = min(depth, (int)a.depths[page * BLOCK_TOKENS + token % BLOCK_TOKENS]);
        block = page * a.planes + plane_written(a.layout, from);
    }
    return block * 2 * KV_HEADS * BLOCK_TOKENS + token % BLOCK_TOKENS;
}
__device__ __forceinline__ int address(const DecodeArgs& a, int slot, int depth, int token, bool fresh) {
    return address_in(a, page_of(a, slot, token), depth, token, fresh);
}

// The same of a token whose depth the kernel before may have noted: from L2, since L1 may hold what was there before.
__device__ __forceinline__ int address_now(const DecodeArgs& a, int slot, int depth, int token) {
    int page = page_of(a, slot, token);
    int left_at = __ldcg(&a.depths[page * BLOCK_TOKENS + token % BLOCK_TOKENS]);
    return address_in(a, page, a.layout == 1 && !a.boundary ? min(depth, left_at) : depth, token, true);
}

__device__ __forceinline__ uint4 load_kv(const bf16* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}

// One head of the new token, turned: pair `pair` of `from`, which is the query or the key.
__device__ __forceinline__ void turned(const bf16* from, const bf16* bias, float2 factor, int pair, float& x, float& y) {
    int i = first_of(pair), j = second_of(pair);
    x = widen(from[i]);
    y = widen(from[j]);
    if (bias) {
        x = rounded(x + widen(bias[i]));
        y = rounded(y + widen(bias[j]));
    }
    turn(x, y, factor);
}
