// y = x W^T for up to 8 rows, the weights on their way through shared memory. Reference: cpu/linear.rs.
//
// Each warp owns a share of K and a ring of stages, 8 weight rows by 64 k each, which cp.async fills in whole 128-byte lines:
// short matrices stream faster so than through registers (`skinny.cuh`), and the registers that are left let the next
// kernel's blocks start beside this one's. No warp waits for another before the sums of a group of tiles are added.

template <int K, int EPILOGUE, int STAGES> struct Ring {
    static constexpr int CHUNKS = (K + 63) / 64, GROUP = 4, OUTPUTS = EPILOGUE == STORE_GATED ? 4 : 8;
    static constexpr int WIDTH = CHUNKS * 64, STRIDE = WIDTH + 32, STAGE = 8 * 64;

    const bf16* weights;
    int outputs;

    // Numbers of shared memory in front of the activations: rings and partial sums.
    static constexpr int ACTIVATIONS_AT = SKINNY_WARPS * (STAGES * STAGE + GROUP * 64 * 2);

    // `prepare` runs before the wait, `stage` behind it.
    template <class Prepare, class Stage>
    __device__ __forceinline__ void run(Prepare prepare, Stage stage, void* y, int rows) const {
        extern __shared__ __align__(128) char shared[];
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2;
        bf16* ring = (bf16*)shared + warp * STAGES * STAGE;
        float* partial = (float*)((bf16*)shared + SKINNY_WARPS * STAGES * STAGE);
        bf16* sx = (bf16*)shared + ACTIVATIONS_AT;
        const int first = warp * CHUNKS / SKINNY_WARPS, mine = (warp + 1) * CHUNKS / SKINNY_WARPS - first;
        const int tiles = (outputs / OUTPUTS - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x, total = tiles * mine;

        // Eight lanes a row, so that a row's 64 numbers are one line. Rows are swizzled for the fragments' reads.
        int issued = 0, tile = blockIdx.x, chunk = 0;
        auto issue = [&] {
            if (issued < total) {
                const int k = (first + chunk) * 64 + (lane & 7) * 8;
                bf16* to = ring + issued % STAGES * STAGE;
                #pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int r = (lane >> 3) + half * 4;
                    const int row = EPILOGUE == STORE_GATED ? tile * 4 + r + (half ? outputs - 4 : 0) : tile * 8 + r;
                    copy_async(to + r * 64 + ((lane & 7) ^ ((r & 1) << 2)) * 8, weights + (size_t)row * K + (k < K ? k : 0), k < K);
                }
                if (++chunk == mine) {
                    chunk = 0;
                    tile += gridDim.x;
                }
            }
            issued++;
            copy_commit();
        };
        #pragma unroll
        for (int s = 0; s < STAGES - 1; s++) issue();
        prepare();
        wait_for_previous();
        stage(0, sx, rows);
        __syncthreads();

        int used = 0;
        for (int t0 = 0; t0 < tiles; t0 += GROUP) {
            const int group = tiles - t0 < GROUP ? tiles - t0 : GROUP;
            for (int q = 0; q < group; q++) {
                float c[4] = {0, 0, 0, 0};
                for (int i = 0; i < mine; i++) {
                    copy_wait<STAGES - 2>();
                    __syncwarp();
                    const bf16* from = ring + used % STAGES * STAGE + g * 64;
                    used++;
                    #pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const uint4 b = *(const uint4*)(from + (((lane & 3) + half * 4) ^ ((g & 1) << 2)) * 8);
                        uint4 a = make_uint4(0, 0, 0, 0);
                        if (g < rows) a = *(const uint4*)(sx + g * STRIDE + (first + i) * 64 + half * 32 + (lane & 3) * 8);
                        mma(c, a.x, 0, a.y, 0, b.x, b.y);
                        mma(c, a.z, 0, a.w, 0, b.z, b.w);
                    }
                    __syncwarp();
                    issue();
                }
                *(float2*)(partial + ((q * SKINNY_WARPS + warp) * 8 + g) * 8 + (lane & 3) * 2) = make_float2(c[0], c[1]);
            }
            __syncthreads();
            for (int i = threadIdx.x; i < group * 8 * OUTPUTS; i += SKINNY_THREADS) {
                const int t = i / (8 * OUTPUTS), row = i / OUTPUTS % 8, output = i % OUTPUTS;
                const float* p = partial + (t * SKINNY_WARPS * 8 + row) * 8 + output;
                float sum = 0, up = 0;
                #pragma unroll
                for (int w = 0; w < SKINNY_WARPS; w++) {
                    sum += p[w * 64];
                    if (EPILOGUE == STORE_GATED) up += p[w * 64 + 4];
                }
                if (row >= rows) continue;
                const size_t to = (size_t)row * outputs + (blockIdx.x + (t0 + t) * gridDim.x) * OUTPUTS + output;
                if (EPILOGUE == STORE) ((bf16*)y)[to] = narrow(sum);
                if (EPILOGUE == STORE_F32) ((float*)y)[to] = sum;
                if (EPILOGUE == STORE_GATED) ((bf16*)y)[to] = narrow(gated(sum, up));
            }
            __syncthreads();
        }
        copy_wait<0>();
    }

    // Activations as they are.
    __device__ __forceinline__ static void copy(const bf16* x, bf16* to, int rows) {
        for (int v = threadIdx.x; v < rows * (WIDTH / 8); v += SKINNY_THREADS) {
            const int row = v / (WIDTH / 8), k = v % (WIDTH / 8) * 8;
            *(uint4*)(to + row * STRIDE + k) = k < K ? load_activations(x + (size_t)row * K + k) : make_uint4(0, 0, 0, 0);
        }
    }
};
