// How a row attends whose query heads share keys and values: on tensor cores.
//
// Tokens are the rows of an m16n8k16 tile, up to 8 query heads of their KV head its columns; then channels are the rows.
// Sums over channels and over tokens run in any order that both operands share, so the 16 bytes that a lane loads of a key or
// a value are operands as they come, without a way through shared memory. Probabilities count with 16 bits: rounded
// to bf16, and what rounding leaves as well.
//
// Many rows take one warp for a piece of work (a split of a row, a KV head): no block has to meet, and other warps hide what one
// waits for. Few rows take several. The block that arrives last merges a row's parts in order, as in `attention_decode.cu`.

#if HEADS > KV_HEADS
constexpr int TILE_HEADS = SHARING < 8 ? SHARING : 8, TILES = (SHARING + TILE_HEADS - 1) / TILE_HEADS, UNITS = KV_HEADS * TILES;
constexpr int KEY_CHUNKS = (HEAD_DIM + 31) / 32, VALUE_CHUNKS = (HEAD_DIM + 63) / 64;
// Four lanes have 64 bytes of a key. Lanes of two neighbouring tokens can load whole lines of 128 together, one key after the
// other; each then has the same half of both, and its row of a tile is summed over that half alone. Keys of two lines gain 4%
// of a step at 64 rows. Keys of one line lose up to 1%.
constexpr int HALVES = HEAD_DIM % 128 == 0 ? 2 : 1;

