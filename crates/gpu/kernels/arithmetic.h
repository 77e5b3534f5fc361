// The arithmetics of blind rotation. Each says what a point is, how points are made of the digits of words, and how sums of products
// return to words.
#pragma once

#include "gpu.h"

namespace toroid {

constexpr u64 P = 0xffffffff00000001ull;
// 2^64 modulo P.
constexpr u64 EPSILON = 0xffffffffull;

DEVICE u64 field_add(u64 a, u64 b) {
    u64 sum = a + b;
    // Past 2^64 or past P, and never both twice: a + b < 2P.
    if (sum < a || sum >= P) sum -= P;
    return sum;
}

DEVICE u64 field_sub(u64 a, u64 b) { return a >= b ? a - b : a - b + P; }

DEVICE u64 field_neg(u64 a) { return a == 0 ? 0 : P - a; }

DEVICE u64 field_mul(u64 a, u64 b) {
    const u64 low = a * b, high = multiply_high(a, b);
    // 2^96 = -1 and 2^64 = 2^32 - 1 modulo P.
    const u64 top = high >> 32, middle = high & EPSILON;
    u64 difference = low - top;
    if (low < top) difference -= EPSILON;
    const u64 product = (middle << 32) - middle;
    u64 sum = difference + product;
    if (sum < product) sum += EPSILON;
    return sum >= P ? sum - P : sum;
}

// The least absolute representative.
DEVICE i64 field_centered(u64 a) { return a > P / 2 ? static_cast<i64>(a - P) : static_cast<i64>(a); }

DEVICE u64 field_of_signed(i32 value) {
    const u64 word = static_cast<u64>(static_cast<i64>(value));
    return value < 0 ? word + P : word;
}

// A word modulo P as the nearest word of 2^64 units a turn.
DEVICE u64 field_to_torus(u64 a) { return a + ((a + (1ull << 31)) >> 32); }

// The other way.
DEVICE u64 torus_to_field(u64 a) {
    // round(a·(2^32 - 1) / 2^64), from the products' halves.
    const u64 low = a * EPSILON, high = multiply_high(a, EPSILON);
    return a - (high + (low >> 63));
}

// A word of the 32-bit torus as the nearest word modulo P.
DEVICE u64 torus32_to_field(u32 a) { return (static_cast<u64>(a) << 32) - a + (a >> 31); }

// A digit as a field of bits: ((word + offset) >> shift) mod 2^log2_base, less half the base, plus `raised`.
struct Field {
    u64 offset;
    u32 shift, log2_base, raised;
};

// A digit in [-B/2, B/2), or in (-B/2, B/2] where it is raised.
DEVICE Field field_of(const Digit &digit, bool raised) {
    // Every digit's range is one unit higher: the offset is 2^63 and half of such a unit of every digit, and without all of those units
    // it is the negative.
    if (raised && sound(FAULT_RAISED)) return {0 - digit.offset, digit.shift, digit.log2_base, 1};
    return {digit.offset, digit.shift, digit.log2_base, 0};
}

DEVICE i32 digit_of(u64 word, const Field &field) {
    const u32 base = 1u << field.log2_base;
    const u32 bits = static_cast<u32>((word + field.offset) >> field.shift) & (base - 1);
    return static_cast<i32>(bits + field.raised) - static_cast<i32>(base >> 1);
}

DEVICE i32 digit_of(u32 word, const Field &field) {
    const u32 base = 1u << field.log2_base;
    const u32 bits = ((word + static_cast<u32>(field.offset)) >> field.shift) & (base - 1);
    return static_cast<i32>(bits + field.raised) - static_cast<i32>(base >> 1);
}

// A digit of a ciphertext's word: over p, of the torus itself, for whole turns drop out of bit fields of 2^64, and not of those of p.
DEVICE i32 digit_of_sample(u32 word, const Field &field) { return digit_of(word, field); }
DEVICE i32 digit_of_sample(u64 word, const Field &field) { return digit_of(field_to_torus(word), field); }

struct alignas(16) Complex {
    double re, im;
};

// N/2 complex points: coefficient j is the real part of point j, coefficient j + N/2 its imaginary part.
struct ComplexPoints {
    using Point = Complex;
    // Words of a point.
    static constexpr u32 PARTS = 2;

    DEVICE Point zero() { return {0, 0}; }

    DEVICE void butterfly(Point &u, Point &v, const Point &s) {
        const double re = fused(s.re, v.re, u.re), im = fused(s.re, v.im, u.im);
        const double re_minus = fused(-s.re, v.re, u.re), im_minus = fused(-s.re, v.im, u.im);
        u.re = fused(-s.im, v.im, re);
        u.im = fused(s.im, v.re, im);
        const double v_re = v.re;
        v.re = fused(s.im, v.im, re_minus);
        v.im = fused(-s.im, v_re, im_minus);
    }

    // Twice the halves that `butterfly` began with.
    DEVICE void butterfly_back(Point &u, Point &v, const Point &s) {
        const double re = u.re - v.re, im = u.im - v.im;
        u.re += v.re;
        u.im += v.im;
        // By the conjugate of s, its inverse.
        v.re = fused(s.re, re, s.im * im);
        v.im = fused(s.re, im, -s.im * re);
    }

    DEVICE void multiply_add(Point &sum, const Point &a, const Point &b) {
        sum.re = fused(a.re, b.re, sum.re);
        sum.im = fused(a.re, b.im, sum.im);
        sum.re = fused(-a.im, b.im, sum.re);
        sum.im = fused(a.im, b.re, sum.im);
    }

