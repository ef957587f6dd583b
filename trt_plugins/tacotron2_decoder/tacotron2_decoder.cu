// All decoder steps of Tacotron 2 in one cooperative launch, for up to eight items at a time.
//
// Weights stay in shared memory and registers for the whole launch. Blocks exchange values through a small
// buffer in global memory, without barriers: every value carries a phase bit of its step, and its readers spin
// until the bit is right. README.md beside this file describes a step.
//
// Products use mma.sync m16n8k16: 16 rows of weights, 16 channels, 8 items; float32 sums. The channels of a
// product are distributed over the warps in pairs of k16 tiles. weights.py arranges weights so that a lane's
// fragment of a tile is 16 bytes, and permutes the channels within a pair so that a lane's share of a vector is
// 16 bytes too: lane 4 g + c has channels 8 c to 8 c + 7 of item g.

#ifndef PRENET  // the published sizes
#define PRENET 256
#define ATTENTION_RNN 1024
#define DECODER_RNN 1024
#define ENCODER 512
#define ATTENTION 128
#define LOCATION_KERNEL 31
#define FRAME 80
#endif

constexpr int WARP = 32;
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;
constexpr int ITEMS = 8;                // columns of a product
constexpr int UNITS = 8;                // of an LSTM that a block owns
constexpr int ROWS = 16;                // of a tile
constexpr int PART_STRIDE = 49;         // floats; 48 rows, padded to avoid bank conflicts
constexpr int COPIES = 4;               // of every exchanged value
constexpr int MOST_TEXT = 512;
constexpr int TEXT_PIECES = MOST_TEXT / (4 * WARP);
constexpr int PATIENCE = 1 << 20;       // polls, of under a microsecond each, before a launch is given up
constexpr float MASKED_SCORE = -6e4f;   // as tacotron2/model.py has it
constexpr float LARGEST_HALF = 65504.f;
constexpr unsigned EVERYONE = 0xffffffffu;

__host__ __device__ constexpr int tiles(int rows) { return (rows + 15) / 16; }
__host__ __device__ constexpr int pairs(int channels) { return (channels + 31) / 32; }
__host__ __device__ constexpr int pairs_of_warp(int channels) { return (pairs(channels) + WARPS - 1) / WARPS; }
__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }

constexpr int PAIRS_P = pairs(PRENET), PAIRS_A = pairs(ATTENTION_RNN), PAIRS_D = pairs(DECODER_RNN);
constexpr int PAIRS_C = pairs(ENCODER);
constexpr int EACH_P = pairs_of_warp(PRENET), EACH_A = pairs_of_warp(ATTENTION_RNN);
constexpr int EACH_D = pairs_of_warp(DECODER_RNN), EACH_C = pairs_of_warp(ENCODER);
constexpr int ATTENTION_BLOCKS = ATTENTION_RNN / UNITS, DECODER_BLOCKS = DECODER_RNN / UNITS;
// Small products have a block for each 16 rows; no block has two of them.
constexpr int QUERY_BLOCKS = tiles(ATTENTION), PRENET_BLOCKS = tiles(PRENET);
constexpr int OUT_ROWS = PRENET + FRAME + 1, OUT_BLOCKS = tiles(OUT_ROWS), CONTEXT_BLOCKS = tiles(ENCODER);
constexpr int FIRST_OUT = QUERY_BLOCKS + PRENET_BLOCKS, FIRST_CONTEXT = FIRST_OUT + OUT_BLOCKS;
constexpr int LAST_SMALL = FIRST_CONTEXT + CONTEXT_BLOCKS;
constexpr int SMALL_PAIRS = most(most(EACH_A, EACH_P), EACH_D + EACH_C);
constexpr int RECURRENT_KEPT = most(1, EACH_D / 2);  // pairs of a warp; more would cause spills
constexpr int PAIR_WORDS = 2 * WARP;  // 16-byte words of 16 rows and a pair of tiles
constexpr int TAPS = 2 * LOCATION_KERNEL, REACH = LOCATION_KERNEL / 2;
constexpr int MEMORY_TILES = 2 * DECODER_BLOCKS + CONTEXT_BLOCKS;  // rows of `products`, by 16
constexpr int QUERY_PIECES = (ATTENTION + 4 * WARP - 1) / (4 * WARP);
constexpr int LOCATION_GROUPS = THREADS / ATTENTION;
constexpr int LOCATION_WORDS = (TAPS * ATTENTION + 7) / 8;  // of 16 bytes
constexpr int TOGETHER = 4;  // adjacent positions whose location features a thread computes

// Values exchanged between blocks, in two slots, so that a step can be written while the previous one is read. The
// L2 cache serializes polls of the same address, so every value is written to COPIES copies, and each block polls
// one of them. All zeros before the first step. The phase bit of a float16 is one that its value cannot have set:
// the sign after a ReLU, the highest bit of the exponent of values below 2. In float32 it is the last bit of the
// mantissa.
struct Exchange {
    unsigned short attention[2][COPIES][ITEMS][ATTENTION_RNN];
    unsigned short decoder[2][COPIES][ITEMS][DECODER_RNN];
    unsigned short prenet1[2][COPIES][ITEMS][PRENET];
    unsigned short prenet2[2][COPIES][ITEMS][PRENET];
    unsigned context[2][COPIES][ITEMS][ENCODER];
    unsigned query[2][COPIES][ITEMS][ATTENTION];
    unsigned energy[2][COPIES][ITEMS][MOST_TEXT];
    unsigned stop[2][COPIES][32];
};
constexpr unsigned SIGN = 0x80008000u, BELOW_TWO = 0x40004000u;

