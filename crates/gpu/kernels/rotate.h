// Blind rotation: a group of blocks turns an accumulator, step by step: ACC += BK_i x (X^a_i·ACC - ACC), Algorithm and names as in
// `toroid-tfhe`'s blind_rotation.rs.
//
// A polynomial's points are 16 rows of C = S/16, point c + C·r in row r. The first four levels of a transform work on columns, 16
// points each, the others on rows. A block of a group of G owns C/G columns and 16/G rows. A step is
//
// 1. columns: differences of the accumulator, their digits, four levels in registers, to the exchange;   all blocks wait
// 2. rows: the other levels in shared memory, products with the key, sums in a fixed order, back up;     all blocks wait
// 3. columns: the last four levels, rounded into the accumulator.                                        All blocks wait
//
// So each word of the key is read by one block, and sums never cross blocks. The order of all sums is fixed: results depend neither on
// the group nor on what else is done. A block alone keeps the accumulator and all points in its shared memory.
#pragma once

#include "transform.h"

namespace toroid {

// How the blocks of a group wait for each other.
enum class Wait { SOLO, CLUSTER, FLAGS };

template <Wait WAIT>
struct Group {
    u32 *flag;
    u32 size;
    // Arrivals at the flag when all blocks have come.
    u32 due;
};

template <Wait WAIT>
DEVICE void group_barrier(Group<WAIT> &group, u32 number) {
    if (!sound(number)) return;
    if constexpr (WAIT == Wait::SOLO) {
        block_barrier_always();
    } else if constexpr (WAIT == Wait::FLAGS) {
        group.due += group.size;
        block_barrier_always();
        if (thread_index() == 0) {
            fence_device();
            add_atomically(group.flag, 1);
            while (static_cast<i32>(load_acquire(group.flag) - group.due) < 0) {
            }
            fence_device();
        }
        block_barrier_always();
    } else {
#if defined(TOROID_SHIM) || TOROID_CLUSTERS
        cluster_barrier_always();
#endif
    }
}

// Coefficient `index` of X^exponent·p, 0 <= exponent < 2N.
template <class A>
DEVICE typename A::Word rotated(const typename A::Word *polynomial, u32 degree, u32 exponent, u32 index) {
    const u32 from = (index - exponent) & (2 * degree - 1);
    const typename A::Word word = polynomial[from & (degree - 1)];
    const bool negative = from >= degree;
    return negative == sound(FAULT_SIGN) ? A::neg(word) : word;
}

template <class A, u32 K, Wait WAIT>
DEVICE void rotate(const RotateArgs &args) {
    using Point = typename A::Point;
    using Word = typename A::Word;
    constexpr u32 COMPONENTS = K + 1, SUMS = COMPONENTS * A::HALVES;
    constexpr bool SOLO = WAIT == Wait::SOLO;

    const Stage &stage = args.stage;
    const u32 log2_points = stage.log2_degree - (A::PARTS == 2 ? 1 : 0);
    const u32 degree = 1u << stage.log2_degree, points = 1u << log2_points;
    const u32 log2_columns = log2_points - LOG2_ROWS, columns = 1u << log2_columns;
    const u32 size = SOLO ? 1 : args.group, member = SOLO ? 0 : block_index_x() % size;
    const u32 group_index = block_index_x() / size, groups = block_count_x() / size;
    const u32 own_columns = columns / size, first_column = member * own_columns;
    const u32 own_rows = ROWS / size, first_row = member * own_rows;
    const u32 at_once = args.at_once;
    const u32 row_points = padded(columns), held = stage.rows > SUMS ? stage.rows : SUMS;

    // Shared memory: points of rows, then the accumulator (alone) or differences [component][part][row][own column] (in a group).
    const SharedRows<Point> shared{reinterpret_cast<Point *>(shared_memory()), held, row_points};
    Word *const words = reinterpret_cast<Word *>(shared.points + at_once * held * row_points);
    Group<WAIT> group{pointer<u32>(args.flags) + 32 * group_index, size, 0};

    const Point *const twiddles = pointer<const Point>(args.twiddles), *const inverse = pointer<const Point>(args.inverse);
    // [GGSW row][S] forward, then [sum][S] backward.
    Point *const forward = pointer<Point>(args.exchange) + static_cast<u64>(group_index) * (stage.rows + SUMS) * points;
    Point *const backward = forward + static_cast<u64>(stage.rows) * points;
    const u64 key_row = static_cast<u64>(stage.rows) * SUMS * columns;

    for (u32 job = group_index; job < args.jobs; job += groups) {
        Word *const kept = pointer<Word>(args.accumulators) + static_cast<u64>(job) * COMPONENTS * degree;
        const u32 *const exponents = pointer<const u32>(args.exponents) + static_cast<u64>(job) * stage.steps;
        Word *const accumulator = SOLO ? words : kept;
        if constexpr (SOLO) {
            for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) words[i] = kept[i];
            block_barrier_always();
        }
        for (u32 step = args.from; step < args.to; step++) {
            const u32 exponent = exponents[step];
            if (exponent == 0) continue;
            const Point *const key = pointer<const Point>(args.key) + (static_cast<u64>(step) * ROWS + first_row) * key_row;

            if constexpr (!SOLO) {
                const u32 count = COMPONENTS * A::PARTS * ROWS * own_columns;
                for (u32 i = thread_index(); i < count; i += thread_count()) {
                    const u32 column = i % own_columns, line = i / own_columns;
                    const u32 row = line % ROWS, part = line / ROWS % A::PARTS, component = line / ROWS / A::PARTS;
                    const u32 index = part * points + row * columns + first_column + column;
                    const Word *const polynomial = accumulator + component * degree;
                    words[i] = A::sub(rotated<A>(polynomial, degree, exponent, index), polynomial[index]);
                }
                block_barrier(FAULT_STAGED);
            }
            for (u32 unit = thread_index(); unit < stage.rows * own_columns; unit += thread_count()) {
                const u32 column = unit % own_columns, row = unit / own_columns;
                const Digit digit = stage.digit[row];
                const u32 component = stage.component[row];
                Point x[ROWS];
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    i32 digits[A::PARTS];
#pragma unroll
                    for (u32 part = 0; part < A::PARTS; part++) {
                        Word difference;
                        if constexpr (SOLO) {
                            const u32 index = part * points + r * columns + column;
                            const Word *const polynomial = words + component * degree;
                            difference = A::sub(rotated<A>(polynomial, degree, exponent, index), polynomial[index]);
                        } else {
                            difference = words[((component * A::PARTS + part) * ROWS + r) * own_columns + column];
                        }
                        digits[part] = A::digit(difference, digit);
                    }
                    x[r] = A::of_digits(digits);
                }
                forward_levels<A, LOG2_ROWS>(x, twiddles, 0, 0);
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    if constexpr (SOLO) {
                        shared(r, row, column) = x[r];
                    } else {
                        forward[row * points + r * columns + first_column + column] = x[r];
                    }
                }
            }
            group_barrier(group, FAULT_FORWARD);

