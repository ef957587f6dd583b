// CUDA for a CPU, as much of it as tacotron2_decoder.cu uses: each CUDA thread is a fiber of one thread.
//
// What stands before the source. after.h has the scheduler, and the launch.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __CUDA_ARCH__ 900

using std::max;
using std::min;

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct HostWarp {
    long meetings = 0;
    int arrived = 0;
    unsigned words[2][32][6];  // of this meeting and the last, which some may still read
};

struct HostBlock {
    long meetings = 0;
    int arrived = 0, running = 0;
    bool any[2] = {};
    std::vector<unsigned char> shared;
    std::vector<HostWarp> warps;
};

struct Fiber {
    ucontext_t start;
    jmp_buf rest;
    HostBlock* block;
    int thread, block_index;
    bool begun = false, done = false;
    const long* awaited = nullptr;  // what must change before it can go on
    long unchanged;
};

struct Index {
    int x;
};
inline Fiber* fiber;
inline Index gridDim;
#define threadIdx (Index{fiber->thread})
#define blockIdx (Index{fiber->block_index})

void others_go_on();

inline void await(const long* value, long unchanged) {
    fiber->awaited = value;
    fiber->unchanged = unchanged;
    while (*value == unchanged) others_go_on();
    fiber->awaited = nullptr;
}

inline int lane() { return fiber->thread % 32; }

// All lanes of a warp show words; returns what all showed.
inline const unsigned (&meet(const unsigned* words, int count))[32][6] {
    HostWarp& warp = fiber->block->warps[fiber->thread / 32];
    auto& shown = warp.words[warp.meetings % 2];
    memcpy(shown[lane()], words, count * sizeof(unsigned));
    if (++warp.arrived == 32) {
        warp.arrived = 0;
        ++warp.meetings;
    } else {
        await(&warp.meetings, warp.meetings);
    }
    return shown;
}

inline int __syncthreads_or(int value) {
    HostBlock& block = *fiber->block;
    bool& any = block.any[block.meetings % 2];
    any |= value != 0;
    if (++block.arrived == block.running) {
        block.arrived = 0;
        block.any[(block.meetings + 1) % 2] = false;
        ++block.meetings;
    } else {
        await(&block.meetings, block.meetings);
    }
    return any;
}
inline void __syncthreads() { __syncthreads_or(0); }
inline void __nanosleep(unsigned) {}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline void __syncwarp() {
    const unsigned nothing = 0;
    meet(&nothing, 1);
}
inline float __shfl_sync(unsigned, float value, int from) {
    const unsigned bits = __float_as_uint(value);
    return __uint_as_float(meet(&bits, 1)[from][0]);
}
inline float __shfl_xor_sync(unsigned all, float value, int distance) {
    return __shfl_sync(all, value, lane() ^ distance);
}
inline bool __any_sync(unsigned, bool value) {
    const unsigned bits = value;
    const auto& shown = meet(&bits, 1);
    return std::any_of(shown, shown + 32, [](const unsigned(&words)[6]) { return words[0] != 0; });
}

inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }

// In place of the source's own, which are instructions of the GPU.
inline uint4 look(const void* place) {
    others_go_on();
    return *(const uint4*)place;
}
inline unsigned look_word(const unsigned* place) {
    others_go_on();
    return *place;
}
inline void show(unsigned short* place, unsigned value) { *place = (unsigned short)value; }
inline void show(unsigned* place, unsigned value) { *place = value; }
inline unsigned to_half(float value) {
    const _Float16 half = (_Float16)value;
    unsigned short bits;
    memcpy(&bits, &half, 2);
    return bits;
}
inline float from_half(unsigned short bits) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}
inline float warp_max(float value) {
    const unsigned bits = __float_as_uint(value);
    const auto& shown = meet(&bits, 1);
    for (const auto& words : shown) value = fmaxf(value, __uint_as_float(words[0]));
    return value;
}
// mma.m16n8k16 as the PTX manual deals its operands to the lanes.
inline void multiply(float (&sums)[4], uint4 weights, unsigned low, unsigned high) {
    const unsigned mine[6] = {weights.x, weights.y, weights.z, weights.w, low, high};
    const auto& shown = meet(mine, 6);
    const auto half_of = [](unsigned word, int k) { return from_half((unsigned short)(word >> k % 2 * 16)); };
    for (int i = 0; i < 4; ++i) {
        const int row = lane() / 4, lower = i / 2, column = lane() % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const unsigned a = shown[row * 4 + k % 8 / 2][k / 8 * 2 + lower];
            const unsigned b = shown[column * 4 + k % 8 / 2][4 + k / 8];
            sums[i] += half_of(a, k) * half_of(b, k);
        }
    }
}
