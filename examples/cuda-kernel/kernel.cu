// Computes MinHash signatures of texts, the same numbers as plugins/minhash in Go.
//
// One warp processes one tile: a short text, or a piece of a long one. It works in
// rounds of 32 shingles:
//
//   scan     the 32 lanes read 512 bytes at once, find where words or characters
//            start, and queue the positions in shared memory;
//   hash     each lane takes one shingle from the queue and computes its SHA-1;
//   permute  each lane owns up to 8 permutations, iterates over the 32 hashes, and
//            keeps the minimum of each permutation in a register.
//
// The kernel reads only the text and writes only the signature: hashes never leave
// the multiprocessor. Warps are independent, so there is no __syncthreads; the lanes
// of one warp synchronize with __syncwarp.
//
// gpu.go and slot.go mirror the constants and structs.

typedef unsigned int uint32;
typedef unsigned long long uint64;

#define LANES 32u
#define WARPS 4u        // per block
#define GROUPS 2        // groups of permutations per lane
#define PER_GROUP 4     // permutations per group
#define PASS (LANES * GROUPS * PER_GROUP) // permutations per warp
#define STEP (16u * LANES) // bytes that a warp scans at once
#define ALL 0xffffffffu

// Tile is the work of one warp: the shingles that start in one part of a text.
struct Tile {
    uint32 text;       // number of the text, and of its signature
    uint32 start, end; // the whole text, as offsets in the batch; start is a multiple of 16
    uint32 from, to;   // the part: to - from is a multiple of STEP unless to is end
};

// Parameters holds the values that do not change from batch to batch.
struct Parameters {
    const ulonglong2 *permutations; // a and b (legacy: b + 1) of each, padded to whole passes
    uint32 count;                   // permutations, without the padding
    uint32 size;                    // words or characters per shingle
    uint32 words;                   // 1: shingles of words; 0: of characters
    uint32 legacy;                  // 1: legacy permutations; 0: affine32
    uint32 queue;                   // capacity of a warp's queue, a power of two
};

// ---- SHA-1 ----

__device__ __forceinline__ uint32 rotate(uint32 x, int n) { return __funnelshift_l(x, x, n); }

// block16 reads one block of a message: length bytes of text at start, then a bit,
// then zeros, and the length at the very end. It reads the text as aligned words. The
// word with the byte after the message gets the bit, and later words are zero. A byte
// permutation then combines each two neighbors into a word of the message, high byte
// first as SHA-1 requires.
__device__ __forceinline__ void block16(uint32 (&w)[16], const uint32 *text, uint32 start, uint32 length, uint32 block) {
    const uint32 *from = text + (start >> 2) + 16 * block;
    const uint32 order = 0x0123 + 0x1111 * (start & 3);
    const int left = (int)(length - 64 * block);
    const int bytes = (int)(start & 3) + left; // counted from the first word
    const int last = bytes >> 2;               // the word with the bit; negative or above 16 if it is in another block
    const uint32 bit = 8 * (bytes & 3);
    const uint32 ending = bytes < 0 ? 0 : ((bit ? from[last] : 0) & ~(ALL << bit)) | 0x80u << bit;
    uint32 low = 0 < last ? from[0] : 0;
    if (0 == last) low = ending;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint32 high = i + 1 < last ? from[i + 1] : 0;
        if (i + 1 == last) high = ending;
        w[i] = __byte_perm(low, high, order);
        low = high;
    }
    if (left < 56) { // the last block
        w[14] = length >> 29;
        w[15] = length << 3;
    }
}