            for (u32 batch = 0; batch < own_rows; batch += at_once) {
                const Rows digits{log2_columns, stage.rows, at_once, first_row + batch};
                if constexpr (SOLO) {
                    forward_rows<A>(digits, shared, twiddles,
                                    [&](u32 row, u32 polynomial, u32 entry) { return shared(row, polynomial, entry); });
                } else {
                    forward_rows<A>(digits, shared, twiddles, [&](u32 row, u32 polynomial, u32 entry) {
                        return forward[polynomial * points + (digits.first + row) * columns + entry];
                    });
                }
                block_barrier(FAULT_SPECTRUM);
                for (u32 unit = thread_index(); unit < at_once << log2_columns; unit += thread_count()) {
                    const u32 entry = unit & (columns - 1), row = unit >> log2_columns;
                    const Point *factors = key + (batch + row) * key_row + entry;
                    Point sums[SUMS];
#pragma unroll
                    for (u32 sum = 0; sum < SUMS; sum++) sums[sum] = A::zero();
#pragma unroll 1
                    for (u32 polynomial = 0; polynomial < stage.rows; polynomial++) {
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
                const Rows sums{log2_columns, SUMS, at_once, first_row + batch};
                if constexpr (SOLO) {
                    inverse_rows<A>(sums, shared, inverse, [&](u32 row, u32 polynomial, u32 entry, const Point &x) {
                        shared(row, polynomial, entry) = x;
                    });
                } else {
                    inverse_rows<A>(sums, shared, inverse, [&](u32 row, u32 polynomial, u32 entry, const Point &x) {
                        backward[polynomial * points + (sums.first + row) * columns + entry] = x;
                    });
                    // The next rows take the place of these.
                    if (batch + at_once < own_rows) block_barrier(FAULT_PASS);
                }
            }
            group_barrier(group, FAULT_BACKWARD);

            for (u32 unit = thread_index(); unit < COMPONENTS * own_columns; unit += thread_count()) {
                const u32 column = unit % own_columns, component = unit / own_columns;
                Word *const polynomial = accumulator + component * degree;
#pragma unroll
                for (u32 half = 0; half < A::HALVES; half++) {
                    const u32 sum = component * A::HALVES + half;
                    Point x[ROWS];
#pragma unroll
                    for (u32 r = 0; r < ROWS; r++) {
                        if constexpr (SOLO) {
                            x[r] = shared(r, sum, column);
                        } else {
                            x[r] = backward[sum * points + r * columns + first_column + column];
                        }
                    }
                    inverse_levels<A, LOG2_ROWS>(x, inverse, 0, 0);
#pragma unroll
                    for (u32 r = 0; r < ROWS; r++) {
                        const u32 index = r * columns + first_column + column;
                        if constexpr (A::PARTS == 2) {
                            polynomial[index] = A::add_sum(polynomial[index], x[r].re, half);
                            polynomial[index + points] = A::add_sum(polynomial[index + points], x[r].im, half);
                        } else {
                            polynomial[index] = A::add_sum(polynomial[index], x[r], half);
                        }
                    }
                }
            }
            group_barrier(group, FAULT_STEP);
        }
        if constexpr (SOLO) {
            for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) kept[i] = words[i];
            block_barrier_always();
        }
    }
}

}  // namespace toroid
