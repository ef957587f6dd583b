// Adds to each row of x the encoding of its position: row 1, 2, ... of a table up to the item's length, and
// row 0, which holds zeros, behind it. A warp computes one row, with 16-byte accesses where rows allow it.
//
// float16 addition is inline PTX, so that neither nvcc nor NVRTC needs a header.

constexpr int WARP = 32;
constexpr int THREADS = 256;  // as kernel.py launches it
constexpr int WARPS = THREADS / WARP;

struct Half {
    unsigned short bits;
};

struct alignas(16) Half8 {
    unsigned int pairs[4];
};

__device__ float add(float a, float b) { return a + b; }

__device__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ Half add(Half a, Half b) {
    Half sum;
    asm("add.rn.f16 %0, %1, %2;" : "=h"(sum.bits) : "h"(a.bits), "h"(b.bits));
    return sum;
}

__device__ Half8 add(Half8 a, Half8 b) {
    Half8 sum;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum.pairs[i]) : "r"(a.pairs[i]), "r"(b.pairs[i]));
    return sum;
}

// x (rows, row), lengths (rows / n_frames), table (above n_frames, row) -> out (rows, row).
template <class Word>
__device__ void add_pos_enc(const Word* __restrict__ x, const long long* __restrict__ lengths,
                            const Word* __restrict__ table, Word* __restrict__ out, long long n_rows,
                            long long n_frames, long long row_words) {
    const long long row = static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    if (row >= n_rows) return;
    const long long place = row % n_frames + 1;
    const long long position = place <= lengths[row / n_frames] ? place : 0;
    const Word* encoding = table + position * row_words;
#pragma unroll 4
    for (long long i = threadIdx.x % WARP; i < row_words; i += WARP)
        out[row * row_words + i] = add(x[row * row_words + i], encoding[i]);
}

#define ENTRY(name, Word)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                  \
        name(const Word* x, const long long* lengths, const Word* table, Word* out, long long n_rows,      \
             long long n_frames, long long row_words) {                                                    \
        add_pos_enc(x, lengths, table, out, n_rows, n_frames, row_words);                                  \
    }

ENTRY(add_pos_enc_float_16, float4)
ENTRY(add_pos_enc_float_4, float)
ENTRY(add_pos_enc_half_16, Half8)
ENTRY(add_pos_enc_half_2, Half)
