// The first kernel of every batch: brings block tables up to date with what the host uploaded.
// Reference: live/tables.rs (`apply`).
//
// It gives no early launch to the next kernel, so everything that follows may read tables before it waits.

extern "C" __global__ void begin(const Header* header, int* tables, unsigned* counters, int counter_count) {
    wait_for_previous();
    int n = header->appended;
    const int4* appended = (const int4*)((const char*)header + header->appended_at);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // x: index into all tables, y: the page.
    for (int a = i; a < n; a += gridDim.x * blockDim.x) tables[appended[a].x] = appended[a].y;
    for (int c = i; c < counter_count; c += gridDim.x * blockDim.x) counters[c] = 0;
}
