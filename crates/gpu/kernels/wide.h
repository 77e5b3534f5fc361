// The stages of wide functions, as `toroid-tfhe`'s wopbs has them: bits off samples, their GGSW samples by circuit bootstrapping, and an
// entry of a table by CMuxes. Blind rotations and key switches are those of other bootstraps.
#pragma once

#include "rotate.h"

namespace toroid {

// Word `word` of the sample that coefficient `index` of an accumulator makes; `masks` is k·N.
template <class A>
DEVICE auto extracted(const typename A::Word *accumulator, u32 degree, u32 masks, u32 index, u32 word) {
    if (word == masks) return A::leave(accumulator[masks + index]);
    // Coefficient `index` of a·s: a_(index-j) with s_j, and -a_(N+index-j) beyond.
    const u32 j = word & (degree - 1);
    const typename A::Word *const polynomial = accumulator + (word - j);
    return j <= index ? A::leave(polynomial[index - j]) : A::leave(A::neg(polynomial[degree + index - j]));
}

// All digits of a sample's word for a key switch.
template <class Sample>
DEVICE void store_digits(Sample word, const Digit (&digit)[MAX_ROWS], u32 levels, i8 *out) {
    for (u32 level = 0; level < levels; level++) out[level] = static_cast<i8>(digit_of_sample(word, field_of(digit[level], false)));
}

DEVICE void shift(const ShiftArgs &args) {
    const u32 job = block_index_y();
    const u64 *const sample = pointer<const u64>(args.samples) + static_cast<u64>(job) * (args.masks + 1);
    i8 *const out = pointer<i8>(args.digits) + static_cast<u64>(job) * args.masks * args.levels;
    u32 *const sums = pointer<u32>(args.sums) + static_cast<u64>(job) * (args.steps + 1);
    const u64 factor = 1ull << args.log2;
    const u32 first = block_index_x() * thread_count() + thread_index(), stride = block_count_x() * thread_count();
    for (u32 i = first; i < args.masks; i += stride) {
        store_digits(field_mul(sample[i], factor), args.digit, args.levels, out + static_cast<u64>(i) * args.levels);
    }
    if (first == 0) pointer<u64>(args.bodies)[job] = field_mul(sample[args.masks], factor);
    for (u32 i = first; i <= args.steps; i += stride) sums[i] = 0;
}

DEVICE void make_exponents(const ExponentsArgs &args) {
    const u32 job = block_index_x(), shift = 64 - args.log2_order + args.log2_slots;
    const u64 half = 1ull << (shift - 1);
    const u32 *const sums = pointer<const u32>(args.sums) + static_cast<u64>(job) * (args.steps + 1);
    u32 *const exponents = pointer<u32>(args.exponents) + static_cast<u64>(job) * args.steps;
    // A sum of errors may need a 65th bit: the sums of their upper halves, then those of their lower ones.
    u64 *const high = reinterpret_cast<u64 *>(shared_memory()), *const low = high + thread_count();
    u64 own_high = 0, own_low = 0;
    for (u32 i = thread_index(); i < args.steps; i += thread_count()) {
        const u64 word = torus32_to_field(0u - sums[i]), exponent = (word + half) >> shift;
        const u64 error = word - (exponent << shift);
        own_high += static_cast<u64>(static_cast<i64>(error) >> 32);
        own_low += error & EPSILON;
        exponents[i] = static_cast<u32>(exponent) << args.log2_slots;
    }
    high[thread_index()] = own_high;
    low[thread_index()] = own_low;
    for (u32 step = thread_count() / 2; step > 0; step /= 2) {
        block_barrier(FAULT_ERRORS);
        if (thread_index() < step) {
            high[thread_index()] += high[thread_index() + step];
            low[thread_index()] += low[thread_index() + step];
        }
    }
    if (thread_index() == 0) {
        // Half the sum, rounded down.
        const u64 correction = ((high[0] + (low[0] >> 32)) << 31) + ((low[0] & EPSILON) >> 1);
        const u64 word = field_add(torus32_to_field(0u - sums[args.steps]), pointer<const u64>(args.bodies)[job]);
        const u64 body = (field_add(word, args.addend) - correction) >> shift << args.log2_slots;
        const u32 order = 1u << args.log2_order;
        pointer<u32>(args.exponent)[job] = (order - static_cast<u32>(body)) & (order - 1);
    }
}

// The inverse of an odd number modulo 2^32.
DEVICE u32 inverse_of_odd(u32 odd) {
    // Right in three bits; each round doubles them.
    u32 inverse = odd;
    for (u32 round = 0; round < 4; round++) inverse *= 2 - odd * inverse;
    return inverse;
}

// Coefficient `index` of a polynomial's image under X -> X^d; `inverse` is that of d modulo 2N.
template <class A>
DEVICE typename A::Word image(const typename A::Word *polynomial, u32 degree, u32 inverse, u32 index) {
    const u32 from = (index * inverse) & (2 * degree - 1);
    const typename A::Word word = polynomial[from & (degree - 1)];
    // d is odd, so that N more in an exponent remain N more.
    return (from >= degree) == sound(FAULT_IMAGE) ? A::neg(word) : word;
}

// Shared memory: a block's points, the sample [k + 1][N], and its body before a step of the trace.
template <class A, u32 K>
DEVICE void make_rows(const CircuitArgs &args) {
    using Point = typename A::Point;
    using Word = typename A::Word;
    constexpr u32 COMPONENTS = K + 1, SUMS = COMPONENTS * A::HALVES;
    const u32 log2_degree = args.stage.log2_degree, degree = 1u << log2_degree, masks = K * degree;
    const u32 level = block_index_x(), job = block_index_y();
    const Bench<A> bench(args.stage, SUMS, args.twiddles, args.inverse);
    Word *const sample = bench.words(), *const before = sample + COMPONENTS * degree;
    const Point *key = pointer<const Point>(args.key);

    // Coefficient `level` to the constant one, as bit·g_level; the whole divided by N.
    const Word *const accumulator = pointer<const Word>(args.accumulators) + static_cast<u64>(job) * COMPONENTS * degree;
    for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) {
        const u32 index = i & (degree - 1);
        Word word = A::neg(rotated<A>(accumulator + (i - index), degree, 2 * degree - level, index));
        if (i == masks) word = A::add(word, A::enter(args.half_level[level]));
        sample[i] = A::share(word, log2_degree);
    }
    block_barrier_always();
    u64 *const rows = pointer<u64>(args.rows) + static_cast<u64>(job) * COMPONENTS * args.levels * COMPONENTS * degree;
    const auto row_of = [&](u32 component) { return rows + static_cast<u64>(component * args.levels + level) * COMPONENTS * degree; };
    // One place for all products, since each is a few thousand instructions.
    for (u32 step = 0; step < log2_degree + K; step++, key += bench.sample_points(SUMS)) {
        // N times the constant coefficient: the sum over the automorphisms, one generator at a time. Then minus each secret polynomial
        // times the message: its key times the masks, and the body as that polynomial's mask.
        const bool traces = step < log2_degree;
        const u32 secret = traces ? 0 : step - log2_degree, inverse = inverse_of_odd((degree >> (traces ? step : 0)) + 1);
        u64 *const row = row_of(secret);
        if (traces) {
            for (u32 i = thread_index(); i < degree; i += thread_count()) before[i] = sample[masks + i];
        }
        external_product<A, K>(
            bench, key, false,
            [&](u32 component, u32 index) {
                const Word *const mask = sample + component * degree;
                return traces ? image<A>(mask, degree, inverse, index) : mask[index];
            },
            [&](u32 component, u32 index, auto x, u32) {
                static_assert(A::HALVES == 1, "a row's word is stored once");
                Word &word = sample[component * degree + index];
                if (traces) {
                    if (component == K && sound(FAULT_BODY)) word = A::add(word, image<A>(before, degree, inverse, index));
                    word = A::add_sum(word, x, 0);
                } else {
                    const bool takes_body = component == (sound(FAULT_SECRET) ? secret : 0);
                    row[component * degree + index] = A::leave(A::add_sum(takes_body ? sample[masks + index] : Word{0}, x, 0));
                }
            });
    }
    for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) row_of(K)[i] = A::leave(sample[i]);
}

