// Rotation of feature pairs in one pass (Su et al. 2021, arXiv:2104.09864): every number is read once and written once.
//
// Compiled by rotary_cpu.py when it is first asked for, and called with plain pointers, so that no header of torch is
// needed. Rounding is that of the eager path, operation by operation, where PyTorch's kernels have fused multiply-adds. A
// row's features are adjacent; all strides count elements. `x` and `out` are the same memory or do not overlap.

#include <cmath>
#include <cstdint>
#include <cstring>

struct Sizes {
    int64_t batch, heads, length, pairs, width;
    int64_t x[3], out[3], table[3];  // strides over batch, heads, length; 0 where a table is shared
};

using bfloat16 = uint16_t;

static inline float widen(float x) { return x; }
static inline double widen(double x) { return x; }
static inline float widen(bfloat16 x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline void store(float *out, float x) { *out = x; }
static inline void store(double *out, double x) { *out = x; }
static inline void store(bfloat16 *out, float x) {  // to the nearest, ties to even; a NaN stays one
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    *out = x != x ? 0x7fc0 : static_cast<bfloat16>(bits >> 16);
}

template <class T, class Wide, bool half>
static void rotate_rows(const T *x, T *out, const Wide *cos, const Wide *sin, const Sizes &s, int64_t rows, Wide sign) {
    const int64_t pairs = s.pairs, next = half ? pairs : 1, step = half ? 1 : 2;
    for (int64_t row = 0; row < rows; row++) {
#pragma GCC ivdep
        for (int64_t i = 0; i < pairs; i++) {
            const Wide a = widen(x[step * i]), b = widen(x[step * i + next]), c = cos[i], t = sign * sin[i];
            if (half) {  // as mul and addcmul round
                store(out + step * i, std::fma(-b, t, a * c));
                store(out + step * i + next, std::fma(a, t, b * c));
            } else {  // as the multiplication of complex numbers rounds
                store(out + step * i, a * c - b * t);
                store(out + step * i + next, a * t + b * c);
            }
        }
        if (out != x && s.width > 2 * pairs)
            std::memcpy(out + 2 * pairs, x + 2 * pairs, (s.width - 2 * pairs) * sizeof(T));
        x += s.x[2], out += s.out[2], cos += s.table[2], sin += s.table[2];
    }
}

template <class T, class Wide>
static void rotate(const T *x, T *out, const Wide *cos, const Wide *sin, const Sizes *s, int half, int backwards,
                   int threads) {
    const int64_t block = 64, blocks = (s->length + block - 1) / block, jobs = s->batch * s->heads * blocks;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t job = 0; job < jobs; job++) {
        const int64_t row = job % blocks * block, head = job / blocks % s->heads, batch = job / blocks / s->heads;
        const int64_t rows = s->length - row < block ? s->length - row : block;
        const int64_t table = batch * s->table[0] + head * s->table[1] + row * s->table[2];
        const T *from = x + batch * s->x[0] + head * s->x[1] + row * s->x[2];
        T *to = out + batch * s->out[0] + head * s->out[1] + row * s->out[2];
        const auto one = half ? rotate_rows<T, Wide, true> : rotate_rows<T, Wide, false>;
        one(from, to, cos + table, sin + table, *s, rows, backwards ? -1 : 1);
    }
}

#define ROTATE(name, T, Wide)                                                                                         \
    extern "C" void name(const T *x, T *out, const Wide *cos, const Wide *sin, const Sizes *s, int half,              \
                         int backwards, int threads) {                                                                \
        rotate<T, Wide>(x, out, cos, sin, s, half, backwards, threads);                                               \
    }

ROTATE(rotate_float32, float, float)
ROTATE(rotate_float64, double, double)
ROTATE(rotate_bfloat16, bfloat16, float)
