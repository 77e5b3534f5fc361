// What the host hands to the kernels: one structure by value for each. `src/abi.rs` declares the same; both state the sizes.
//
// Words: "field words" are u64 modulo p = 2^64 - 2^32 + 1. "Accumulator words" are u32 for sets over the 32-bit torus, and u64 for
// those over p: modulo p in exact arithmetic, units of 2^-64 of the torus on the f64 path.
//
// A transform has S points: S = N/2 complex numbers on the f64 path, S = N field elements in exact arithmetic over p. Point
// polynomials are evaluated at the roots of X^S - w by halving: the node b of level d, of polynomials modulo X^(S/2^d) - w(d, b), has
// the twiddle s(d, b) with s^2 = w and the children w(d + 1, 2b) = s, w(d + 1, 2b + 1) = -s. Here w(0, 0) = i, or -1 in the field.
// A table of twiddles has S entries; entry 2^d + b is s(d, b), entry 0 is not used.
#pragma once

namespace toroid {

using u8 = unsigned char;
using i8 = signed char;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;

// The most rows of a GGSW sample.
constexpr u32 MAX_ROWS = 16;
// A polynomial's points are an array of this many rows: level 4 of the tree of its transform has as many nodes.
constexpr u32 ROWS = 16;

// One digit of a word: ((word + offset) >> shift) mod 2^log2_base, less half the base.
struct Digit {
    u64 offset;
    u32 shift;
    u32 log2_base;
};

// The ring and the gadgets of a stage.
struct Stage {
    u32 log2_degree;
    // k + 1.
    u32 components;
    // Of a GGSW sample.
    u32 rows;
    // n.
    u32 steps;
    // The component that each row takes a digit of, and which digit.
    u32 component[MAX_ROWS];
    Digit digit[MAX_ROWS];
};

// Kernels load_ARITHMETIC: `count` polynomials of a bootstrapping key become points. A block does one polynomial.
// Key: [step][row of the transform, 16][row of the GGSW sample][component][half][S/16] points; there are two halves in split arithmetic.
struct LoadArgs {
    // Field words [count][N]: the centred words of the key, in the order [step][row][component].
    u64 source;
    u64 key;
    u64 twiddles;
    // The number of the first polynomial.
    u64 first;
    u32 count;
    u32 reserved;
    Stage stage;
};

// Kernels start_ARITHMETIC: test vectors, rotated, become accumulators. Blocks (x) share words, blocks (y) do one job each.
struct StartArgs {
    // Canonical words [vectors][k + 1][N], u32 or u64.
    u64 vectors;
    // u32 [jobs]: the vector of each job, and the exponent by which X turns it, 0 to 2N - 1.
    u64 vector;
    u64 exponent;
    // Accumulator words [jobs][k + 1][N].
    u64 accumulators;
    u32 jobs;
    u32 reserved;
    Stage stage;
};

// Kernels rotate_ARITHMETIC_kK_{solo,cluster,flags}, K = k, 1 or 2; groups have k = 1 only: steps `from` to `to` of the blind rotations of all jobs.
// `group` blocks that follow one another do a job together, then the job that is as many further as there are groups: 1 (solo),
// a cluster of as many blocks, or blocks that wait for flags and so must all be resident.
struct RotateArgs {
    u64 accumulators;
    // u32 [jobs][n], 0 to 2N - 1.
    u64 exponents;
    u64 key;
    // u64 or complex [S]: of the transform and of its inverse (complex conjugates: the same table twice).
    u64 twiddles;
    u64 inverse;
    // Points [groups][GGSW rows + sums][S], for groups of more than one block. There is a sum for each component and half.
    u64 exchange;
    // u32 [groups][32], zero at the start, for flags.
    u64 flags;
    u32 jobs;
    u32 group;
    u32 from;
    u32 to;
    // How many of its rows of points a block transforms at once: a divisor of 16/group.
    u32 at_once;
    u32 reserved;
    Stage stage;
};

// Kernels digits_ARITHMETIC: accumulators become the digits of their extracted samples. Blocks (x) share words, blocks (y) do one job.
struct DigitsArgs {
    u64 accumulators;
    // i8 [jobs][k·N][t].
    u64 digits;
    // u64 [jobs]: the canonical word of each body.
    u64 bodies;
    // u32 [jobs][n + 1], which become zero.
    u64 sums;
    u32 jobs;
    // t.
    u32 levels;
    Digit digit[MAX_ROWS];
    Stage stage;
};

// Kernel switch_sums: sums += digits · key, modulo 2^32. Blocks (x) share the words of a sample, blocks (y) the rows of the key,
// blocks (z) the jobs, SWITCH_JOBS each.
struct SwitchArgs {
    u64 digits;
    // u32 [k·N·t][n + 1].
    u64 key;
    u64 sums;
    u32 jobs;
    // k·N·t.
    u32 rows;
    // n + 1.
    u32 words;
    u32 reserved;
};
constexpr u32 SWITCH_JOBS = 8;

// Kernels finish_{32,64}: sums become samples. Blocks (x) share words, blocks (y) do one job.
struct FinishArgs {
    u64 sums;
    u64 bodies;
    // Canonical words [jobs][n + 1], u32 or u64.
    u64 samples;
    u32 jobs;
    // n + 1.
    u32 words;
};

static_assert(sizeof(Digit) == 16 && sizeof(Stage) == 336, "src/abi.rs states these sizes");
static_assert(sizeof(LoadArgs) == 376 && sizeof(StartArgs) == 376 && sizeof(RotateArgs) == 416, "src/abi.rs states these sizes");
static_assert(sizeof(DigitsArgs) == 632 && sizeof(SwitchArgs) == 40 && sizeof(FinishArgs) == 32, "src/abi.rs states these sizes");

}  // namespace toroid
