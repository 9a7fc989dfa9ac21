// y = x W^T for up to 64 rows at a time, at the memory's speed. Hopper only. Reference: cpu/linear.rs.
//
// A block makes a tile of outputs of all rows, over all of K or a share of it; blocks with more than one tile take them in
// turn. One thread has the copy engine fill a ring of stages, 64 k of weights and of activations each, without a pause
// between tiles and with the first weights on their way before the wait. Four warps multiply.
//
// Every sum is one chain of wgmma over ascending k, cut only where the layer's shape says: a row's bits are the same
// whatever the number of rows, and whichever of the three row counts takes them (a test in `products.rs` pins it).

// A matrix as the copy engine sees it, made by the driver: numbers behind an edge are zeros.
struct alignas(64) TensorMap { u64 opaque[16]; };

// A layer's outputs are cut into tiles of `width`, its K into `shares`.
struct StreamArgs {
    void* y;     // [rows][outputs]; f32: [shares][rows][outputs]
    int outputs; // of the product; gated: of gate and of up
    int inputs, rows, width, shares, stages;
};

enum Epilogue { STORE, STORE_F32, STORE_GATED };
constexpr int STREAM_THREADS = 160, STREAM_STAGES_MAX = 16, STAGE_K = 64, LINE = STAGE_K * 2;

__device__ __forceinline__ void barrier_init(u64* b, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_expect(u64* b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* b, int parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra again;\n}"
                 ::"r"(shared_address(b)), "r"(parity) : "memory");
}

// Weights are read once, activations by every block.
constexpr u64 EVICT_FIRST = 0x12f0000000000000ull, EVICT_LAST = 0x14f0000000000000ull;

// A box of 64 numbers by some rows, its 16-byte pieces swizzled within 8 rows.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap* map, int column, int row, u64* barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy) : "memory");
}
__device__ __forceinline__ void fetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// Such a box as the tensor cores see it: eight rows of 128 bytes, swizzled, are 1024 bytes.
__device__ __forceinline__ u64 swizzled_matrix(unsigned at) { return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

// 64 weight rows by N activation rows by 16 k, both from shared memory. Asynchronous.
template <int N> __device__ __forceinline__ void multiply(float (*c)[4], u64 w, u64 x);
template <> __device__ __forceinline__ void multiply<16>(float (*c)[4], u64 w, u64 x) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]) : "l"(w), "l"(x));
}
template <> __device__ __forceinline__ void multiply<32>(float (*c)[4], u64 w, u64 x) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1, 0, 0;"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
                   "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]) : "l"(w), "l"(x));
}
template <> __device__ __forceinline__ void multiply<64>(float (*c)[4], u64 w, u64 x) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
                   "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
                   "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
                   "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]) : "l"(w), "l"(x));
}

// Of one block: where the ring is, and how far around it a thread has come.
struct StageRing {
    u64 full[STREAM_STAGES_MAX], empty[STREAM_STAGES_MAX];
};
struct Place {
    int stage = 0, turn = 0;
    __device__ __forceinline__ void step(int stages) { if (++stage == stages) stage = 0, turn ^= 1; }
};

