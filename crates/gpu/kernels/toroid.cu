// All kernels of the back end, one module.
#include "wide.h"

namespace toroid {

// One polynomial of a key a block: its points, scaled so that the inverse transform of products needs no factor.
template <class A>
DEVICE void load(const LoadArgs &args) {
    using Point = typename A::Point;
    const Stage &stage = args.stage;
    const u32 log2_points = stage.log2_degree - (A::PARTS == 2 ? 1 : 0);
    const u32 log2_columns = log2_points - LOG2_ROWS, points = 1u << log2_points, columns = 1u << log2_columns;
    const SharedRows<Point> shared{reinterpret_cast<Point *>(shared_memory()), 1, padded(columns)};
    const Point *const twiddles = pointer<const Point>(args.twiddles);
    const u64 *const words = pointer<const u64>(args.source) + (static_cast<u64>(block_index_x()) << stage.log2_degree);

    const u64 number = args.first + block_index_x();
    const u32 component = number % stage.components;
    const u64 sample_row = number / stage.components;
    const u32 row = sample_row % stage.rows;
    const u64 step = sample_row / stage.rows;
    const auto scale = A::key_scale(points);
    for (u32 half = 0; half < A::HALVES; half++) {
        for (u32 column = thread_index(); column < columns; column += thread_count()) {
            Point x[ROWS];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) x[r] = A::key_point(words, points, r * columns + column, half, scale);
            forward_levels<A, LOG2_ROWS>(x, twiddles, 0, 0);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) shared(r, 0, column) = x[r];
        }
        block_barrier_always();
        forward_rows<A>(Rows{log2_columns, 1, ROWS, 0}, shared, twiddles,
                        [&](u32 r, u32 polynomial, u32 entry) { return shared(r, polynomial, entry); });
        block_barrier_always();
        for (u32 i = thread_index(); i < points; i += thread_count()) {
            const u32 r = i >> log2_columns, entry = i & (columns - 1);
            const u64 line = ((step * ROWS + r) * stage.rows + row) * stage.components + component;
            pointer<Point>(args.key)[(line * A::HALVES + half) * columns + entry] = shared(r, 0, entry);
        }
        block_barrier_always();
    }
}

template <class A>
DEVICE void start(const StartArgs &args) {
    using Word = typename A::Word;
    const u32 degree = 1u << args.stage.log2_degree, words = args.stage.components * degree;
    const u32 job = block_index_y();
    const Word *const vector = pointer<const Word>(args.vectors) + static_cast<u64>(pointer<const u32>(args.vector)[job]) * words;
    Word *const accumulator = pointer<Word>(args.accumulators) + static_cast<u64>(job) * words;
    const u32 exponent = pointer<const u32>(args.exponent)[job];
    for (u32 i = block_index_x() * thread_count() + thread_index(); i < words; i += block_count_x() * thread_count()) {
        const u32 component = i >> args.stage.log2_degree, index = i & (degree - 1);
        const u32 from = (index - exponent) & (2 * degree - 1);
        const Word word = A::enter(vector[component * degree + (from & (degree - 1))]);
        accumulator[i] = from >= degree ? A::neg(word) : word;
    }
}

// The digits of the mask of the sample that coefficient 0 of each accumulator makes, and its body.
template <class A>
DEVICE void digits(const DigitsArgs &args) {
    using Word = typename A::Word;
    const Stage &stage = args.stage;
    const u32 degree = 1u << stage.log2_degree, masks = (stage.components - 1) * degree;
    const u32 job = block_index_y();
    const Word *const accumulator = pointer<const Word>(args.accumulators) + static_cast<u64>(job) * stage.components * degree;
    i8 *const out = pointer<i8>(args.digits) + static_cast<u64>(job) * masks * args.levels;
    u32 *const sums = pointer<u32>(args.sums) + static_cast<u64>(job) * (stage.steps + 1);
    const u32 first = block_index_x() * thread_count() + thread_index(), stride = block_count_x() * thread_count();
    for (u32 i = first; i < masks; i += stride) {
        store_digits(extracted<A>(accumulator, degree, masks, 0, i), args.digit, args.levels, out + static_cast<u64>(i) * args.levels);
    }
    if (first == 0) pointer<u64>(args.bodies)[job] = A::leave(accumulator[masks]);
    for (u32 i = first; i <= stage.steps; i += stride) sums[i] = 0;
}

DEVICE void sum_products(const SwitchArgs &args) {
    const u32 word = block_index_x() * thread_count() + thread_index();
    if (word >= args.words) return;
    const u32 each = (args.rows + block_count_y() - 1) / block_count_y();
    const u32 first = block_index_y() * each, last = first + each < args.rows ? first + each : args.rows;
    const u32 job = block_index_z() * SWITCH_JOBS;
    const u32 jobs = args.jobs - job < SWITCH_JOBS ? args.jobs - job : SWITCH_JOBS;
    const u32 *const key = pointer<const u32>(args.key);
    const i8 *const digits = pointer<const i8>(args.digits) + static_cast<u64>(job) * args.rows;
    u32 sums[SWITCH_JOBS] = {};
    for (u32 row = first; row < last; row++) {
        const u32 factor = key[static_cast<u64>(row) * args.words + word];
#pragma unroll
        for (u32 i = 0; i < SWITCH_JOBS; i++) {
            // A job that is not there does the first one's work, and nothing is added for it.
            const u64 at = static_cast<u64>(i < jobs ? i : 0) * args.rows + row;
            sums[i] += factor * static_cast<u32>(static_cast<i32>(digits[at]));
        }
    }
#pragma unroll
    for (u32 i = 0; i < SWITCH_JOBS; i++) {
        if (i < jobs) add_atomically(pointer<u32>(args.sums) + static_cast<u64>(job + i) * args.words + word, sums[i]);
    }
}

