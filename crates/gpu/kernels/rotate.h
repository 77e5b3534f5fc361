// Blind rotation: a group of blocks turns an accumulator, step by step: ACC += BK_i x (X^a_i·ACC - ACC), Algorithm and names as in
// `toroid-tfhe`'s blind_rotation.rs.
//
// A block alone keeps the accumulator and all points in its shared memory (product.h). A block of a group of G owns C/G columns and 16/G
// rows of each polynomial's points. A step of a group is
//
// 1. columns: differences of the accumulator, their digits, four levels in registers, to the exchange;   all blocks wait
// 2. rows: the other levels in shared memory, products with the key, sums in a fixed order, back up;     all blocks wait
// 3. columns: the last four levels, rounded into the accumulator.                                        All blocks wait
//
// So each word of the key is read by one block, and sums never cross blocks. The order of all sums is fixed: results depend neither on
// the group nor on what else is done.
#pragma once

#include "product.h"

namespace toroid {

// How the blocks of a group wait for each other.
enum class Wait { CLUSTER, FLAGS };

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
    if constexpr (WAIT == Wait::FLAGS) {
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

// Each block turns accumulators of its own, in shared memory behind the points.
template <class A, u32 K>
DEVICE void rotate_alone(const RotateArgs &args) {
    using Word = typename A::Word;
    constexpr u32 COMPONENTS = K + 1, SUMS = COMPONENTS * A::HALVES;
    // Wide functions have k = 2; elsewhere their registers would be missing.
    constexpr bool BY_BITS = K == 2;
    const u32 degree = 1u << args.stage.log2_degree;
    const Bench<A> bench(args.stage, SUMS, args.twiddles, args.inverse);
    Word *const words = bench.words();
    for (u32 job = block_index_x(); job < args.jobs; job += block_count_x()) {
        Word *const kept = pointer<Word>(args.accumulators) + static_cast<u64>(job) * COMPONENTS * degree;
        const u32 *const exponents = pointer<const u32>(args.exponents) + static_cast<u64>(job) * args.stage.steps;
        const u32 sample = BY_BITS && args.sample != 0 && sound(FAULT_SAMPLE) ? pointer<const u32>(args.sample)[job] : 0;
        for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) words[i] = kept[i];
        block_barrier_always();
        for (u32 step = args.from; step < args.to; step++) {
            const u32 exponent = exponents[step];
            if (exponent == 0) continue;
            const u64 number = BY_BITS ? static_cast<u64>(step) * args.samples + sample : step;
            external_product<A, K>(
                bench, pointer<const typename A::Point>(args.key) + number * bench.sample_points(SUMS), BY_BITS && args.alternating != 0,
                [&](u32 component, u32 index) {
                    const Word *const polynomial = words + component * degree;
                    return A::sub(rotated<A>(polynomial, degree, exponent, index), polynomial[index]);
                },
                [&](u32 component, u32 index, auto x, u32 half) {
                    Word &word = words[component * degree + index];
                    word = A::add_sum(word, x, half);
                });
        }
        for (u32 i = thread_index(); i < COMPONENTS * degree; i += thread_count()) kept[i] = words[i];
        block_barrier_always();
    }
}

template <class A, Wait WAIT>
DEVICE void rotate_together(const RotateArgs &args) {
    using Point = typename A::Point;
    using Word = typename A::Word;
    constexpr u32 COMPONENTS = 2, SUMS = COMPONENTS * A::HALVES;

    const Stage &stage = args.stage;
    const u32 log2_points = stage.log2_degree - (A::PARTS == 2 ? 1 : 0);
    const u32 degree = 1u << stage.log2_degree, points = 1u << log2_points;
    const u32 log2_columns = log2_points - LOG2_ROWS, columns = 1u << log2_columns;
    const u32 size = args.group, member = block_index_x() % size;
    const u32 group_index = block_index_x() / size, groups = block_count_x() / size;
    const u32 own_columns = columns / size, first_column = member * own_columns;
    const u32 own_rows = ROWS / size, first_row = member * own_rows;
    const u32 at_once = args.at_once;
    const u32 row_points = padded(columns), held = stage.rows > SUMS ? stage.rows : SUMS;

    // Shared memory: points of rows, then differences [component][part][row][own column].
    const SharedRows<Point> shared{reinterpret_cast<Point *>(shared_memory()), held, row_points};
    Word *const words = reinterpret_cast<Word *>(shared.points + at_once * held * row_points);
    Group<WAIT> group{pointer<u32>(args.flags) + 32 * group_index, size, 0};

    const Point *const twiddles = pointer<const Point>(args.twiddles), *const inverse = pointer<const Point>(args.inverse);
    // [GGSW row][S] forward, then [sum][S] backward.
    Point *const forward = pointer<Point>(args.exchange) + static_cast<u64>(group_index) * (stage.rows + SUMS) * points;
    Point *const backward = forward + static_cast<u64>(stage.rows) * points;
    const u64 key_row = static_cast<u64>(stage.rows) * SUMS * columns;

    for (u32 job = group_index; job < args.jobs; job += groups) {
        Word *const accumulator = pointer<Word>(args.accumulators) + static_cast<u64>(job) * COMPONENTS * degree;
        const u32 *const exponents = pointer<const u32>(args.exponents) + static_cast<u64>(job) * stage.steps;
        for (u32 step = args.from; step < args.to; step++) {
            const u32 exponent = exponents[step];
            if (exponent == 0) continue;
            const Point *const key = pointer<const Point>(args.key) + (static_cast<u64>(step) * ROWS + first_row) * key_row;

            const u32 count = COMPONENTS * A::PARTS * ROWS * own_columns;
            for (u32 i = thread_index(); i < count; i += thread_count()) {
                const u32 column = i % own_columns, line = i / own_columns;
                const u32 row = line % ROWS, part = line / ROWS % A::PARTS, component = line / ROWS / A::PARTS;
                const u32 index = part * points + row * columns + first_column + column;
                const Word *const polynomial = accumulator + component * degree;
                words[i] = A::sub(rotated<A>(polynomial, degree, exponent, index), polynomial[index]);
            }
            block_barrier(FAULT_STAGED);
            for (u32 unit = thread_index(); unit < stage.rows * own_columns; unit += thread_count()) {
                const u32 column = unit % own_columns, row = unit / own_columns;
                const Field field = field_of(stage.digit[row], false);
                const u32 component = stage.component[row];
                Point x[ROWS];
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    i32 digits[A::PARTS];
#pragma unroll
                    for (u32 part = 0; part < A::PARTS; part++) {
                        digits[part] = A::digit(words[((component * A::PARTS + part) * ROWS + r) * own_columns + column], field);
                    }
                    x[r] = A::of_digits(digits);
                }
                forward_levels<A, LOG2_ROWS>(x, twiddles, 0, 0);
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) forward[row * points + r * columns + first_column + column] = x[r];
            }
            group_barrier(group, FAULT_FORWARD);

            for (u32 batch = 0; batch < own_rows; batch += at_once) {
                const Rows digits{log2_columns, stage.rows, at_once, first_row + batch};
                multiply_rows<A, SUMS>(
                    digits, shared, key + batch * key_row, twiddles, inverse,
                    [&](u32 row, u32 polynomial, u32 entry) { return forward[polynomial * points + (digits.first + row) * columns + entry]; },
                    [&](u32 row, u32 polynomial, u32 entry, const Point &x) {
                        backward[polynomial * points + (digits.first + row) * columns + entry] = x;
                    });
                // The next rows take the place of these.
                if (batch + at_once < own_rows) block_barrier(FAULT_PASS);
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
                    for (u32 r = 0; r < ROWS; r++) x[r] = backward[sum * points + r * columns + first_column + column];
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
    }
}

}  // namespace toroid