__device__ __forceinline__ void compress(uint32 (&state)[5], uint32 (&w)[16]) {
    uint32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
#pragma unroll
    for (int i = 0; i < 80; i++) {
        if (i >= 16) {
            w[i & 15] = rotate(w[(i - 3) & 15] ^ w[(i - 8) & 15] ^ w[(i - 14) & 15] ^ w[i & 15], 1);
        }
        uint32 f, k;
        if (i < 20) {
            f = (b & c) | (~b & d);
            k = 0x5a827999;
        } else if (i < 40) {
            f = b ^ c ^ d;
            k = 0x6ed9eba1;
        } else if (i < 60) {
            f = (b & c) | (b & d) | (c & d);
            k = 0x8f1bbcdc;
        } else {
            f = b ^ c ^ d;
            k = 0xca62c1d6;
        }
        uint32 next = rotate(a, 5) + f + e + k + w[i & 15];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

// sha1 returns the first 4 bytes of a digest as datasketch reads them: low byte
// first.
__device__ __forceinline__ uint32 sha1(const uint32 *text, uint32 start, uint32 length) {
    uint32 state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const uint32 blocks = (length + 8) / 64 + 1;
    for (uint32 block = 0; block < blocks; block++) {
        uint32 w[16];
        block16(w, text, start, length, block);
        compress(state, w);
    }
    return __byte_perm(state[0], 0, 0x0123);
}

// ---- permutations ----

// mix is plugins/minhash.Mix, applied once to each hash before affine permutations.
__device__ __forceinline__ uint32 mix(uint32 h) {
    h = (h ^ h >> 16) * 0x85ebca6b;
    h = (h ^ h >> 13) * 0xc2b2ae35;
    return h ^ h >> 16;
}

__device__ __forceinline__ uint32 affine(ulonglong2 p, uint32 h) {
    return (uint32)p.x * h + (uint32)p.y;
}

// almost returns the legacy permutation of h plus one if the result is at least 8: see
// plugins/minhash/permute.go. It takes one wide multiplication, one narrow one, and an
// addition with a shift; a division would take forty instructions.
__device__ __forceinline__ uint32 almost(ulonglong2 p, uint32 h) {
    uint64 y;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(y) : "r"((uint32)p.x), "r"(h));
    y += p.y;
    uint32 low = (uint32)y, high;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(high) : "r"((uint32)(p.x >> 32)), "r"(h), "r"((uint32)(y >> 32)));
    return low + (high >> 29);
}

__device__ __noinline__ uint32 exactly(ulonglong2 p, const uint32 *hashes) {
    uint32 least = ALL;
#pragma unroll 1
    for (uint32 i = 0; i < LANES; i++) {
        least = min(least, (uint32)((p.x * hashes[i] + (p.y - 1)) % ((1ull << 61) - 1)));
    }
    return least;
}

template <uint32 (*permute)(ulonglong2, uint32)>
__device__ __forceinline__ void lower(uint32 (&least)[PER_GROUP], const ulonglong2 (&p)[PER_GROUP], const uint32 *hashes, uint32 count) {
#pragma unroll 4
    for (uint32 i = 0; i < count; i += 4) {
        const uint4 h = *(const uint4 *)(hashes + i); // the same address in all lanes: one read
#pragma unroll
        for (int k = 0; k < PER_GROUP; k++) {
            least[k] = min(min(least[k], permute(p[k], h.x)), permute(p[k], h.y));
            least[k] = min(min(least[k], permute(p[k], h.z)), permute(p[k], h.w));
        }
    }
}

__device__ __forceinline__ void lowerLegacy(uint32 (&least)[PER_GROUP], const ulonglong2 (&p)[PER_GROUP], const uint32 *hashes, uint32 count) {
    uint32 lowest[PER_GROUP];
#pragma unroll
    for (int k = 0; k < PER_GROUP; k++) lowest[k] = ALL;
    lower<almost>(lowest, p, hashes, count);
#pragma unroll
    for (int k = 0; k < PER_GROUP; k++) {
        if (lowest[k] < 8) { // once in a hundred thousand rounds
            least[k] = min(least[k], exactly(p[k], hashes));
        } else {
            least[k] = min(least[k], lowest[k] - 1);
        }
    }
}

// ---- where words and characters start ----

// begins returns a bit for each of the 4 bytes of x, set if the byte is a space (for
// words) or starts a character.
__device__ __forceinline__ uint32 begins(uint32 x, uint32 words) {
    uint32 high; // the high bit of each byte
    if (words) {
        x ^= 0x20202020;
        high = ~(((x & 0x7f7f7f7f) + 0x7f7f7f7f) | x | 0x7f7f7f7f);
    } else {
        high = (~x | x << 1) & 0x80808080;
    }
    return (high >> 7) * 0x10204080 >> 28; // 4 adjacent bits
}

// Queue is a ring buffer of the positions at which words or characters start that a
// warp has found and not yet used: those from head to tail.
struct Queue {
    uint32 *places;
    uint32 mask, head, tail;
};