// low + bit x (high - low).
template <class A, u32 K>
DEVICE void select(const SelectArgs &args) {
    using Point = typename A::Point;
    using Word = typename A::Word;
    constexpr u32 COMPONENTS = K + 1, SUMS = COMPONENTS * A::HALVES;
    const u32 degree = 1u << args.stage.log2_degree, node = block_index_x(), job = block_index_y();
    const Bench<A> bench(args.stage, SUMS, args.twiddles, args.inverse);
    const u64 samples = pointer<const u32>(args.sample)[job];
    const Point *const key = pointer<const Point>(args.key) + samples * bench.sample_points(SUMS);
    Word *const to = pointer<Word>(args.to) + (static_cast<u64>(job) * args.nodes + node) * COMPONENTS * degree;
    // Polynomials of tables are known: bodies alone.
    const u64 pair = static_cast<u64>(args.tables == 0 ? job : pointer<const u32>(args.table)[job]) * args.nodes + node;
    const u64 *const known = pointer<const u64>(args.tables) + pair * 2 * degree;
    const Word *const kept = pointer<const Word>(args.from) + pair * 2 * COMPONENTS * degree;
    const bool tables = args.tables != 0;
    const auto word = [&](u32 side, u32 component, u32 index) {
        if (!tables) return kept[(side * COMPONENTS + component) * degree + index];
        return component < K ? Word{0} : A::enter(known[side * degree + index]);
    };
    external_product<A, K>(
        bench, key, true, [&](u32 component, u32 index) { return A::sub(word(1, component, index), word(0, component, index)); },
        [&](u32 component, u32 index, auto x, u32) {
            static_assert(A::HALVES == 1, "a node's word is stored once");
            to[component * degree + index] = A::add_sum(word(sound(FAULT_NODE) ? 0 : 1, component, index), x, 0);
        });
}

template <class A>
DEVICE void gather(const GatherArgs &args) {
    using Word = typename A::Word;
    const Stage &stage = args.stage;
    const u32 degree = 1u << stage.log2_degree, masks = (stage.components - 1) * degree;
    const u32 i = block_index_x() * thread_count() + thread_index(), number = block_index_y();
    if (i > masks) return;
    const u64 at = static_cast<u64>(number) * (masks + 1) + i;
    u64 sum = args.from == 0 ? 0 : pointer<const u64>(args.from)[at];
    if (i == masks) sum = field_add(sum, pointer<const u64>(args.bodies)[number]);
    const u32 *const first = pointer<const u32>(args.first) + number;
    for (u32 of = first[0]; of < first[1]; of++) {
        const Word *const accumulator = pointer<const Word>(args.accumulators) + static_cast<u64>(of) * stage.components * degree;
        sum = field_add(sum, extracted<A>(accumulator, degree, masks, args.index, i));
    }
    pointer<u64>(args.samples)[at] = sum;
}

}  // namespace toroid
