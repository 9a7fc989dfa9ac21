// Offload preemption: blocks leave the pool for pinned host memory, or come back into other blocks, in one launch.
// Reference: cpu/transfer.rs.

// `jobs`: x the block, y its place among the saved ones. The saved form is [place][layer][one block].
extern "C" __global__ void move_blocks(bf16* pool, bf16* saved, const int2* jobs, int layers, u64 layer_stride, int restores) {
    launch_dependents();
    wait_for_previous();
    constexpr int BLOCK = 2 * KV_HEADS * BLOCK_TOKENS * HEAD_DIM;
    int2 job = jobs[blockIdx.x];
    uint4* in_pool = (uint4*)(pool + blockIdx.y * layer_stride + (size_t)job.x * BLOCK);
    uint4* in_host = (uint4*)(saved + ((size_t)job.y * layers + blockIdx.y) * BLOCK);
    uint4 *to = restores ? in_pool : in_host, *from = restores ? in_host : in_pool;
    for (int i = threadIdx.x; i < BLOCK / 8; i += blockDim.x) to[i] = from[i];
}

// The exit depths of a page's tokens; `jobs` as above, with pages.
extern "C" __global__ void move_depths(unsigned char* depths, unsigned char* saved, const int2* jobs, int restores) {
    launch_dependents();
    wait_for_previous();
    int2 job = jobs[blockIdx.x];
    unsigned char *in_pool = depths + job.x * BLOCK_TOKENS, *in_host = saved + job.y * BLOCK_TOKENS;
    for (int i = threadIdx.x; i < BLOCK_TOKENS; i += blockDim.x) *(restores ? in_pool + i : in_host + i) = *(restores ? in_host + i : in_pool + i);
}

// The token that a returning sequence made last, which its new place does not know.
extern "C" __global__ void set_tokens(const Header* header, const Row* rows, int* chosen) {
    launch_dependents();
    wait_for_previous();
    for (int i = threadIdx.x; i < header->rows; i += blockDim.x) chosen[rows[i].place] = rows[i].token;
}