    DEVICE Point of_digits(const i32 (&digits)[PARTS]) {
        return {static_cast<double>(digits[0]), static_cast<double>(digits[1])};
    }
};

// The f64 path of the arithmetic A: what its words are, and what its key's words are made of.
template <class A, class W>
struct FloatPath : ComplexPoints {
    using Word = W;

    DEVICE Word add(Word a, Word b) { return a + b; }
    DEVICE Word sub(Word a, Word b) { return a - b; }
    DEVICE Word neg(Word a) { return Word{0} - a; }
    DEVICE i32 digit(Word word, const Field &field) { return digit_of(word, field); }
    DEVICE Point key_point(const u64 *words, u32 points, u32 index, u32 half, double scale) {
        return {scale * A::key_part(words[index], half), scale * A::key_part(words[index + points], half)};
    }
};

// The f64 path over the 32-bit torus, whose words are those of ciphertexts. A key's words come times 2/N.
template <class A>
struct FloatPath32 : FloatPath<A, u32> {
    DEVICE u32 enter(u32 word) { return word; }
    DEVICE u32 leave(u32 word) { return word; }
    DEVICE double key_scale(u32 points) { return 1.0 / points; }
};

// f64 over the 32-bit torus. A key's words come in units of 2^-32.
struct Fft32 : FloatPath32<Fft32> {
    static constexpr u32 HALVES = 1;

    DEVICE double key_part(u64 field_word, u32) { return static_cast<double>(field_centered(field_word)); }
    DEVICE Word add_sum(Word word, double x, u32) {
        constexpr double TURN = 4294967296.0;
        const double rest = fused(-nearest(x * (1.0 / TURN)), TURN, x);
        return word + static_cast<Word>(static_cast<i64>(nearest(rest)));
    }
};

// f64 over p, on the torus in units of 2^-64. A key's words come in turns, times 2/N.
struct Fft64 : FloatPath<Fft64, u64> {
    static constexpr u32 HALVES = 1;

    DEVICE Word enter(u64 word) { return field_to_torus(word); }
    DEVICE u64 leave(Word word) { return torus_to_field(word); }
    // A word whose 2^log2-fold the word is to within 2^(log2 - 1) units, 1 <= log2.
    DEVICE Word share(Word word, u32 log2) { return static_cast<Word>(static_cast<i64>(word + (1ull << (log2 - 1))) >> log2); }
    DEVICE double key_part(u64 field_word, u32) { return static_cast<double>(field_centered(field_word)); }
    DEVICE double key_scale(u32 points) { return 1.0 / (18446744069414584321.0 * points); }
    DEVICE Word add_sum(Word word, double x, u32) {
        // In units of 2^-50, finer than what the transform leaves exact: 1.5·2^52 brings the integer to the mantissa's low bits, and
        // the shift drops what stands above them.
        constexpr double UNITS = 1125899906842624.0, ROUND = 6755399441055744.0;
        return word + (bits_of(fused(x - nearest(x), UNITS, ROUND)) << 14);
    }
};

// Integers over the 32-bit torus by f64: key words in two halves w = low + 2^16·high, |low|, |high| <= 2^15, so that each half's sum of
// products is off by less than 1/2 and rounding gives the integer. `toroid-tfhe`'s arithmetic.rs has the bound.
struct Split32 : FloatPath32<Split32> {
    static constexpr u32 HALVES = 2;

    DEVICE double key_part(u64 field_word, u32 half) {
        const i64 word = field_centered(field_word);
        const i64 high = (word + 0x8000) >> 16;
        return static_cast<double>(half == 0 ? word - high * 65536 : high);
    }
    DEVICE Word add_sum(Word word, double x, u32 half) {
        const u64 integer = static_cast<u64>(static_cast<i64>(nearest(x)));
        return word + static_cast<Word>(integer << (16 * half));
    }
};

// Integers over p: N points, one a coefficient.
struct Ntt64 {
    using Point = u64;
    using Word = u64;
    static constexpr u32 PARTS = 1;
    static constexpr u32 HALVES = 1;

    DEVICE Point zero() { return 0; }
    DEVICE void butterfly(Point &u, Point &v, const Point &s) {
        const u64 product = field_mul(v, s), sum = field_add(u, product);
        v = field_sub(u, product);
        u = sum;
    }
    // `s` is the inverse of the one that `butterfly` took.
    DEVICE void butterfly_back(Point &u, Point &v, const Point &s) {
        const u64 sum = field_add(u, v);
        v = field_mul(field_sub(u, v), s);
        u = sum;
    }
    DEVICE void multiply_add(Point &sum, const Point &a, const Point &b) {
        sum = field_add(sum, field_mul(a, b));
    }
    DEVICE Point of_digits(const i32 (&digits)[PARTS]) { return field_of_signed(digits[0]); }
    DEVICE Word enter(u64 word) { return word; }
    DEVICE u64 leave(Word word) { return word; }
    DEVICE Word add(Word a, Word b) { return field_add(a, b); }
    DEVICE Word sub(Word a, Word b) { return field_sub(a, b); }
    DEVICE Word neg(Word a) { return field_neg(a); }
    DEVICE i32 digit(Word word, const Field &field) { return digit_of_sample(word, field); }
    // 1/2^m is P - (P - 1)/2^m.
    DEVICE Word share(Word word, u32 log2) { return field_mul(word, P - (P - 1) / (1u << log2)); }
    DEVICE u64 key_scale(u32 points) { return P - (P - 1) / points; }
    DEVICE Point key_point(const u64 *words, u32, u32 index, u32, u64 scale) { return field_mul(words[index], scale); }
    DEVICE Word add_sum(Word word, u64 x, u32) { return field_add(word, x); }
};

}  // namespace toroid
