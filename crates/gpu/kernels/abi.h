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
constexpr u32 MAX_ROWS = 18;
// A polynomial's points are an array of this many rows: level 4 of the tree of its transform has as many nodes.
constexpr u32 ROWS = 16;

// The most levels of the gadget of a bit's GGSW sample.
constexpr u32 MAX_LEVELS = 8;

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
// With k = 2, blocks alone can also rotate by the bits of wide functions, which differ from job to job.
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
    // Whether digits of odd coefficients are in (-B/2, B/2], so that those of random words have no mean together.
    u32 alternating;
    // u32 [jobs]: which of the GGSW samples of each step a job takes, or 0: the first.
    u64 sample;
    // How many there are.
    u32 samples;
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

// Wide functions (wide.h). All of them are over p; ARITHMETIC is fft64 or ntt64, and k = 2. "Samples" are LWE samples of k·N + 1 words.

// Kernel shift_digits: samples times 2^log2 become digits for a key switch. Blocks (x) share words, blocks (y) do one job.
struct ShiftArgs {
    // Field words [jobs][k·N + 1].
    u64 samples;
    // As in DigitsArgs.
    u64 digits;
    u64 bodies;
    u64 sums;
    u32 jobs;
    // k·N.
    u32 masks;
    u32 levels;
    u32 log2;
    // n.
    u32 steps;
    u32 reserved;
    Digit digit[MAX_ROWS];
};

// Kernel exponents_64: the sums of a key switch become exponents (the modulus switch that takes the mean of its errors off the body).
// A block does one job; its threads are a power of two, with two u64 of shared memory each.
struct ExponentsArgs {
    u64 sums;
    u64 bodies;
    // u32 [jobs][n], and [jobs]: by which X turns the test vector. 0 to 2N - 1, multiples of 2^log2_slots.
    u64 exponents;
    u64 exponent;
    // Added to the bodies.
    u64 addend;
    u32 jobs;
    // n.
    u32 steps;
    // Of 2N.
    u32 log2_order;
    u32 log2_slots;
};

// Kernels circuit_ARITHMETIC: what the extraction of a bit left becomes the rows of the bit's GGSW sample. Blocks (x) do a level each,
// blocks (y) a job.
struct CircuitArgs {
    // Accumulator words [jobs][k + 1][N]; coefficient i is for level i.
    u64 accumulators;
    // Switches between ring keys: those of the trace, from X -> X^(N+1) on, then those of the products with each secret polynomial.
    u64 key;
    u64 twiddles;
    u64 inverse;
    // Field words [jobs][component][level][k + 1][N].
    u64 rows;
    u32 jobs;
    u32 levels;
    // Half of each level of the gadget.
    u64 half_level[MAX_LEVELS];
    // Of the switches.
    Stage stage;
};

// Kernels select_ARITHMETIC: CMuxes of one level of each job's tree. Blocks (x) do a node each, blocks (y) a job.
struct SelectArgs {
    // Canonical words [tables][2·nodes][N], or 0; and u32 [jobs], the table of each job.
    u64 tables;
    u64 table;
    // Where there are no tables: accumulator words [jobs][2·nodes][k + 1][N].
    u64 from;
    // Accumulator words [jobs][nodes][k + 1][N].
    u64 to;
    // GGSW samples of this level's bit, and u32 [jobs], which of them each job takes.
    u64 key;
    u64 sample;
    u64 twiddles;
    u64 inverse;
    u32 jobs;
    u32 nodes;
    Stage stage;
};

// Kernels gather_ARITHMETIC: samples are sums of those that coefficient `index` of accumulators makes. Blocks (x) share words, blocks (y)
// do one sample.
struct GatherArgs {
    u64 accumulators;
    // u32 [count + 1]: the first accumulator of each sample, and the end of the last.
    u64 first;
    // Field words [count][k·N + 1]; where `from` is not 0, added to those there.
    u64 from;
    u64 samples;
    // u64 [count]: added to the bodies.
    u64 bodies;
    u32 count;
    u32 index;
    Stage stage;
};

static_assert(sizeof(Digit) == 16 && sizeof(Stage) == 376, "src/abi.rs states these sizes");
static_assert(sizeof(LoadArgs) == 416 && sizeof(StartArgs) == 416 && sizeof(RotateArgs) == 472, "src/abi.rs states these sizes");
static_assert(sizeof(DigitsArgs) == 704 && sizeof(SwitchArgs) == 40 && sizeof(FinishArgs) == 32, "src/abi.rs states these sizes");
static_assert(sizeof(ShiftArgs) == 344 && sizeof(ExponentsArgs) == 56 && sizeof(CircuitArgs) == 488, "src/abi.rs states these sizes");
static_assert(sizeof(SelectArgs) == 448 && sizeof(GatherArgs) == 424, "src/abi.rs states these sizes");

}  // namespace toroid