__device__ __forceinline__ unsigned turn(int step) { return ((step >> 1) & 1) ^ 1; }

__device__ __forceinline__ uint4 look(const void* place) {
    uint4 seen;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w) : "l"(place) : "memory");
    return seen;
}

__device__ __forceinline__ unsigned look_word(const unsigned* place) {
    unsigned seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(place) : "memory");
    return seen;
}

__device__ __forceinline__ void show(unsigned short* place, unsigned value) {
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" :: "l"(place), "h"((unsigned short)value) : "memory");
}

__device__ __forceinline__ void show(unsigned* place, unsigned value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(place), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned to_half(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ __forceinline__ float from_half(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ __forceinline__ unsigned two_halves(unsigned low, unsigned high) {
    return to_half(__uint_as_float(low)) | to_half(__uint_as_float(high)) << 16;
}

__device__ __forceinline__ float logistic(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

__device__ __forceinline__ float tanh_of(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(2.f * x)); }

// The maximum over a warp.
__device__ __forceinline__ float warp_max(float value) {
#if __CUDA_ARCH__ >= 800  // launch.py refuses older GPUs
    int ordered = __float_as_int(value);
    ordered ^= (ordered >> 31) & 0x7fffffff;  // integers in the order of the floats
    asm("redux.sync.max.s32 %0, %0, 0xffffffff;" : "+r"(ordered));
    return __int_as_float(ordered ^ ((ordered >> 31) & 0x7fffffff));
#else
    return value;
#endif
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance; distance /= 2) value += __shfl_xor_sync(EVERYONE, value, distance);
    return value;
}

// sums (16 rows, 8 items) += a tile of weights times a tile of vectors.
__device__ __forceinline__ void multiply(float (&sums)[4], uint4 weights, unsigned low, unsigned high) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(low), "r"(high));
#endif
}

// A warp's share of a float16 vector in the exchange: pairs `warp`, `warp` + WARPS, and so on.
template <int CHANNELS, unsigned BIT>
struct Halves {
    static constexpr int EACH = pairs_of_warp(CHANNELS);
    uint4 x[EACH];

    // Channels outside the vector are zero. Returns whether a value is not of this step yet.
    __device__ __forceinline__ bool look_for(const unsigned short* vectors, unsigned turned, int n_items) {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, item = lane / 4;
        const unsigned wanted = turned ? BIT : 0;
        const unsigned short* mine = vectors + item * CHANNELS;
        unsigned missing = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int channel = (warp + WARPS * j) * 32 + lane % 4 * 8;
            x[j] = make_uint4(wanted, wanted, wanted, wanted);
            if (channel < CHANNELS && item < n_items) x[j] = look(mine + channel);
        }
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            missing |= (x[j].x ^ wanted) | (x[j].y ^ wanted) | (x[j].z ^ wanted) | (x[j].w ^ wanted);
        return missing & BIT;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            x[j] = make_uint4(x[j].x & ~BIT, x[j].y & ~BIT, x[j].z & ~BIT, x[j].w & ~BIT);
    }
};

// The same for a float32 vector, converted to float16.
template <int CHANNELS>
struct Floats {
    static constexpr int EACH = pairs_of_warp(CHANNELS);
    uint4 x[EACH];

    __device__ __forceinline__ bool look_for(const unsigned* vectors, unsigned turned, int n_items) {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, item = lane / 4;
        const unsigned* mine = vectors + item * CHANNELS;
        unsigned missing = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int channel = (warp + WARPS * j) * 32 + lane % 4 * 8;
            x[j] = make_uint4(0, 0, 0, 0);
            if (channel < CHANNELS && item < n_items) {
                const uint4 low = look(mine + channel), high = look(mine + channel + 4);
                missing |= (low.x ^ turned) | (low.y ^ turned) | (low.z ^ turned) | (low.w ^ turned);
                missing |= (high.x ^ turned) | (high.y ^ turned) | (high.z ^ turned) | (high.w ^ turned);
                x[j] = make_uint4(two_halves(low.x, low.y), two_halves(low.z, low.w),
                                  two_halves(high.x, high.y), two_halves(high.z, high.w));
            }
        }
        return missing & 1;
    }
};

// Spins until a warp's share of a vector has arrived. Once patience is 0, nothing is waited for any more.
template <bool URGENT, int CHANNELS, unsigned BIT>
__device__ __forceinline__ void receive(Halves<CHANNELS, BIT>& halves, const unsigned short* vectors,
                                        unsigned turned, int n_items, int& patience) {
    while (__any_sync(EVERYONE, halves.look_for(vectors, turned, n_items)) && patience) {
        --patience;
        if (!URGENT) __nanosleep(40);
    }
    if (patience) patience = PATIENCE;
    halves.clear();
}

template <bool URGENT, int CHANNELS, unsigned BIT, int MORE>
__device__ __forceinline__ void receive(Halves<CHANNELS, BIT>& halves, const unsigned short* vectors,
                                        Floats<MORE>& floats, const unsigned* other_vectors, unsigned turned,
                                        int n_items, int& patience) {
    while (true) {
        const bool missing = halves.look_for(vectors, turned, n_items);
        const bool other_missing = floats.look_for(other_vectors, turned, n_items);
        if (!__any_sync(EVERYONE, missing || other_missing) || patience == 0) break;
        --patience;
        if (!URGENT) __nanosleep(40);
    }
    if (patience) patience = PATIENCE;
    halves.clear();
}