// scan queues the words or characters that start in the STEP bytes at position. A word
// starts after a space.
__device__ __forceinline__ void scan(Queue &q, const uint32 *text, uint32 position, uint32 end, uint32 words, uint32 lane) {
    const uint32 mine = position + 16 * lane;
    uint32 found = 0;
    if (mine < end) {
        const uint4 x = *(const uint4 *)(text + (mine >> 2));
        found = begins(x.x, words) | begins(x.y, words) << 4 | begins(x.z, words) << 8 | begins(x.w, words) << 12;
        if (mine + 16 > end) found &= 0xffffu >> (mine + 16 - end);
    }
    // Add up, bit by bit, how many the lanes before this one found.
    const uint32 count = __popc(found), before = (1u << lane) - 1;
    uint32 at = q.tail;
#pragma unroll
    for (int bit = 0; bit < 5; bit++) {
        const uint32 lanes = __ballot_sync(ALL, count >> bit & 1);
        at += __popc(lanes & before) << bit;
        q.tail += __popc(lanes) << bit;
    }
    for (; found; found &= found - 1) {
        q.places[at++ & q.mask] = mine + words + __ffs(found) - 1;
    }
    __syncwarp();
}

__device__ __forceinline__ void push(Queue &q, uint32 place, uint32 lane) {
    if (lane == 0) q.places[q.tail & q.mask] = place;
    q.tail++;
    __syncwarp();
}

// ---- the kernel ----

extern "C" __global__ void __launch_bounds__(LANES * WARPS)
minhash(const Parameters parameters, const uint32 *text, const Tile *tiles, uint32 tileCount, uint32 *signatures) {
    extern __shared__ uint4 shared[];
    const uint32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const uint32 number = blockIdx.x * WARPS + warp;
    if (number >= tileCount) return;
    const Tile tile = tiles[number];
    const uint32 size = parameters.size, words = parameters.words;
    const uint32 pass = blockIdx.y * PASS; // the first permutation of this pass
    uint32 *hashes = (uint32 *)shared + warp * (LANES + parameters.queue);
    Queue q = {hashes + LANES, parameters.queue - 1, 0, 0};

    uint32 least[GROUPS][PER_GROUP];
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int k = 0; k < PER_GROUP; k++) least[g][k] = ALL;

    uint32 position = tile.from, own = 0; // own: how many queued positions start in the part
    bool ended = false;
    if (words && tile.from == tile.start) {
        push(q, tile.start, lane);
        own = 1;
    }
    for (;;) {
        // Read enough for a round, and for the end of its last shingle.
        while (!ended && q.tail - q.head < LANES + size && (position < tile.to || q.tail < own + size)) {
            if (position < tile.end) {
                scan(q, text, position, tile.end, words, lane);
                position += STEP;
            } else {
                push(q, tile.end + words, lane);
                ended = true;
            }
            if (position <= tile.to || (!ended && tile.to == tile.end)) own = q.tail;
        }
        // Shingle i extends from position i to position i + size.
        const uint32 complete = q.tail > size ? min(own, q.tail - size) : 0;
        uint32 start, length, count = complete - q.head;
        if (complete > q.head) {
            count = min(count, LANES);
            const uint32 i = q.head + min(lane, count - 1); // repeats the last one, which changes no minimum
            start = q.places[i & q.mask];
            length = q.places[(i + size) & q.mask] - words - start;
        } else if (ended && q.head == 0 && tile.from == tile.start && q.tail <= size) {
            start = tile.start; // fewer than size words: one shingle
            length = tile.end - start;
            count = 0;
        } else {
            break;
        }
        uint32 hash = sha1(text, start, length);
        if (!parameters.legacy) hash = mix(hash);
        __syncwarp(); // all lanes have used the previous round's hashes
        hashes[lane] = hash;
        __syncwarp();
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            const uint32 first = pass + g * LANES * PER_GROUP;
            if (first >= parameters.count) break;
            ulonglong2 p[PER_GROUP];
#pragma unroll
            for (int k = 0; k < PER_GROUP; k++) p[k] = parameters.permutations[first + k * LANES + lane];
            if (parameters.legacy) {
                lowerLegacy(least[g], p, hashes, max(count, 1u));
            } else {
                lower<affine>(least[g], p, hashes, max(count, 1u));
            }
        }
        if (count == 0) break;
        q.head += count;
    }

    // If a text has several tiles, several warps update its signature.
    const bool whole = tile.from == tile.start && tile.to == tile.end;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
#pragma unroll
        for (int k = 0; k < PER_GROUP; k++) {
            const uint32 n = pass + g * LANES * PER_GROUP + k * LANES + lane;
            if (n >= parameters.count) continue;
            uint32 *to = signatures + (uint64)tile.text * parameters.count + n;
            if (whole) {
                *to = least[g][k];
            } else {
                atomicMin(to, least[g][k]);
            }
        }
    }
}