template <class Sample>
DEVICE void finish(const FinishArgs &args) {
    const u32 i = block_index_x() * thread_count() + thread_index(), job = block_index_y();
    if (i >= args.words) return;
    const u64 at = static_cast<u64>(job) * args.words + i;
    const u32 word = 0u - pointer<const u32>(args.sums)[at];
    const bool is_body = i + 1 == args.words;
    const u64 body = is_body ? pointer<const u64>(args.bodies)[job] : 0;
    if constexpr (sizeof(Sample) == 4) {
        pointer<u32>(args.samples)[at] = word + static_cast<u32>(body);
    } else {
        pointer<u64>(args.samples)[at] = field_add(torus32_to_field(word), body);
    }
}

#define ROTATION_ALONE(arithmetic, Arithmetic, k, blocks)                                 \
    KERNEL(rotate_##arithmetic##_k##k##_solo, RotateArgs, LAUNCH_BOUNDS(128, blocks)) {    \
        rotate_alone<Arithmetic, k>(args);                                                 \
    }
#define ROTATION_TOGETHER(arithmetic, Arithmetic, wait, WAIT)                              \
    KERNEL(rotate_##arithmetic##_k1_##wait, RotateArgs, LAUNCH_BOUNDS(320, 1)) {           \
        rotate_together<Arithmetic, WAIT>(args);                                           \
    }
// Groups wait by clusters where the device has them, else by flags.
#if defined(TOROID_SHIM)
#define ROTATION_OF_GROUP(arithmetic, Arithmetic)                         \
    ROTATION_TOGETHER(arithmetic, Arithmetic, cluster, Wait::CLUSTER)     \
    ROTATION_TOGETHER(arithmetic, Arithmetic, flags, Wait::FLAGS)
#elif TOROID_CLUSTERS
#define ROTATION_OF_GROUP(arithmetic, Arithmetic) ROTATION_TOGETHER(arithmetic, Arithmetic, cluster, Wait::CLUSTER)
#else
#define ROTATION_OF_GROUP(arithmetic, Arithmetic) ROTATION_TOGETHER(arithmetic, Arithmetic, flags, Wait::FLAGS)
#endif
#define KERNELS(arithmetic, Arithmetic)                                                     \
    KERNEL(load_##arithmetic, LoadArgs, LAUNCH_BOUNDS(384, 1)) { load<Arithmetic>(args); }  \
    KERNEL(start_##arithmetic, StartArgs, LAUNCH_BOUNDS(256, 1)) { start<Arithmetic>(args); } \
    KERNEL(digits_##arithmetic, DigitsArgs, LAUNCH_BOUNDS(256, 1)) { digits<Arithmetic>(args); } \
    ROTATION_ALONE(arithmetic, Arithmetic, 1, 3)                                            \
    ROTATION_ALONE(arithmetic, Arithmetic, 2, 2)                                            \
    ROTATION_OF_GROUP(arithmetic, Arithmetic)
#define WIDE_KERNELS(arithmetic, Arithmetic)                                                                 \
    KERNEL(circuit_##arithmetic, CircuitArgs, LAUNCH_BOUNDS(128, 2)) { make_rows<Arithmetic, 2>(args); }     \
    KERNEL(select_##arithmetic, SelectArgs, LAUNCH_BOUNDS(128, 2)) { select<Arithmetic, 2>(args); }          \
    KERNEL(gather_##arithmetic, GatherArgs, LAUNCH_BOUNDS(256, 1)) { gather<Arithmetic>(args); }

KERNELS(fft32, Fft32)
KERNELS(fft64, Fft64)
KERNELS(split32, Split32)
KERNELS(ntt64, Ntt64)
WIDE_KERNELS(fft64, Fft64)
WIDE_KERNELS(ntt64, Ntt64)

KERNEL(shift_digits, ShiftArgs, LAUNCH_BOUNDS(256, 1)) { shift(args); }
KERNEL(exponents_64, ExponentsArgs, LAUNCH_BOUNDS(256, 1)) { make_exponents(args); }
KERNEL(switch_sums, SwitchArgs, LAUNCH_BOUNDS(256, 1)) { sum_products(args); }
KERNEL(finish_32, FinishArgs, LAUNCH_BOUNDS(256, 1)) { finish<u32>(args); }
KERNEL(finish_64, FinishArgs, LAUNCH_BOUNDS(256, 1)) { finish<u64>(args); }

}  // namespace toroid