// Stores a warp's partial sums of 16 rows, to be reduced over the warps: parts (WARPS, n_items, PART_STRIDE).
__device__ __forceinline__ void put_part(float* parts, const float (&sums)[4], int row_tile, int n_items) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, item = lane % 4 * 2;
    float* mine = parts + (warp * n_items + item) * PART_STRIDE + row_tile * 16 + lane / 4;
    if (item < n_items) {
        mine[0] = sums[0];
        mine[8] = sums[2];
    }
    if (item + 1 < n_items) {
        mine[PART_STRIDE] = sums[1];
        mine[PART_STRIDE + 8] = sums[3];
    }
}

// The sum over the warps for gate lane / 8 of a unit, in eight lanes each.
__device__ __forceinline__ float add_gate(const float* parts, int item, int unit, int n_items) {
    const int lane = threadIdx.x % WARP, gate = lane / UNITS, stride = n_items * PART_STRIDE;
    const float* mine = parts + lane % UNITS * stride + item * PART_STRIDE + gate * UNITS + unit;
    float sum = mine[0] + mine[WARPS / 2 * stride];
#pragma unroll
    for (int distance = UNITS / 2; distance; distance /= 2) sum += __shfl_xor_sync(EVERYONE, sum, distance);
    return sum;
}

// The sum over the warps of a row; each half of the warp has an item, and its sixteen lanes the sum.
__device__ __forceinline__ float add_row(const float* parts, int item, int row, int n_items) {
    const int part = threadIdx.x % WARPS;
    float sum = item < n_items ? parts[(part * n_items + item) * PART_STRIDE + row] : 0.f;
#pragma unroll
    for (int distance = WARPS / 2; distance; distance /= 2) sum += __shfl_xor_sync(EVERYONE, sum, distance);
    return sum;
}

// Calls use(item, sum, kept, copy) with each item's sum of a row, and its value in lane b of `kept`.
template <class Use>
__device__ __forceinline__ void each_item(const float* parts, int row, float kept, int n_items, Use use) {
    const int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int first = 0; first < n_items; first += 2) {
        const int item = first + lane / WARPS;
        const float sum = add_row(parts, item, row, n_items), own = __shfl_sync(EVERYONE, kept, item);
        if (item < n_items && lane % WARPS < COPIES) use(item, sum, own, lane % WARPS);
    }
}

// 16 rows' sums of a warp += its weights in registers, from pair FIRST on, times its share of a vector.
template <int FIRST, int N_SMALL, int EACH>
__device__ __forceinline__ void multiply_small(float (&sums)[4], const uint4 (&small)[N_SMALL][2],
                                               const uint4 (&x)[EACH]) {
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
        multiply(sums, small[FIRST + j][0], x[j].x, x[j].y);
        multiply(sums, small[FIRST + j][1], x[j].z, x[j].w);
    }
}

// 32 rows' sums of a warp += weights in shared memory, (2, row_pairs, 2, WARP), times its share of a vector.
template <int PAIRS, int EACH>
__device__ __forceinline__ void multiply_gates(float (&sums)[2][4], const uint4* weights, int row_pairs,
                                               const uint4 (&x)[EACH]) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int j = 0; j < EACH; ++j)
        if (warp + WARPS * j < PAIRS)
#pragma unroll
            for (int tile = 0; tile < 2; ++tile) {
                const uint4* mine = weights + (tile * row_pairs + warp + WARPS * j) * PAIR_WORDS + lane;
                multiply(sums[tile], mine[0], x[j].x, x[j].y);
                multiply(sums[tile], mine[WARP], x[j].z, x[j].w);
            }
}

// An LSTM's gates (input, forget, cell, output), each in eight lanes of a warp -> the unit's hidden state.
__device__ __forceinline__ float lstm(float gate, float& cell) {
    const bool is_cell = threadIdx.x % WARP / UNITS == 2;
    const float squashed = logistic(is_cell ? 2.f * gate : gate);
    const float value = is_cell ? 2.f * squashed - 1.f : squashed;
    const float input = __shfl_sync(EVERYONE, value, 0), forget = __shfl_sync(EVERYONE, value, 8);
    const float shown = __shfl_sync(EVERYONE, value, 16), out = __shfl_sync(EVERYONE, value, 24);
    const float changed = forget * cell + input * shown;
    __syncwarp();
    cell = changed;
    return out * tanh_of(changed);
}

__device__ __forceinline__ unsigned bounded_half(float value, unsigned turned) {
    return (to_half(value) & ~(BELOW_TWO & 0xffffu)) | (turned ? BELOW_TWO & 0xffffu : 0u);
}

__device__ __forceinline__ unsigned positive_half(float value, unsigned turned) {
    return (to_half(fminf(fmaxf(value, 0.f), LARGEST_HALF)) & 0x7fffu) | turned << 15;
}

__device__ __forceinline__ unsigned marked(float value, unsigned turned) {
    return (__float_as_uint(value) & ~1u) | turned;
}