template <int ROWS, int TILES, int EPILOGUE> struct Stream {
    static constexpr bool GATED = EPILOGUE == STORE_GATED;
    const TensorMap *weights, *x;
    const StreamArgs& a;

    // A piece of work: a tile, a share of K, and a group of rows. Groups of one tile run side by side and share its weights.
    struct Piece { int output, row, share, first, chunks; };
    __device__ __forceinline__ int pieces() const {
        return (a.outputs + a.width - 1) / a.width * a.shares * ((a.rows + ROWS - 1) / ROWS);
    }
    __device__ __forceinline__ Piece piece(int i) const {
        const int groups = (a.rows + ROWS - 1) / ROWS, all = (a.inputs + STAGE_K - 1) / STAGE_K;
        const int share = i / groups % a.shares, first = share * all / a.shares;
        return {i / groups / a.shares * a.width, i % groups * ROWS, share, first, (share + 1) * all / a.shares - first};
    }
    // Bytes: a tile of weights takes whole groups of 8 rows. Gated, the second tile is the first one's other half.
    __device__ __forceinline__ int tile_bytes() const { return GATED ? (a.width + 7) / 8 * 8 * LINE : 64 * LINE; }
    __device__ __forceinline__ int rows_at() const { return GATED ? 2 * tile_bytes() : (a.width + 7) / 8 * 8 * LINE; }
    __device__ __forceinline__ int stage_bytes() const { return rows_at() + ROWS * LINE; }

    __device__ __forceinline__ void fetch_weights(unsigned to, const Piece& p, int chunk, u64* full) const {
        barrier_expect(full, ((GATED ? 2 : 1) * a.width + ROWS) * LINE);
        copy_box(to, weights, chunk * STAGE_K, p.output, full, EVICT_FIRST);
        if (GATED) copy_box(to + tile_bytes(), weights, chunk * STAGE_K, a.outputs + p.output, full, EVICT_FIRST);
    }
    __device__ __forceinline__ void fetch_rows(unsigned to, const Piece& p, int chunk, u64* full) const {
        copy_box(to + rows_at(), x, chunk * STAGE_K, p.row, full, EVICT_LAST);
    }

    __device__ __forceinline__ void produce(unsigned ring, StageRing& b) const {
        const int count = pieces(), bytes = stage_bytes();
        fetch_map(x);
        Piece p = piece(blockIdx.x);
        const int early = min(a.stages, p.chunks);
        for (int i = 0; i < early; i++) fetch_weights(ring + i * bytes, p, p.first + i, b.full + i);
        wait_for_previous();
        for (int i = 0; i < early; i++) fetch_rows(ring + i * bytes, p, p.first + i, b.full + i);
        Place at{early % a.stages, early == a.stages};
        for (int w = blockIdx.x, i = early; w < count;) {
            for (; i < p.chunks; i++) {
                barrier_wait(b.empty + at.stage, at.turn ^ 1);
                fetch_weights(ring + at.stage * bytes, p, p.first + i, b.full + at.stage);
                fetch_rows(ring + at.stage * bytes, p, p.first + i, b.full + at.stage);
                at.step(a.stages);
            }
            w += gridDim.x;
            if (w < count) p = piece(w);
            i = 0;
        }
    }

    __device__ __forceinline__ void consume(unsigned ring, StageRing& b) const {
        const int count = pieces(), bytes = stage_bytes(), lane = threadIdx.x & 31;
        const u64 tile = tile_bytes() >> 4, rows = rows_at() >> 4;
        Place at;
        for (int w = blockIdx.x; w < count; w += gridDim.x) {
            const Piece p = piece(w);
            float c[TILES][ROWS / 8][4] = {};
            int before = 0;
            for (int i = 0; i < p.chunks; i++) {
                barrier_wait(b.full + at.stage, at.turn);
                const u64 stage = swizzled_matrix(ring + at.stage * bytes);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int k = 0; k < STAGE_K / 16; k++)
                    #pragma unroll
                    for (int t = 0; t < TILES; t++) multiply<ROWS>(c[t], stage + t * tile + k * 2, stage + rows + k * 2);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // The products of the stage before are done.
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (i && lane == 0) barrier_arrive(b.empty + before);
                before = at.stage;
                at.step(a.stages);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (lane == 0) barrier_arrive(b.empty + before);
            store(c, p);
        }
    }

    // Four lanes with eight outputs each make a sector or half of one.
    __device__ __forceinline__ void store(float (&c)[TILES][ROWS / 8][4], const Piece& p) const {
        const int slot = threadIdx.x >> 5 << 4 | (threadIdx.x & 31) >> 2;
        #pragma unroll
        for (int t = 0; t < (GATED ? 1 : TILES); t++)
            #pragma unroll
            for (int n = 0; n < ROWS / 8; n++)
                #pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = p.row + n * 8 + (threadIdx.x & 3) * 2 + j % 2, at = t * 64 + slot + j / 2 * 8;
                    if (row >= a.rows || at >= a.width || p.output + at >= a.outputs) continue;
                    const size_t to = (size_t)row * a.outputs + p.output + at;
                    if (EPILOGUE == STORE) ((bf16*)a.y)[to] = narrow(c[t][n][j]);
                    if (EPILOGUE == STORE_F32) ((float*)a.y)[(size_t)p.share * a.rows * a.outputs + to] = c[t][n][j];
                    if (GATED) ((bf16*)a.y)[to] = narrow(gated(c[0][n][j], c[TILES - 1][n][j]));
                }
    }

    __device__ __forceinline__ void run() const {
        extern __shared__ __align__(128) char shared[];
        __shared__ StageRing b;
        const unsigned ring = (shared_address(shared) + 1023) & ~1023u;
        if (threadIdx.x == 0) {
            for (int s = 0; s < a.stages; s++) {
                barrier_init(b.full + s, 1);
                barrier_init(b.empty + s, 4);
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncthreads();
        if (threadIdx.x < 128) consume(ring, b);
        else if (threadIdx.x == 128) produce(ring, b);
    }
};

// Named after what they store, whether they multiply two tiles of 64 weight rows at once, and the rows that they take.
#define STREAM(name, EPILOGUE, TILES, ROWS)                                                                           \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS)                                                      \
    name##_##ROWS(const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap x,                     \
                  const __grid_constant__ StreamArgs a) {                                                             \
        launch_dependents();                                                                                          \
        Stream<ROWS, TILES, EPILOGUE>{&weights, &x, a}.run();                                                         \
    }

#define STREAM_ALL(name, EPILOGUE, TILES) STREAM(name, EPILOGUE, TILES, 16) STREAM(name, EPILOGUE, TILES, 32) STREAM(name, EPILOGUE, TILES, 64)

STREAM_ALL(stream, STORE, 1)
STREAM_ALL(stream_wide, STORE, 2)
STREAM_ALL(stream_f32, STORE_F32, 1)
STREAM_ALL(stream_f32_wide, STORE_F32, 2)
STREAM_ALL(stream_gated, STORE_GATED, 2)
