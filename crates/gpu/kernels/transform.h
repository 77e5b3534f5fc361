// Transforms of point polynomials by halving (abi.h), a few levels at a time in registers.
#pragma once

#include "arithmetic.h"

namespace toroid {

constexpr u32 LOG2_ROWS = 4;
// Levels of the first pass over a row. Rows have eight entries or more.
constexpr u32 FIRST_LEVELS = 3;

// Where entry `index` of a row stands in shared memory: a gap after every eight entries keeps threads that take eight entries each in
// different banks.
DEVICE u32 padded(u32 index) { return index + (index >> 3); }

// LOG levels of one node in registers: 2^LOG points, the last level's halves next to each other. `node` is the number of the node
// at `level`.
template <class A, u32 LOG>
DEVICE void forward_levels(typename A::Point (&x)[1 << LOG], const typename A::Point *twiddles, u32 level, u32 node) {
#pragma unroll
    for (u32 d = 0; d < LOG; d++) {
        const u32 half = 1u << (LOG - d - 1);
#pragma unroll
        for (u32 b = 0; b < (1u << d); b++) {
            const typename A::Point s = twiddles[(1u << (level + d)) + (node << d) + (sound(FAULT_TWIDDLE) ? b : 0)];
#pragma unroll
            for (u32 i = 0; i < half; i++) A::butterfly(x[2 * half * b + i], x[2 * half * b + half + i], s);
        }
    }
}

// The inverse, times 2^LOG.
template <class A, u32 LOG>
DEVICE void inverse_levels(typename A::Point (&x)[1 << LOG], const typename A::Point *inverse, u32 level, u32 node) {
#pragma unroll
    for (u32 e = 0; e < LOG; e++) {
        const u32 d = LOG - 1 - e, half = 1u << e;
#pragma unroll
        for (u32 b = 0; b < (1u << d); b++) {
            const typename A::Point s = inverse[(1u << (level + d)) + (node << d) + b];
#pragma unroll
            for (u32 i = 0; i < half; i++) A::butterfly_back(x[2 * half * b + i], x[2 * half * b + half + i], s);
        }
    }
}

// Levels that the next pass over a row does when `left` remain: three in the first one, then 3, ..., 3, 2, 2 or 3, ..., 3, 2 or 1.
DEVICE u32 next_levels(u32 left) { return left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3; }

// The rows of points that a block transforms at once: several polynomials, a few rows of each.
struct Rows {
    // log2 of the entries of a row.
    u32 log2_entries;
    u32 polynomials;
    // How many rows of each polynomial, and the number of the first.
    u32 count, first;
};

// One pass over all rows: LOG levels from `level` (4 for the first) on. `load` and `store` get a row, a polynomial and an entry.
template <class A, u32 LOG, bool INVERSE, class Load, class Store>
DEVICE void pass(const Rows &rows, u32 level, const typename A::Point *twiddles, const Load &load, const Store &store) {
    const u32 done = level - LOG2_ROWS;
    const u32 log2_step = rows.log2_entries - done - LOG, log2_units = rows.log2_entries - LOG;
    const u32 units = (rows.count * rows.polynomials) << log2_units;
    for (u32 unit = thread_index(); unit < units; unit += thread_count()) {
        const u32 u = unit & ((1u << log2_units) - 1), of = unit >> log2_units;
        const u32 polynomial = of % rows.polynomials, row = of / rows.polynomials;
        const u32 i = u & ((1u << log2_step) - 1), block = u >> log2_step;
        const u32 node = ((rows.first + row) << done) + block;
        const u32 base = (block << (log2_step + LOG)) + i;
        typename A::Point x[1 << LOG];
#pragma unroll
        for (u32 j = 0; j < (1u << LOG); j++) x[j] = load(row, polynomial, base + (j << log2_step));
        if constexpr (INVERSE) {
            inverse_levels<A, LOG>(x, twiddles, level, node);
        } else {
            forward_levels<A, LOG>(x, twiddles, level, node);
        }
#pragma unroll
        for (u32 j = 0; j < (1u << LOG); j++) store(row, polynomial, base + (j << log2_step), x[j]);
    }
}

template <class A, bool INVERSE, class Load, class Store>
DEVICE void pass_of(u32 levels, const Rows &rows, u32 level, const typename A::Point *twiddles, const Load &load, const Store &store) {
    if (levels == 3) {
        pass<A, 3, INVERSE>(rows, level, twiddles, load, store);
    } else if (levels == 2) {
        pass<A, 2, INVERSE>(rows, level, twiddles, load, store);
    } else {
        pass<A, 1, INVERSE>(rows, level, twiddles, load, store);
    }
}

// Rows in shared memory: [row][polynomial][padded entry], of `polynomials` polynomials.
template <class Point>
struct SharedRows {
    Point *points;
    u32 polynomials, stride;

    METHOD Point &operator()(u32 row, u32 polynomial, u32 entry) const {
        return points[(row * polynomials + polynomial) * stride + padded(entry)];
    }
};

// All levels below the rows: `load` gives what the first pass takes, the last one leaves its points in `shared`.
template <class A, class Load>
DEVICE void forward_rows(const Rows &rows, const SharedRows<typename A::Point> &shared, const typename A::Point *twiddles, const Load &load) {
    const auto kept = [&](u32 row, u32 polynomial, u32 entry) { return shared(row, polynomial, entry); };
    const auto store = [&](u32 row, u32 polynomial, u32 entry, const typename A::Point &x) {
        shared(row, polynomial, entry) = x;
    };
    pass<A, FIRST_LEVELS, false>(rows, LOG2_ROWS, twiddles, load, store);
    u32 levels;
    for (u32 left = rows.log2_entries - FIRST_LEVELS; left > 0; left -= levels) {
        block_barrier(FAULT_PASS);
        levels = next_levels(left);
        pass_of<A, false>(levels, rows, LOG2_ROWS + rows.log2_entries - left, twiddles, kept, store);
    }
}

// The inverse, from `shared`; the last pass gives its points to `store`.
template <class A, class Store>
DEVICE void inverse_rows(const Rows &rows, const SharedRows<typename A::Point> &shared, const typename A::Point *inverse, const Store &store) {
    const auto load = [&](u32 row, u32 polynomial, u32 entry) { return shared(row, polynomial, entry); };
    const auto keep = [&](u32 row, u32 polynomial, u32 entry, const typename A::Point &x) {
        shared(row, polynomial, entry) = x;
    };
    // The forward passes, backwards.
    u32 done = 0;
    const u32 others = rows.log2_entries - FIRST_LEVELS;
    while (done < others) {
        // As many levels as the forward pass took that ended with `done` left.
        u32 left = others, levels = next_levels(left);
        while (left - levels != done) {
            left -= levels;
            levels = next_levels(left);
        }
        pass_of<A, true>(levels, rows, LOG2_ROWS + rows.log2_entries - left, inverse, load, keep);
        block_barrier(FAULT_INVERSE_PASS);
        done = left;
    }
    pass<A, FIRST_LEVELS, true>(rows, LOG2_ROWS, inverse, load, store);
}

}  // namespace toroid