// Arguments as in launch.py; S is the step limit, N the padded text length, B the number of items.
// status: steps made, 1 if a block timed out. mel (B, S, FRAME), gate (B, S), alignment (B, S, N).
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    decode(const uint4* attention_weights, const uint4* decoder_weights, const uint4* recurrent_weights,
           const uint4* query_weights, const uint4* prenet_weights, const uint4* out_weights,
           const float* attention_bias, const float* decoder_bias, const float* out_bias,
           const unsigned short* location_weights, const float* energy_weights, const uint4* products,
           const float* processed_memory, const long long* lengths, const float* noise, const float* dropout,
           const float* threshold, Exchange* exchange, float* mel, long long* steps_made, float* gates,
           float* alignment, unsigned char* stopped, int* status, long long n_items_given, long long n_text_given,
           long long limit_given, long long frames_per_step, long long early, long long cache_location,
           long long cache_products) {
    extern __shared__ uint4 shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, block = blockIdx.x;
    const int n_items = (int)n_items_given, n_text = (int)n_text_given, limit = (int)limit_given;
    const int text_pairs = (n_text + 31) / 32, copy = block % COPIES;

    const bool has_attention = block < ATTENTION_BLOCKS, has_decoder = block < DECODER_BLOCKS;
    const bool has_query = block < QUERY_BLOCKS;
    const bool has_prenet = !has_query && block < FIRST_OUT;
    const bool has_out = block >= FIRST_OUT && block < FIRST_CONTEXT;
    const bool has_context = block >= FIRST_CONTEXT && block < FIRST_CONTEXT + CONTEXT_BLOCKS;
    // Energies: each block has adjacent positions of one item. Blocks without a small product come first, then those
    // of the context; the other small products are on the critical path.
    const int energy_block = block >= LAST_SMALL ? block - LAST_SMALL : has_context ? (int)gridDim.x - 1 - block : -1;
    const int blocks_of_item = ((int)gridDim.x - FIRST_CONTEXT) / n_items;
    const int positions = (n_text + blocks_of_item - 1) / blocks_of_item;
    const int own_item = energy_block >= 0 && energy_block / blocks_of_item < n_items
                             ? energy_block / blocks_of_item : -1;
    const int first_own = own_item < 0 ? 0 : energy_block % blocks_of_item * positions;
    const int n_own = own_item < 0 ? 0 : max(0, min(positions, n_text - first_own));
    const bool has_memory = has_decoder || has_context;
    if (!has_attention && !has_memory && !has_query && !has_prenet && !has_out && !n_own) return;

    // Shared memory, in the layout that launch.py computes the size of.
    uint4* const attention_tiles = shared;  // (2, PAIRS_P + PAIRS_C + PAIRS_A, 2, WARP)
    constexpr int ATTENTION_PAIRS = PAIRS_P + PAIRS_C + PAIRS_A;
    uint4* const decoder_tiles = attention_tiles + 2 * ATTENTION_PAIRS * PAIR_WORDS;  // (2, PAIRS_A, 2, WARP)
    uint4* const weighted = decoder_tiles + 2 * PAIRS_A * PAIR_WORDS;  // (n_items, text_pairs * 4) 8 halves each
    float* const parts = (float*)(weighted + n_items * text_pairs * 4);
    float* const exact = parts + WARPS * n_items * PART_STRIDE;  // (text_pairs * 32) attention of the block's item
    float* const attention_cells = exact + text_pairs * 32;      // (ITEMS, UNITS)
    float* const decoder_cells = attention_cells + ITEMS * UNITS;
    int* const going_on = (int*)(decoder_cells + ITEMS * UNITS);
    int* const made = going_on + ITEMS;  // steps
    float* const location = (float*)(made + ITEMS);  // (positions, ATTENTION)
    const int window = positions + 2 * REACH + TOGETHER - 1;
    float* const seen = location + positions * ATTENTION;  // (2, window) the last attention, and the cumulative one
    // Cached where there is room: the location layer's weights, the memory's products.
    uint4* const kept_location = (uint4*)(location + (positions * ATTENTION + 2 * window + 3) / 4 * 4);
    uint4* const kept_products = kept_location + (cache_location ? LOCATION_WORDS : 0);
    if (cache_location) {
        unsigned short* const kept = (unsigned short*)kept_location;
        for (int i = threadIdx.x; i < TAPS * ATTENTION; i += THREADS) kept[i] = location_weights[i];
        location_weights = kept;
    }

    if (has_attention)
        for (int i = threadIdx.x; i < 2 * ATTENTION_PAIRS * PAIR_WORDS; i += THREADS)
            attention_tiles[i] = attention_weights[(long long)block * 2 * ATTENTION_PAIRS * PAIR_WORDS + i];
    if (has_decoder)
        for (int i = threadIdx.x; i < 2 * PAIRS_A * PAIR_WORDS; i += THREADS)
            decoder_tiles[i] = decoder_weights[(long long)block * 2 * PAIRS_A * PAIR_WORDS + i];
    for (int i = threadIdx.x; i < 2 * window; i += THREADS) seen[i] = 0.f;
    for (int i = threadIdx.x; i < n_own * ATTENTION; i += THREADS)
        location[i] = processed_memory[(own_item * n_text + first_own) * ATTENTION + i];
    if (threadIdx.x < 2 * ITEMS * UNITS) attention_cells[threadIdx.x] = 0.f;  // and the decoder's
    if (threadIdx.x < ITEMS) {
        going_on[threadIdx.x] = 1;
        made[threadIdx.x] = 0;
    }
    for (int i = threadIdx.x; i < n_items * text_pairs * 4; i += THREADS) weighted[i] = make_uint4(0, 0, 0, 0);

    // The block's rows of the memory's products, 16 at a time: two tiles of the decoder's gates, one of the context.
    // tile_start is in words of 16 bytes.
    const int tile_words = text_pairs * PAIR_WORDS;
    int tile_start[3] = {2 * block * tile_words, (2 * block + 1) * tile_words,
                         (2 * DECODER_BLOCKS + block - FIRST_CONTEXT) * tile_words};
    int item_words = MEMORY_TILES * tile_words;
    if (cache_products) {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (i < 2 ? has_decoder : has_context)
                for (int k = threadIdx.x; k < n_items * tile_words; k += THREADS)
                    kept_products[i * n_items * tile_words + k] =
                        products[tile_start[i] + k / tile_words * item_words + k % tile_words];
            tile_start[i] = i * n_items * tile_words;
        }
        products = kept_products;
        item_words = tile_words;
    }
    // A warp's pairs of text positions, from its first one on, without divisions on the critical path.
    const int first_item = warp / text_pairs, first_pair = warp % text_pairs;
    const auto go_on = [&](int& item, int& pair) {
        for (pair += WARPS; pair >= text_pairs; pair -= text_pairs) ++item;
    };
    const auto pair_start = [&](int item, int pair) { return item * item_words + pair * PAIR_WORDS; };
    const auto look_ahead = [&](int item, int pair, uint4 (&ahead)[2][2]) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
            const uint4* from = products + pair_start(item, pair) + tile_start[tile] + lane;
            ahead[tile][0] = from[0];
            ahead[tile][1] = from[WARP];
        }
    };

    // In registers: RECURRENT_KEPT pairs of the decoder's recurrent weights, and the weights of the small product.
    const auto load_recurrent = [&](int j, uint4 (&weights)[2][2]) {
        const int pair = warp + WARPS * j;
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                weights[tile][half] =
                    has_decoder && pair < PAIRS_D
                        ? recurrent_weights[((2 * block + tile) * PAIRS_D + pair) * PAIR_WORDS + half * WARP + lane]
                        : make_uint4(0, 0, 0, 0);
    };
    uint4 recurrent[RECURRENT_KEPT][2][2];