// Lane (g, c) has two numbers of row g, and gets those of column g.
__device__ __forceinline__ unsigned transposed(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Four pairs of a head: neighbours, or four numbers of either half.
__device__ __forceinline__ uint4 four_pairs(const bf16* head, int pair) {
    if (!ROPE_HALVES) return *(const uint4*)(head + 2 * pair);
    const uint2 x = *(const uint2*)(head + pair), y = *(const uint2*)(head + pair + PAIRS);
    return make_uint4(x.x, x.y, y.x, y.y);
}
__device__ __forceinline__ void store_four_pairs(bf16* head, int pair, uint4 x) {
    if (!ROPE_HALVES) {
        *(uint4*)(head + 2 * pair) = x;
        return;
    }
    *(uint2*)(head + pair) = make_uint2(x.x, x.y);
    *(uint2*)(head + pair + PAIRS) = make_uint2(x.z, x.w);
}
// The same bits as `turned`.
__device__ __forceinline__ uint4 four_turned(const bf16* from, const bf16* bias, const float2* factors, int pair) {
    float x[8], b[8];
    const float4 factor[2] = {*(const float4*)(factors + pair), *(const float4*)(factors + pair + 2)};
    unpack8(four_pairs(from, pair), x);
    if (bias) {
        unpack8(four_pairs(bias, pair), b);
        #pragma unroll
        for (int i = 0; i < 8; i++) x[i] = rounded(x[i] + b[i]);
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 f = factor[i / 2];
        turn(x[ROPE_HALVES ? i : 2 * i], x[ROPE_HALVES ? i + 4 : 2 * i + 1], i % 2 ? make_float2(f.z, f.w) : make_float2(f.x, f.y));
    }
    return pack8(x);
}

template <int WARPS, bool STORED> __device__ __forceinline__ void attend(const DecodeArgs& a) {
    // A warp goes through its share of a split in spans, of which each lane looks up a token, and has so many tokens in
    // registers at a time.
    constexpr int OWN = SPLIT / WARPS, SPAN = OWN < 32 ? OWN : 32, TOKENS = HEAD_DIM <= 64 ? SPAN : 16;
    constexpr int SPANS = OWN / SPAN, ROUNDS = SPAN / TOKENS, THREADS = WARPS * 32;
    // Lanes with sums of heads, two each.
    constexpr int LANES = (TILE_HEADS + 1) / 2 * 8;
    __shared__ __align__(16) bf16 query[8][KEY_CHUNKS * 32 + 8], new_key[HEAD_DIM], new_value[HEAD_DIM];
    __shared__ float sums[WARPS][8][WARPS > 1 ? LANES + 4 : 1];
    __shared__ float2 stats[WARPS][8];
    __shared__ int shared_next;
    __shared__ bool is_last;
    launch_dependents();
    // g: a token or channel of 8, or the query head where queries are loaded. c: the pair of columns.
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, c = lane & 3;
    const int work = a.header->items * UNITS;
    const float scale = rsqrtf((float)HEAD_DIM);
    auto depth_of = [&](const Item& item) { return a.depth ? a.depth : item.depth; };
    auto first_of = [&](const Item& item, int span, int round) {
        return item.split * SPLIT + ((span * ROUNDS + round) * WARPS + warp) * TOKENS;
    };
    auto own_token = [&](const Item& item, int span) { return first_of(item, span, lane / TOKENS) + lane % TOKENS; };
    auto first_fresh = [](const Item& item) { return STORED ? item.fresh : item.position; };

    // The page of this lane's token, or -1 if there is nothing to load before the wait: keys and values of earlier tokens
    // were stored by earlier batches.
    auto page_in = [&](const Item& item, int span) {
        const int token = own_token(item, span);
        return lane < SPAN && token < first_fresh(item) ? page_of(a, item.slot, token) : -1;
    };
    auto address_at = [&](const Item& item, int span, int page) {
        return page < 0 ? -1 : address_in(a, page, depth_of(item), own_token(item, span), false);
    };

    uint4 k[TOKENS / 16][2][KEY_CHUNKS], v[TOKENS / 16][4][VALUE_CHUNKS];
    // What a lane has of its rows g and g + 8 of each 16 tokens.
    auto key_token = [&](int chunk) { return g / HALVES * HALVES + chunk % HALVES; };
    auto key_channel = [&](int chunk, int half) { return (chunk / HALVES * HALVES + half) * 32 + c * 8; };
    // `all`: tokens that are not found become zeros, or they stay as they are.
    auto load_keys = [&](int kv_head, int round, int found, bool all) {
        #pragma unroll
        for (int n = 0; n < TOKENS / 16; n++)
            #pragma unroll
            for (int i = 0; i < 2; i++) {
                int at[HALVES];
                #pragma unroll
                for (int j = 0; j < HALVES; j++) at[j] = __shfl_sync(~0u, found, round * TOKENS + n * 16 + i * 8 + key_token(j));
                #pragma unroll
                for (int chunk = 0; chunk < KEY_CHUNKS; chunk++) {
                    const int d = key_channel(chunk, g % HALVES), token = at[chunk % HALVES];
                    if (all) k[n][i][chunk] = make_uint4(0, 0, 0, 0);
                    if (token >= 0 && d < HEAD_DIM)
                        k[n][i][chunk] = load_kv(a.pool + (size_t)(kv_head * BLOCK_TOKENS + token) * HEAD_DIM + d);
                }
            }
    };
    // Tokens 2c, 2c + 1, 2c + 8 and 2c + 9 of each 16.
    auto load_values = [&](int kv_head, int round, int found, bool all) {
        #pragma unroll
        for (int n = 0; n < TOKENS / 16; n++)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = __shfl_sync(~0u, found, round * TOKENS + n * 16 + i / 2 * 8 + c * 2 + i % 2);
                #pragma unroll
                for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++) {
                    const int d = chunk * 64 + g * 8;
                    if (all) v[n][i][chunk] = make_uint4(0, 0, 0, 0);
                    if (at >= 0 && d < HEAD_DIM)
                        v[n][i][chunk] = load_kv(a.pool + (size_t)((KV_HEADS + kv_head) * BLOCK_TOKENS + at) * HEAD_DIM + d);
                }
            }
    };
    auto begin = [&](const Item& item, int kv_head) {
        const int found = address_at(item, 0, page_in(item, 0));
        load_keys(kv_head, 0, found, true);
        load_values(kv_head, 0, found, true);
        return found;
    };

    int w = blockIdx.x, found = -1;
    Item item = {};
    if (w < work) {
        item = a.items[w / UNITS];
        found = begin(item, w % UNITS / TILES);
    }
    if (tid == 0) shared_next = gridDim.x + atomicAdd(a.next, 1);
    // Heads and channels that fill the tile.
    for (int i = tid; i < 8 * (KEY_CHUNKS * 32 + 8) / 8; i += THREADS) ((uint4*)query)[i] = make_uint4(0, 0, 0, 0);
    wait_for_previous();
    __syncthreads();

    while (w < work) {
        const int unit = w % UNITS, kv_head = unit / TILES, first_head = kv_head * SHARING + unit % TILES * TILE_HEADS;
        const int heads = SHARING % TILE_HEADS == 0 ? TILE_HEADS : min(TILE_HEADS, SHARING - unit % TILES * TILE_HEADS);
        const int position = item.position, t1 = min(position + 1, item.split * SPLIT + SPLIT), next = shared_next;
        int claimed = 0;
        if (tid == 0) claimed = gridDim.x + atomicAdd(a.next, 1);

        const bf16* qkv = a.qkv + (size_t)item.row * QKV_WIDTH;
        const float2* factors = a.factors + (size_t)position * PAIRS;
        #pragma unroll
        for (int i = tid; i < TILE_HEADS * PAIRS / 4; i += THREADS) {
            const int head = i / (PAIRS / 4), pair = i % (PAIRS / 4) * 4, at = (first_head + head) * HEAD_DIM;
            if (head >= heads) continue;
            const uint4 x = four_turned(qkv + at, a.qk_bias ? a.qk_bias + at : nullptr, factors, pair);
            store_four_pairs(query[head], pair, x);
        }
        if (!STORED && t1 == position + 1) {
            // Tiles of one KV head store the same.
            const int at = kv_head * BLOCK_TOKENS + address(a, item.slot, depth_of(item), position, true);
            bf16* to = a.pool + (size_t)at * HEAD_DIM;
            for (int pair = tid * 4; pair < PAIRS; pair += THREADS * 4) {
                const int at = ATTENTION + kv_head * HEAD_DIM;
                const uint4 x = four_turned(qkv + at, a.qk_bias ? a.qk_bias + at : nullptr, factors, pair);
                store_four_pairs(new_key, pair, x);
                store_four_pairs(to, pair, x);
            }
            to += (size_t)KV_HEADS * BLOCK_TOKENS * HEAD_DIM;
            for (int d = tid * 8; d < HEAD_DIM; d += THREADS * 8)
                *(uint4*)(to + d) = *(uint4*)(new_value + d) =
                    *(const uint4*)(qkv + ATTENTION + KV_WIDTH + kv_head * HEAD_DIM + d);
            if (tid == 0 && unit == 0 && a.marks_depth)
                a.depths[page_of(a, item.slot, position) * BLOCK_TOKENS + position % BLOCK_TOKENS] = depth_of(item);
        }
        __syncthreads();

        float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, o[VALUE_CHUNKS * 4][4];
        #pragma unroll
        for (int i = 0; i < VALUE_CHUNKS * 4; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++) o[i][j] = 0;
        #pragma unroll 1
        for (int span = 0; span < SPANS && first_of(item, span, 0) < t1; span++) {
            // What comes next is looked up meanwhile.
            const int next_page = span + 1 < SPANS ? page_in(item, span + 1) : -1;
            int next_found = -1;
            // Of the tokens from `fresh` on some ran with this one, and some have left: the depths say so now.
            int found_now = -1;
            if (STORED && lane < SPAN && own_token(item, span) >= item.fresh && own_token(item, span) < t1)
                found_now = address_now(a, item.slot, depth_of(item), own_token(item, span));
            #pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                const int first = first_of(item, span, round), newest = position - first;
                if (STORED) {
                    load_keys(kv_head, round, found_now, false);
                    load_values(kv_head, round, found_now, false);
                } else if (newest >= 0 && newest < TOKENS) {
                    #pragma unroll
                    for (int n = 0; n < TOKENS / 16; n++) {
                        #pragma unroll
                        for (int i = 0; i < 2; i++)
                            #pragma unroll
                            for (int chunk = 0; chunk < KEY_CHUNKS; chunk++) {
                                const int d = key_channel(chunk, g % HALVES);
                                if (n * 16 + i * 8 + key_token(chunk) == newest && d < HEAD_DIM)
                                    k[n][i][chunk] = *(const uint4*)(new_key + d);
                            }
                        #pragma unroll
                        for (int i = 0; i < 4; i++)
                            #pragma unroll
                            for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++) {
                                const int d = chunk * 64 + g * 8;
                                if (n * 16 + i / 2 * 8 + c * 2 + i % 2 == newest && d < HEAD_DIM)
                                    v[n][i][chunk] = *(const uint4*)(new_value + d);
                            }
                    }
                }
                // By token of the pair that a row's lanes load, and half of the query. One half is the row's own.
                float s[TOKENS / 16][4], dots[TOKENS / 16][HALVES][HALVES][4] = {};
                #pragma unroll
                for (int chunk = 0; chunk < KEY_CHUNKS; chunk++)
                    #pragma unroll
                    for (int half = 0; half < HALVES; half++) {
                        const uint4 q = *(const uint4*)&query[g][key_channel(chunk, half)];
                        #pragma unroll
                        for (int n = 0; n < TOKENS / 16; n++) {
                            const uint4 x = k[n][0][chunk], y = k[n][1][chunk];
                            mma(dots[n][chunk % HALVES][half], x.x, y.x, x.y, y.y, q.x, q.y);
                            mma(dots[n][chunk % HALVES][half], x.z, y.z, x.w, y.w, q.z, q.w);
                        }
                    }
                #pragma unroll
                for (int n = 0; n < TOKENS / 16; n++)
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        s[n][i] = dots[n][0][0][i];
                        if (HALVES == 1) continue;
                        // Rows g and g ^ 1 have a half each of both their keys.
                        const bool odd = g % 2;
                        const float own = odd ? dots[n][HALVES - 1][HALVES - 1][i] : dots[n][0][0][i];
                        const float others = odd ? dots[n][0][HALVES - 1][i] : dots[n][HALVES - 1][0][i];
                        s[n][i] = own + __shfl_xor_sync(~0u, others, 4);
                    }
                if (round == 0) next_found = address_at(item, span + 1, next_page);
                const bool more = round + 1 < ROUNDS;
                if (more || SPANS > 1) load_keys(kv_head, more ? round + 1 : 0, more ? found : next_found, true);

                // Scores of tokens g and g + 8 of each 16, heads 2c and 2c + 1.
                float largest[2] = {m[0], m[1]};
                #pragma unroll
                for (int n = 0; n < TOKENS / 16; n++)
                    #pragma unroll
                    for (int i = 0; i < 4; i++) {
                        s[n][i] = first + n * 16 + i / 2 * 8 + g < t1 ? s[n][i] * scale : -INFINITY;
                        largest[i % 2] = fmaxf(largest[i % 2], s[n][i]);
                    }
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    #pragma unroll
                    for (int step = 4; step < 32; step <<= 1)
                        largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], step));
                    if (SPANS > 1 || round > 0) {
                        // -inf minus -inf is not a number: a warp that has seen no token yet keeps zeros.
                        const float correction = m[i] == -INFINITY ? 0.f : __expf(m[i] - largest[i]);
                        l[i] *= correction;
                        #pragma unroll
                        for (int j = 0; j < VALUE_CHUNKS * 4; j++) {
                            o[j][i] *= correction;
                            o[j][i + 2] *= correction;
                        }
                    }
                    m[i] = largest[i];
                }
                #pragma unroll
                for (int n = 0; n < TOKENS / 16; n++) {
                    unsigned upper[2], lower[2];
                    #pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float p[2], kept[2];
                        #pragma unroll
                        for (int j = 0; j < 2; j++) {
                            const float score = s[n][i * 2 + j];
                            l[j] += p[j] = score == -INFINITY ? 0.f : __expf(score - m[j]);
                        }
                        upper[i] = pack(p[0], p[1]);
                        unpack(upper[i], kept[0], kept[1]);
                        lower[i] = transposed(pack(p[0] - kept[0], p[1] - kept[1]));
                        upper[i] = transposed(upper[i]);
                    }
                    #pragma unroll
                    for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++)
                        #pragma unroll
                        for (int r = 0; r < 4; r++) {
                            // Channels 2r and 2r + 1 of the lane's 8 are rows g and g + 8.
                            unsigned x[4];
                            #pragma unroll
                            for (int i = 0; i < 4; i++) x[i] = (&v[n][i][chunk].x)[r];
                            const unsigned even = __byte_perm(x[0], x[1], 0x5410), odd = __byte_perm(x[0], x[1], 0x7632);
                            const unsigned even_8 = __byte_perm(x[2], x[3], 0x5410), odd_8 = __byte_perm(x[2], x[3], 0x7632);
                            mma(o[chunk * 4 + r], even, odd, even_8, odd_8, upper[0], upper[1]);
                            mma(o[chunk * 4 + r], even, odd, even_8, odd_8, lower[0], lower[1]);
                        }
                }
                if (more || SPANS > 1) load_values(kv_head, more ? round + 1 : 0, more ? found : next_found, true);
            }
            found = next_found;
        }

        // The block's warps, in order.
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            #pragma unroll
            for (int step = 4; step < 32; step <<= 1) l[i] += __shfl_xor_sync(~0u, l[i], step);
            if (g == 0) stats[warp][c * 2 + i] = make_float2(m[i], l[i]);
        }
        __syncthreads();
        if (tid == 0) shared_next = claimed;
        const bool whole = item.splits == 1;
        const size_t part = (size_t)(w / UNITS) * HEADS + first_head;
        float weight[2];
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = -INFINITY, total = 0;
            #pragma unroll
            for (int j = 0; j < WARPS; j++) top = fmaxf(top, stats[j][c * 2 + i].x);
            #pragma unroll
            for (int j = 0; j < WARPS; j++) total += __expf(stats[j][c * 2 + i].x - top) * stats[j][c * 2 + i].y;
            weight[i] = __fdividef(__expf(m[i] - top), whole ? total : 1.f);
            if (!whole && warp == 0 && g == 0 && c * 2 + i < heads) a.part_sums[part + c * 2 + i] = make_float2(top, total);
        }
        // Heads 2c and 2c + 1, 8 channels of 64 each.
        if (WARPS == 1) {
            #pragma unroll
            for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++)
                #pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    const int head = c * 2 + odd, d = chunk * 64 + g * 8;
                    float x[8];
                    #pragma unroll
                    for (int j = 0; j < 8; j++) x[j] = weight[odd] * o[chunk * 4 + j / 2][j % 2 * 2 + odd];
                    if (head >= heads || d >= HEAD_DIM) continue;
                    float4* to = (float4*)(a.parts + (part + head) * HEAD_DIM + d);
                    if (whole) {
                        *(uint4*)(a.out + (size_t)item.row * ATTENTION + (first_head + head) * HEAD_DIM + d) = pack8(x);
                    } else {
                        to[0] = make_float4(x[0], x[1], x[2], x[3]);
                        to[1] = make_float4(x[4], x[5], x[6], x[7]);
                    }
                }
        }
        // Of several warps, of heads 2c + `odd`, 64 channels at a time.
        #pragma unroll
        for (int run = 0; run < (WARPS > 1 ? VALUE_CHUNKS * 2 : 0); run++) {
            const int chunk = run / 2, odd = run % 2;
            if (run > 0) __syncthreads();
            if (c * 8 < LANES)
                #pragma unroll
                for (int j = 0; j < 8; j++) sums[warp][j][c * 8 + g] = weight[odd] * o[chunk * 4 + j / 2][j % 2 * 2 + odd];
            __syncthreads();
            for (int i = tid; i < LANES * 8; i += THREADS) {
                const int j = i % 8, from = i / 8, head = from / 8 * 2 + odd, d = chunk * 64 + from % 8 * 8 + j;
                float x = 0;
                #pragma unroll
                for (int other = 0; other < WARPS; other++) x += sums[other][j][from];
                if (head >= heads || d >= HEAD_DIM) continue;
                if (whole) a.out[(size_t)item.row * ATTENTION + (first_head + head) * HEAD_DIM + d] = narrow(x);
                else a.parts[(part + head) * HEAD_DIM + d] = x;
            }
        }
        if (!whole) {
            __syncthreads();
            if (tid == 0) {
                fence();
                unsigned* arrived = a.arrived + item.row * UNITS + unit;
                is_last = atomicAdd(arrived, 1) == (unsigned)item.splits - 1;
                if (is_last) *arrived = 0;
                fence();
            }
            __syncthreads();
            if (is_last)
                for (int i = tid; i < heads * (HEAD_DIM / 4); i += THREADS) {
                    const int head = first_head + i / (HEAD_DIM / 4), d = i % (HEAD_DIM / 4) * 4;
                    float top = -INFINITY, sum = 0;
                    float4 x = make_float4(0, 0, 0, 0);
                    #pragma unroll 4
                    for (int s = 0; s < item.splits; s++) {
                        const size_t part = (size_t)(item.first + s) * HEADS + head;
                        const float2 stat = __ldcg(&a.part_sums[part]);
                        const float4 y = __ldcg((const float4*)&a.parts[part * HEAD_DIM + d]);
                        const float largest = fmaxf(top, stat.x), kept = __expf(top - largest), e = __expf(stat.x - largest);
                        top = largest;
                        sum = sum * kept + e * stat.y;
                        x.x = x.x * kept + e * y.x;
                        x.y = x.y * kept + e * y.y;
                        x.z = x.z * kept + e * y.z;
                        x.w = x.w * kept + e * y.w;
                    }
                    bf16* out = a.out + (size_t)item.row * ATTENTION + head * HEAD_DIM + d;
                    *(uint2*)out = make_uint2(pack(x.x / sum, x.y / sum), pack(x.z / sum, x.w / sum));
                }
        }
        w = next;
        if (w < work) {
            item = a.items[w / UNITS];
            found = begin(item, w % UNITS / TILES);
        }
        __syncthreads();
    }
}
#endif
