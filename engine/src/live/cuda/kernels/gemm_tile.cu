// y = x W^T for many rows, one order of summation for every shape: prefill in batch-invariant mode. Reference: cpu/linear.rs.
//
// A block makes 128 rows by 128 outputs; K runs in steps of 32 through a ring of tiles in shared memory. Every element is
// one chain of mma.sync over ascending k, so its bits depend on its row and its weights alone.

constexpr int TILE = 128, TILE_K = 32, TILE_STAGES = 4, TILE_STRIDE = TILE_K + 8, TILE_THREADS = 256;

template <int STORE_AS_F32> __device__ __forceinline__ void gemm_tile(const bf16* w, const bf16* x, void* y, int k_all, int outputs, int rows) {
    extern __shared__ __align__(16) char shared[];
    bf16* sx = (bf16*)shared;
    bf16* sw = sx + TILE_STAGES * TILE * TILE_STRIDE;
    const int row0 = blockIdx.y * TILE, output0 = blockIdx.x * TILE, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int warp_row = warp / 4 * 64, warp_output = warp % 4 * 32, steps = (k_all + TILE_K - 1) / TILE_K;

    auto fetch = [&](int step) {
        if (step < steps) {
            bf16 *to_x = sx + step % TILE_STAGES * TILE * TILE_STRIDE, *to_w = sw + step % TILE_STAGES * TILE * TILE_STRIDE;
            #pragma unroll
            for (int j = 0; j < TILE * TILE_K / 8 / TILE_THREADS; j++) {
                int v = threadIdx.x + j * TILE_THREADS, r = v / (TILE_K / 8), c = v % (TILE_K / 8) * 8, k = step * TILE_K + c;
                bool in_x = row0 + r < rows && k < k_all, in_w = output0 + r < outputs && k < k_all;
                copy_async(to_x + r * TILE_STRIDE + c, in_x ? x + (size_t)(row0 + r) * k_all + k : x, in_x);
                copy_async(to_w + r * TILE_STRIDE + c, in_w ? w + (size_t)(output0 + r) * k_all + k : w, in_w);
            }
        }
        copy_commit();
    };

    float c[4][4][4];
    #pragma unroll
    for (int i = 0; i < 64; i++) (&c[0][0][0])[i] = 0;
    for (int s = 0; s < TILE_STAGES - 1; s++) fetch(s);
    for (int step = 0; step < steps; step++) {
        copy_wait<TILE_STAGES - 2>();
        __syncthreads();
        fetch(step + TILE_STAGES - 1);
        const bf16 *tx = sx + step % TILE_STAGES * TILE * TILE_STRIDE, *tw = sw + step % TILE_STAGES * TILE * TILE_STRIDE;
        #pragma unroll
        for (int kk = 0; kk < TILE_K; kk += 16) {
            unsigned a[4][4], b[2][4];
            #pragma unroll
            for (int i = 0; i < 4; i++) load_matrices(a[i], tx + (warp_row + i * 16 + (lane & 15)) * TILE_STRIDE + kk + (lane >> 4) * 8);
            #pragma unroll
            for (int j = 0; j < 2; j++)
                load_matrices(b[j], tw + (warp_output + j * 16 + (lane & 7) + (lane >> 4) * 8) * TILE_STRIDE + kk + (lane >> 3 & 1) * 8);
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) mma(c[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++)
        #pragma unroll
        for (int j = 0; j < 4; j++)
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = row0 + warp_row + i * 16 + (lane >> 2) + half * 8, output = output0 + warp_output + j * 8 + (lane & 3) * 2;
                if (row >= rows || output >= outputs) continue;
                float p = c[i][j][half * 2], q = c[i][j][half * 2 + 1];
                if (STORE_AS_F32) *(float2*)((float*)y + (size_t)row * outputs + output) = make_float2(p, q);
                else *(unsigned*)((bf16*)y + (size_t)row * outputs + output) = pack(p, q);
            }
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS) tile_bf16(const bf16* w, const bf16* x, void* y, int k, int outputs, int rows) {
    launch_dependents();
    wait_for_previous();
    gemm_tile<0>(w, x, y, k, outputs, rows);
}
extern "C" __global__ void __launch_bounds__(TILE_THREADS) tile_f32(const bf16* w, const bf16* x, void* y, int k, int outputs, int rows) {
    launch_dependents();
    wait_for_previous();
    gemm_tile<1>(w, x, y, k, outputs, rows);
}