#pragma unroll
    for (int j = 0; j < RECURRENT_KEPT; ++j) load_recurrent(j, recurrent[j]);
    uint4 small[SMALL_PAIRS][2];
    {
        const uint4* source = has_query    ? query_weights + block * PAIRS_A * PAIR_WORDS
                              : has_prenet ? prenet_weights + (block - QUERY_BLOCKS) * PAIRS_P * PAIR_WORDS
                                           : out_weights + (block - FIRST_OUT) * (PAIRS_D + PAIRS_C) * PAIR_WORDS;
#pragma unroll
        for (int j = 0; j < SMALL_PAIRS; ++j) {
            int pair = warp + WARPS * j;
            bool wanted = has_query ? pair < PAIRS_A : has_prenet ? pair < PAIRS_P : has_out && pair < PAIRS_D;
            if (has_out && j >= EACH_D) {  // after the hidden state's channels, the context's
                const int of_context = warp + WARPS * (j - EACH_D);
                wanted = of_context < PAIRS_C;
                pair = PAIRS_D + of_context;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half)
                small[j][half] = wanted ? source[pair * PAIR_WORDS + half * WARP + lane] : make_uint4(0, 0, 0, 0);
        }
    }

    // A warp reduces one unit of an LSTM, or one row, for several items.
    const int unit = warp % UNITS, bias_row = lane / UNITS * UNITS + unit;
    const float own_attention_bias = has_attention ? attention_bias[block * WARP + bias_row] : 0.f;
    const float own_decoder_bias = has_decoder ? decoder_bias[block * WARP + bias_row] : 0.f;
    const int out_row = has_out ? (block - FIRST_OUT) * ROWS + warp : 0;
    const float own_out_bias = has_out && out_row < OUT_ROWS ? out_bias[out_row] : 0.f;
    const int prenet_row = has_prenet ? (block - QUERY_BLOCKS) * ROWS + warp : 0;
    const float drop = *dropout, kept_scale = 1.f / (1.f - drop), stop_above = *threshold;
    const int own_length = own_item < 0 ? 0 : (int)min(lengths[own_item], (long long)n_text);
    float attention_sums[2][4] = {}, decoder_sums[2][4] = {};
    int patience = PATIENCE;

    // The dropout factor of a row: lane b has item b's.
    const auto dropped = [&](int layer, int row) {
        return lane < n_items && row < PRENET && noise[(layer * n_items + lane) * PRENET + row] >= drop ? kept_scale : 0.f;
    };
    // The energies' inputs besides the query: processed memory plus location features. A thread computes one channel
    // of adjacent positions, whose windows of the attention overlap.
    const auto locate = [&] {
        const int channel = threadIdx.x % ATTENTION, group = threadIdx.x / ATTENTION;
        if (group < LOCATION_GROUPS)
            for (int i = group * TOGETHER; i < n_own; i += TOGETHER * LOCATION_GROUPS) {
                float sums[TOGETHER];
#pragma unroll
                for (int j = 0; j < TOGETHER; ++j) {
                    const int position = first_own + min(i + j, n_own - 1);
                    sums[j] = processed_memory[(own_item * n_text + position) * ATTENTION + channel];
                }
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    const float* from = seen + row * window + i;
                    float ahead[TOGETHER];
#pragma unroll
                    for (int j = 1; j < TOGETHER; ++j) ahead[j] = from[j - 1];
#pragma unroll 8
                    for (int tap = 0; tap < LOCATION_KERNEL; ++tap) {
                        const float weight =
                            from_half(location_weights[(row * LOCATION_KERNEL + tap) * ATTENTION + channel]);
#pragma unroll
                        for (int j = 1; j < TOGETHER; ++j) ahead[j - 1] = ahead[j];
                        ahead[TOGETHER - 1] = from[tap + TOGETHER - 1];
#pragma unroll
                        for (int j = 0; j < TOGETHER; ++j) sums[j] += weight * ahead[j];
                    }
                }
#pragma unroll
                for (int j = 0; j < TOGETHER; ++j)
                    if (i + j < n_own) location[(i + j) * ATTENTION + channel] = sums[j];
            }
    };
    __syncthreads();

    for (int step = 0; step < limit; ++step) {
        const int slot = step & 1;
        const unsigned turned = turn(step);
        // The prenet's values and the stop flag have the slot and phase bit of the previous step, which produced them.
        const int slot_before = slot ^ 1;
        const unsigned turned_before = turn(step - 1);
        bool ends = false;

        // The prenet's second layer. Before the first step both layers are zero.
        if (step && has_prenet) {
            const float kept = dropped(step * 2 + 1, prenet_row);
            Halves<PRENET, SIGN> first;
            receive<true>(first, &exchange->prenet1[slot_before][copy][0][0], turned_before, n_items, patience);
            float sums[4] = {};
            multiply_small<0>(sums, small, first.x);
            put_part(parts, sums, 0, n_items);
            __syncthreads();
            each_item(parts, warp, kept, n_items, [&](int item, float sum, float own, int place) {
                if (prenet_row < PRENET)
                    show(&exchange->prenet2[slot_before][place][item][prenet_row],
                         positive_half(sum * own, turned_before));
            });
            __syncthreads();
        }

        // The attention's LSTM: all but the prenet's part is already in the sums.
        if (step) {
            if (threadIdx.x == 0) {  // usually written long before
                unsigned word;
                while (((word = look_word(exchange->stop[slot_before][copy])) & 1) != turned_before && patience)
                    --patience;
                ends = word >> 1 & 1;
            }
            __syncwarp();
            if (has_attention) {
                Halves<PRENET, SIGN> second;
                receive<true>(second, &exchange->prenet2[slot_before][copy][0][0], turned_before, n_items, patience);
                multiply_gates<PAIRS_P>(attention_sums, attention_tiles, ATTENTION_PAIRS, second.x);
            }
        }
        if (has_attention)
#pragma unroll
            for (int tile = 0; tile < 2; ++tile) put_part(parts, attention_sums[tile], tile, n_items);
        if (__syncthreads_or(ends || patience == 0)) break;
        if (has_attention)
#pragma unroll 1
            for (int item = warp / UNITS; item < n_items; item += WARPS / UNITS) {
                const float gate = add_gate(parts, item, unit, n_items) + own_attention_bias;
                const float hidden = lstm(gate, attention_cells[item * UNITS + unit]);
                if (lane < COPIES)
                    show(&exchange->attention[slot][lane][item][block * UNITS + unit], bounded_half(hidden, turned));
            }
        __syncthreads();

        // The query.
        Halves<ATTENTION_RNN, BELOW_TWO> hidden;
        if (has_query) {
            receive<true>(hidden, &exchange->attention[slot][copy][0][0], turned, n_items, patience);
            float sums[4] = {};
            multiply_small<0>(sums, small, hidden.x);
            put_part(parts, sums, 0, n_items);
            __syncthreads();
            const int row = block * ROWS + warp;
            each_item(parts, warp, 1.f, n_items, [&](int item, float sum, float, int place) {
                if (row < ATTENTION) show(&exchange->query[slot][place][item][row], marked(sum, turned));
            });
            __syncthreads();
        }

        // While waiting for the query: the decoder's gates without the context.
        if (!has_query && (has_attention || has_decoder))
            receive<false>(hidden, &exchange->attention[slot][copy][0][0], turned, n_items, patience);
        if (has_decoder) multiply_gates<PAIRS_A>(decoder_sums, decoder_tiles, PAIRS_A, hidden.x);

        // The energies, by the last warps, because the first ones compute the softmax.
        const int from_behind = WARPS - 1 - warp;
        if (from_behind < n_own) {
            float4 own_energy_weights[QUERY_PIECES], query[QUERY_PIECES];
#pragma unroll
            for (int j = 0; j < QUERY_PIECES; ++j) {
                const int at = (j * WARP + lane) * 4;
                own_energy_weights[j] = make_float4(0.f, 0.f, 0.f, 0.f);
                if (at < ATTENTION) own_energy_weights[j] = *(const float4*)(energy_weights + at);
            }
            while (true) {
                unsigned missing = 0;
#pragma unroll
                for (int j = 0; j < QUERY_PIECES; ++j) {
                    const int at = (j * WARP + lane) * 4;
                    uint4 words = make_uint4(turned, turned, turned, turned);
                    if (at < ATTENTION) words = look(&exchange->query[slot][copy][own_item][at]);
                    missing |= (words.x ^ turned) | (words.y ^ turned) | (words.z ^ turned) | (words.w ^ turned);
                    query[j] = make_float4(__uint_as_float(words.x), __uint_as_float(words.y),
                                           __uint_as_float(words.z), __uint_as_float(words.w));
                }
                if (!__any_sync(EVERYONE, missing & 1) || patience == 0) break;
                --patience;
            }
            if (patience) patience = PATIENCE;
#pragma unroll 1
            for (int i = from_behind; i < n_own; i += WARPS) {
                float energy = 0.f;
#pragma unroll
                for (int j = 0; j < QUERY_PIECES; ++j) {
                    const int at = (j * WARP + lane) * 4;
                    if (at < ATTENTION) {
                        const float4 known = *(const float4*)(location + i * ATTENTION + at);
                        energy += own_energy_weights[j].x * tanh_of(query[j].x + known.x);
                        energy += own_energy_weights[j].y * tanh_of(query[j].y + known.y);
                        energy += own_energy_weights[j].z * tanh_of(query[j].z + known.z);
                        energy += own_energy_weights[j].w * tanh_of(query[j].w + known.w);
                    }
                }
                energy = warp_sum(energy);
                const int position = first_own + i;
                if (lane < COPIES)
                    show(&exchange->energy[slot][lane][own_item][position],
                         marked(position < own_length ? energy : MASKED_SCORE, turned));
            }
        }

        // While waiting for the energies: the recurrent part of the next step's attention LSTM.
        const bool goes_on = step + 1 < limit;
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
#pragma unroll
            for (int i = 0; i < 4; ++i) attention_sums[tile][i] = 0.f;
        if (has_attention && goes_on)
            multiply_gates<PAIRS_A>(attention_sums, attention_tiles + (PAIRS_P + PAIRS_C) * PAIR_WORDS, ATTENTION_PAIRS,
                                    hidden.x);
        // Prefetches a warp's first pair of the memory's products, which may be in the L2 cache.
        uint4 ahead[2][2];
        if (has_decoder && first_item < n_items) look_ahead(first_item, first_pair, ahead);

        // Softmax over the text; warp b has item b.
        if (warp < n_items && (has_memory || warp == own_item)) {
            const unsigned* energies = &exchange->energy[slot][copy][warp][0];
            float weights[TEXT_PIECES][4];
            while (true) {
                unsigned missing = 0;
#pragma unroll
                for (int i = 0; i < TEXT_PIECES; ++i) {
                    const int at = (i * WARP + lane) * 4;
                    uint4 words = make_uint4(0, 0, 0, 0);
                    if (at < n_text) {
                        words = look(energies + at);
                        missing |= words.x ^ turned;
                        if (at + 1 < n_text) missing |= words.y ^ turned;
                        if (at + 2 < n_text) missing |= words.z ^ turned;
                        if (at + 3 < n_text) missing |= words.w ^ turned;
                    }
                    weights[i][0] = at < n_text ? __uint_as_float(words.x) : 2 * MASKED_SCORE;
                    weights[i][1] = at + 1 < n_text ? __uint_as_float(words.y) : 2 * MASKED_SCORE;
                    weights[i][2] = at + 2 < n_text ? __uint_as_float(words.z) : 2 * MASKED_SCORE;
                    weights[i][3] = at + 3 < n_text ? __uint_as_float(words.w) : 2 * MASKED_SCORE;
                }
                if (!__any_sync(EVERYONE, missing & 1) || patience == 0) break;
                --patience;
            }
            if (patience) patience = PATIENCE;
            float highest = weights[0][0], sum = 0.f;
#pragma unroll
            for (int i = 0; i < TEXT_PIECES; ++i)
                if (i * WARP * 4 < n_text)
#pragma unroll
                    for (int j = 0; j < 4; ++j) highest = fmaxf(highest, weights[i][j]);
            highest = warp_max(highest);
#pragma unroll
            for (int i = 0; i < TEXT_PIECES; ++i)
                if (i * WARP * 4 < n_text)
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum += weights[i][j] = __expf(weights[i][j] - highest);
            const float share = __fdividef(1.f, warp_sum(sum));
#pragma unroll
            for (int i = 0; i < TEXT_PIECES; ++i) {
                const int at = (i * WARP + lane) * 4;
                if (at < text_pairs * 32) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) weights[i][j] *= share;
                    *((uint2*)(weighted + warp * text_pairs * 4) + at / 4) =
                        make_uint2(to_half(weights[i][0]) | to_half(weights[i][1]) << 16,
                                   to_half(weights[i][2]) | to_half(weights[i][3]) << 16);
                    if (warp == own_item)
                        *(float4*)(exact + at) = make_float4(weights[i][0], weights[i][1], weights[i][2], weights[i][3]);
                }
            }
        }
        __syncthreads();

        // The decoder LSTM and the context: weighted sums of the memory's products.
        if (has_memory) {
            float context_sums[4] = {};
#pragma unroll 1
            for (int item = first_item, pair = first_pair; item < n_items;) {
                const uint4* of_context = products + pair_start(item, pair) + tile_start[2] + lane;
                uint4 third[2];
                if (has_context) {
                    third[0] = of_context[0];
                    third[1] = of_context[WARP];
                }
                const uint4 x = lane / 4 == item ? weighted[(item * text_pairs + pair) * 4 + lane % 4]
                                                 : make_uint4(0, 0, 0, 0);
                if (has_decoder)
#pragma unroll
                    for (int tile = 0; tile < 2; ++tile) {
                        multiply(decoder_sums[tile], ahead[tile][0], x.x, x.y);
                        multiply(decoder_sums[tile], ahead[tile][1], x.z, x.w);
                    }
                go_on(item, pair);
                if (has_decoder && item < n_items) look_ahead(item, pair, ahead);
                if (has_context) {
                    multiply(context_sums, third[0], x.x, x.y);
                    multiply(context_sums, third[1], x.z, x.w);
                }
            }
            if (has_decoder)
#pragma unroll
                for (int tile = 0; tile < 2; ++tile) {
                    put_part(parts, decoder_sums[tile], tile, n_items);
#pragma unroll
                    for (int i = 0; i < 4; ++i) decoder_sums[tile][i] = 0.f;
                }
            if (has_context) put_part(parts, context_sums, 2, n_items);
            __syncthreads();
            if (has_decoder)
#pragma unroll 1
                for (int item = warp / UNITS; item < n_items; item += WARPS / UNITS) {
                    const float gate = add_gate(parts, item, unit, n_items) + own_decoder_bias;
                    const float shown = lstm(gate, decoder_cells[item * UNITS + unit]);
                    if (lane < COPIES)
                        show(&exchange->decoder[slot][lane][item][block * UNITS + unit], bounded_half(shown, turned));
                }
            if (has_context) {
                const int row = (block - FIRST_CONTEXT) * ROWS + warp;
                each_item(parts, 2 * ROWS + warp, 1.f, n_items, [&](int item, float sum, float, int place) {
                    if (row < ENCODER) show(&exchange->context[slot][place][item][row], marked(sum, turned));
                });
            }
            __syncthreads();
        }

        // The frame, the gate, and the prenet's first layer of the next step.
        Halves<DECODER_RNN, BELOW_TWO> shown;
        Floats<ENCODER> context;
        if (has_out) {
            const float kept = goes_on ? dropped((step + 1) * 2, out_row) : 0.f;
            receive<true>(shown, &exchange->decoder[slot][copy][0][0], context, &exchange->context[slot][copy][0][0],
                          turned, n_items, patience);
            float sums[4] = {}, more[4] = {};
            multiply_small<0>(sums, small, shown.x);
            multiply_small<EACH_D>(more, small, context.x);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += more[i];
            put_part(parts, sums, 0, n_items);
            __syncthreads();
            const int row = out_row - PRENET;
            each_item(parts, warp, kept, n_items, [&](int item, float sum, float own, int place) {
                const float value = sum + own_out_bias;
                if (row < 0) {
                    if (goes_on)
                        show(&exchange->prenet1[slot][place][item][out_row], positive_half(value * own, turned));
                } else if (place == 0) {
                    if (row < FRAME) {
                        mel[(item * limit + step) * FRAME + row] = value;
                    } else if (row == FRAME) {
                        gates[item * limit + step] = value;
                        const bool going = going_on[item] && 1.f / (1.f + expf(-value)) <= stop_above;
                        going_on[item] = going;
                        steps_made[item] = (made[item] += going) * frames_per_step;
                        stopped[item] = !going;
                    }
                }
            });
            __syncthreads();
            if (block == FIRST_CONTEXT - 1 && threadIdx.x < COPIES) {  // the gate is the last row
                bool any = !early;
                for (int item = 0; item < n_items; ++item) any = any || going_on[item];
                if (goes_on) show(&exchange->stop[slot][threadIdx.x][0], (any ? 0u : 2u) | turned);
                if (threadIdx.x == 0) status[0] = step + 1;
            }
        }

        // Location features of this step's attention, for the next step's energies.
        if (n_own) {
            for (int i = threadIdx.x; i < window; i += THREADS) {
                const int position = first_own - REACH + i;
                if (position >= 0 && position < n_text) {
                    const float weight = exact[position];
                    seen[i] = weight;
                    seen[window + i] += weight;
                    if (position >= first_own && position < first_own + n_own)
                        alignment[(own_item * limit + step) * n_text + position] = weight;
                }
            }
            __syncthreads();
            if (goes_on) locate();
        }

        // Parts of the next step's LSTMs that need only this step's results.
        if (goes_on) {
            uint4 others[most(1, EACH_D - RECURRENT_KEPT)][2][2];
#pragma unroll
            for (int j = RECURRENT_KEPT; j < EACH_D; ++j) load_recurrent(j, others[j - RECURRENT_KEPT]);
            if (!has_out && (has_attention || has_decoder))
                receive<false>(shown, &exchange->decoder[slot][copy][0][0], context,
                               &exchange->context[slot][copy][0][0], turned, n_items, patience);
            if (has_attention)
                multiply_gates<PAIRS_C>(attention_sums, attention_tiles + PAIRS_P * PAIR_WORDS, ATTENTION_PAIRS, context.x);
            if (has_decoder)
#pragma unroll
                for (int j = 0; j < EACH_D; ++j)
#pragma unroll
                    for (int tile = 0; tile < 2; ++tile) {
                        const uint4(&weights)[2] =
                            j < RECURRENT_KEPT ? recurrent[min(j, RECURRENT_KEPT - 1)][tile]
                                               : others[max(j - RECURRENT_KEPT, 0)][tile];
                        multiply(decoder_sums[tile], weights[0], shown.x[j].x, shown.x[j].y);
                        multiply(decoder_sums[tile], weights[1], shown.x[j].z, shown.x[j].w);
                    }
        }
    }
    if (patience == 0) status[1] = 1;
}
