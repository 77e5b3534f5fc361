// External products with GGSW samples: sums of the products of a GLWE sample's digits with the sample's rows.
//
// A polynomial's points are 16 rows of C = S/16, point c + C·r in row r. The first four levels of a transform work on columns, 16
// points each, the others on rows.
#pragma once

#include "transform.h"

namespace toroid {

// Coefficient `index` of X^exponent·p, 0 <= exponent < 2N.
template <class A>
DEVICE typename A::Word rotated(const typename A::Word *polynomial, u32 degree, u32 exponent, u32 index) {
    const u32 from = (index - exponent) & (2 * degree - 1);
    const typename A::Word word = polynomial[from & (degree - 1)];
    const bool negative = from >= degree;
    return negative == sound(FAULT_SIGN) ? A::neg(word) : word;
}

// Rows of digits' points through the other levels, times the key, summed up in the order of the rows, and back up, for some of the rows
// at once. `load` gives what the first level takes, `store` gets what the last one makes; both get a row, a polynomial and an entry.
// `key` begins with the first of these rows.
template <class A, u32 SUMS, class Load, class Store>
DEVICE void multiply_rows(const Rows &digits, const SharedRows<typename A::Point> &shared, const typename A::Point *key,
                          const typename A::Point *twiddles, const typename A::Point *inverse, const Load &load, const Store &store) {
    using Point = typename A::Point;
    const u32 log2_columns = digits.log2_entries, columns = 1u << log2_columns;
    const u64 key_row = static_cast<u64>(digits.polynomials) * SUMS * columns;
    forward_rows<A>(digits, shared, twiddles, load);
    block_barrier(FAULT_SPECTRUM);
    for (u32 unit = thread_index(); unit < digits.count << log2_columns; unit += thread_count()) {
        const u32 entry = unit & (columns - 1), row = unit >> log2_columns;
        const Point *factors = key + row * key_row + entry;
        Point sums[SUMS];
#pragma unroll
        for (u32 sum = 0; sum < SUMS; sum++) sums[sum] = A::zero();
#pragma unroll 1
        for (u32 polynomial = 0; polynomial < digits.polynomials; polynomial++) {
            const Point x = shared(row, polynomial, entry);
#pragma unroll
            for (u32 sum = 0; sum < SUMS; sum++) {
                A::multiply_add(sums[sum], x, *factors);
                factors += columns;
            }
        }
#pragma unroll
        for (u32 sum = 0; sum < SUMS; sum++) shared(row, sum, entry) = sums[sum];
    }
    block_barrier(FAULT_SUMS);
    inverse_rows<A>(Rows{log2_columns, SUMS, digits.count, digits.first}, shared, inverse, store);
}

// What a block has that does products alone, all points in its shared memory.
template <class A>
struct Bench {
    const Stage &stage;
    SharedRows<typename A::Point> shared;
    const typename A::Point *twiddles, *inverse;
    u32 log2_columns;

    METHOD Bench(const Stage &of, u32 sums, u64 forward, u64 backward)
        : stage(of),
          shared{reinterpret_cast<typename A::Point *>(shared_memory()), of.rows > sums ? of.rows : sums, 0},
          twiddles(pointer<const typename A::Point>(forward)),
          inverse(pointer<const typename A::Point>(backward)),
          log2_columns(of.log2_degree - (A::PARTS == 2 ? 1 : 0) - LOG2_ROWS) {
        shared.stride = padded(1u << log2_columns);
    }

    // What follows the points in shared memory.
    METHOD typename A::Word *words() const {
        return reinterpret_cast<typename A::Word *>(shared.points + ROWS * shared.polynomials * shared.stride);
    }

    // Points of a GGSW sample.
    METHOD u64 sample_points(u32 sums) const { return (static_cast<u64>(ROWS * stage.rows * sums)) << log2_columns; }
};

// One external product by a block alone: `word` gives coefficient `index` of a component of the GLWE sample, `add` gets what is added to
// that of the result, for each half. Digits of odd coefficients are one unit higher where they alternate. All threads have done their
// part at the end.
template <class A, u32 K, class Words, class Add>
DEVICE void external_product(const Bench<A> &bench, const typename A::Point *key, bool alternating, const Words &word, const Add &add) {
    using Point = typename A::Point;
    constexpr u32 COMPONENTS = K + 1, SUMS = COMPONENTS * A::HALVES;
    const SharedRows<Point> &shared = bench.shared;
    const u32 columns = 1u << bench.log2_columns, points = ROWS * columns;
    for (u32 unit = thread_index(); unit < bench.stage.rows * columns; unit += thread_count()) {
        const u32 column = unit % columns, row = unit / columns;
        // Columns and parts are an even number of coefficients apart.
        const Field field = field_of(bench.stage.digit[row], alternating && column % 2 == 1);
        const u32 component = bench.stage.component[row];
        Point x[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            i32 digits[A::PARTS];
#pragma unroll
            for (u32 part = 0; part < A::PARTS; part++) {
                digits[part] = A::digit(word(component, part * points + r * columns + column), field);
            }
            x[r] = A::of_digits(digits);
        }
        forward_levels<A, LOG2_ROWS>(x, bench.twiddles, 0, 0);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) shared(r, row, column) = x[r];
    }
    block_barrier(FAULT_FORWARD);
    multiply_rows<A, SUMS>(
        Rows{bench.log2_columns, bench.stage.rows, ROWS, 0}, shared, key, bench.twiddles, bench.inverse,
        [&](u32 row, u32 polynomial, u32 entry) { return shared(row, polynomial, entry); },
        [&](u32 row, u32 polynomial, u32 entry, const Point &x) { shared(row, polynomial, entry) = x; });
    block_barrier(FAULT_BACKWARD);
    for (u32 unit = thread_index(); unit < COMPONENTS * columns; unit += thread_count()) {
        const u32 column = unit % columns, component = unit / columns;
#pragma unroll
        for (u32 half = 0; half < A::HALVES; half++) {
            Point x[ROWS];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) x[r] = shared(r, component * A::HALVES + half, column);
            inverse_levels<A, LOG2_ROWS>(x, bench.inverse, 0, 0);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                const u32 index = r * columns + column;
                if constexpr (A::PARTS == 2) {
                    add(component, index, x[r].re, half);
                    add(component, index + points, x[r].im, half);
                } else {
                    add(component, index, x[r], half);
                }
            }
        }
    }
    block_barrier(FAULT_STEP);
}

}  // namespace toroid
