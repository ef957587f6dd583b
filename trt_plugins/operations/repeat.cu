// Length regulator: repeats every step of an item by its count, and returns the requested frames.
//
// A warp computes one frame. Its block computes prefix sums of the item's counts in shared memory, a tile at a
// time, and each warp finds its frame's step there by binary search: no workspace, one launch, any number of
// steps. Rows are copied in the widest words that fit, whatever their type.

constexpr int WARP = 32;
constexpr int THREADS = 256;  // as kernel.py launches it
constexpr int WARPS = THREADS / WARP;
constexpr long long LARGEST_COUNT = 0x7fffffff;  // so that no sum overflows

// Inclusive prefix sum: sums[i] = the sum of the values of threads 0 to i.
__device__ void prefix_sums(long long value, long long (&sums)[THREADS]) {
    __shared__ long long warp_sums[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int distance = 1; distance < WARP; distance *= 2) {
        const long long before = __shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance) value += before;
    }
    if (lane == WARP - 1) warp_sums[warp] = value;
    __syncthreads();
    for (int earlier = 0; earlier < warp; ++earlier) value += warp_sums[earlier];
    sums[threadIdx.x] = value;
    __syncthreads();
}

// The first index whose sum is above `frame`; the last sum is.
__device__ int first_above(const long long (&sums)[THREADS], long long frame) {
    int low = 0, high = THREADS - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (sums[middle] > frame) high = middle;
        else low = middle + 1;
    }
    return low;
}

// x (B, N, row), counts (B, N), frames (T) -> out (B, T, row), where a row is row_words words.
template <class Word>
__device__ void repeat(const Word* __restrict__ x, const long long* __restrict__ counts,
                       const long long* __restrict__ frames, Word* __restrict__ out, long long n_steps,
                       long long n_frames, long long row_words) {
    __shared__ long long ends[THREADS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const long long item_blocks = (n_frames + WARPS - 1) / WARPS;
    const long long item = blockIdx.x / item_blocks;
    const long long position = blockIdx.x % item_blocks * WARPS + warp;
    const bool wanted = position < n_frames;  // a warp without a frame still takes part in the sums
    const long long frame = wanted ? frames[position] : 0;

    long long step = -1, summed = 0;
    for (long long first = 0; first < n_steps; first += THREADS) {
        const long long mine = first + threadIdx.x;
        const long long count = mine < n_steps ? counts[item * n_steps + mine] : 0;
        prefix_sums(min(max(count, 0ll), LARGEST_COUNT), ends);
        const long long total = ends[THREADS - 1];
        if (step < 0 && frame - summed < total) step = first + first_above(ends, frame - summed);
        summed += total;
    }
    if (!wanted) return;

    Word* to = out + (item * n_frames + position) * row_words;
    if (step < 0) {  // behind the item's end
        for (long long i = lane; i < row_words; i += WARP) to[i] = Word{};
        return;
    }
    const Word* from = x + (item * n_steps + step) * row_words;
#pragma unroll 4
    for (long long i = lane; i < row_words; i += WARP) to[i] = from[i];
}

#define ENTRY(name, Word)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                  \
        name(const Word* x, const long long* counts, const long long* frames, Word* out,                   \
             long long n_steps, long long n_frames, long long row_words) {                                 \
        repeat(x, counts, frames, out, n_steps, n_frames, row_words);                                      \
    }

ENTRY(repeat_16, uint4)
ENTRY(repeat_8, uint2)
ENTRY(repeat_4, unsigned int)
ENTRY(repeat_2, unsigned short)
