// The kernels alone against products by definition, on fibers: check [FAULT]. It prints a line for each case and ends with 0 if all words
// are right. Built with sanitizers: buffers are exactly as long as the kernels may touch.
#include "../toroid.cu"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace toroid;

namespace {

shim::Random source{1};

u64 random_word() { return source.next(); }

u64 field_power(u64 base, u64 exponent) {
    u64 power = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) power = field_mul(power, base);
        base = field_mul(base, base);
    }
    return power;
}

// Twiddles of S points (abi.h), or their inverses; for complex ones the inverse is the conjugate, which kernels take themselves.
template <class A>
std::vector<typename A::Point> table(u32 points, bool inverse) {
    std::vector<typename A::Point> twiddles(points);
    const u64 order = (A::PARTS == 2 ? 4ull : 2ull) * points;
    // 7 generates the field's units.
    const u64 root = field_power(7, (P - 1) / order);
    // The exponent of w at each node.
    std::vector<u64> exponents(2 * points);
    exponents[1] = points;
    for (u32 node = 1; node < points; node++) {
        const u64 s = exponents[node] / 2;
        if constexpr (A::PARTS == 2) {
            const double angle = 2 * M_PI * static_cast<double>(s) / static_cast<double>(order);
            twiddles[node] = {std::cos(angle), std::sin(angle)};
        } else {
            twiddles[node] = field_power(root, inverse ? (order - s) % order : s);
        }
        exponents[2 * node] = s;
        exponents[2 * node + 1] = (s + order / 2) % order;
    }
    return twiddles;
}

struct Shape {
    u32 log2_degree, masks, levels, log2_base, steps;
};

struct Geometry {
    const char *wait;
    u32 group, at_once, threads;
};

template <class A>
struct Case {
    using Point = typename A::Point;
    using Word = typename A::Word;

    Shape shape;
    Stage stage{};
    u32 degree, components, points;
    std::vector<u64> key_words;
    std::vector<Word> accumulators;
    std::vector<u32> exponents;

    Case(const Shape &of, u32 jobs) : shape(of) {
        degree = 1u << of.log2_degree;
        components = of.masks + 1;
        points = A::PARTS == 2 ? degree / 2 : degree;
        stage.log2_degree = of.log2_degree;
        stage.components = components;
        stage.rows = of.levels * components;
        stage.steps = of.steps;
        u64 offset = 0;
        u32 bits = 8 * sizeof(Word);
        for (u32 level = 0; level < of.levels; level++, bits -= of.log2_base) offset += 1ull << (bits - 1);
        offset += 1ull << (bits - 1);
        for (u32 row = 0; row < stage.rows; row++) {
            stage.component[row] = row / of.levels;
            stage.digit[row] = {offset, static_cast<u32>(8 * sizeof(Word)) - of.log2_base * (row % of.levels + 1), of.log2_base};
        }
        key_words.resize(static_cast<size_t>(of.steps) * stage.rows * components * degree);
        for (u64 &word : key_words) word = sizeof(Word) == 4 ? field_of_signed(static_cast<i32>(random_word())) : random_word() % P;
        accumulators.resize(static_cast<size_t>(jobs) * components * degree);
        for (Word &word : accumulators) word = static_cast<Word>(random_word() % P);
        exponents.resize(static_cast<size_t>(jobs) * of.steps);
        for (u32 &exponent : exponents) exponent = random_word() % (2 * degree);
        // Steps that nothing turns, and the ends of what may turn.
        exponents[0] = 0;
        exponents.back() = 2 * degree - 1;
    }

    // False if threads wait for ever.
    bool run(const std::string &name, const Geometry &geometry, std::vector<Word> &words) const {
        const u32 jobs = accumulators.size() / (components * degree), columns = points / ROWS, padded_columns = columns + columns / 8;
        const u32 sums = components * A::HALVES, held = stage.rows > sums ? stage.rows : sums, groups = jobs > 1 ? jobs - 1 : 1;
        const auto twiddles = table<A>(points, false), inverse = A::PARTS == 2 ? twiddles : table<A>(points, true);
        std::vector<Point> key(static_cast<size_t>(shape.steps) * stage.rows * sums * points);
        std::vector<Point> exchange(static_cast<size_t>(groups) * (stage.rows + sums) * points);
        std::vector<u32> flags(groups * 32);
        const u32 polynomials = shape.steps * stage.rows * components;
        const LoadArgs load{address(key_words), address(key), address(twiddles), 0, polynomials, 0, stage};
        const shim::Launch loading{{polynomials, 1, 1}, 64, ROWS * padded_columns * sizeof(Point), 1, false, random_word()};
        if (!shim::run(*shim::kernel(("load_" + name).c_str()), &load, loading)) return false;
        words = accumulators;
        const std::string wait = geometry.wait;
        const RotateArgs args{address(words), address(exponents), address(key), address(twiddles), address(inverse), address(exchange),
                              address(flags), jobs, geometry.group, 0, shape.steps, geometry.at_once, 0, stage};
        const unsigned long shared =
            geometry.at_once * held * padded_columns * sizeof(Point) + static_cast<unsigned long>(components) * degree / geometry.group * sizeof(Word);
        const shim::Launch launch{{groups * geometry.group, 1, 1}, geometry.threads, shared, wait == "cluster" ? geometry.group : 1, wait == "flags", random_word()};
        const auto kernel = "rotate_" + name + "_k" + std::to_string(shape.masks) + "_" + wait;
        return shim::run(*shim::kernel(kernel.c_str()), &args, launch);
    }

    // By definition. Sums of the f64 path are exact here, and those over p come back to its torus.
    std::vector<Word> expected() const {
        std::vector<Word> words = accumulators;
        const u32 jobs = words.size() / (components * degree);
        std::vector<Word> difference(components * degree);
        std::vector<u64> sum(degree);
        for (u32 job = 0; job < jobs; job++) {
            Word *const own = &words[static_cast<size_t>(job) * components * degree];
            for (u32 step = 0; step < shape.steps; step++) {
                const u32 exponent = exponents[job * shape.steps + step];
                for (u32 i = 0; i < components * degree; i++) {
                    const u32 from = (i % degree + 2 * degree - exponent) % (2 * degree);
                    const Word turned = own[i - i % degree + from % degree];
                    difference[i] = A::sub(from < degree ? turned : A::neg(turned), own[i]);
                }
                for (u32 component = 0; component < components; component++) {
                    sum.assign(degree, 0);
                    for (u32 row = 0; row < stage.rows; row++) {
                        const u64 *const polynomial = &key_words[((static_cast<size_t>(step) * stage.rows + row) * components + component) * degree];
                        for (u32 i = 0; i < degree; i++) {
                            const u64 digit = field_of_signed(A::digit(difference[stage.component[row] * degree + i], stage.digit[row]));
                            for (u32 j = 0; j < degree; j++) {
                                const u64 product = field_mul(digit, polynomial[j]);
                                u64 &at = sum[(i + j) % degree];
                                at = i + j < degree ? field_add(at, product) : field_sub(at, product);
                            }
                        }
                    }
                    for (u32 i = 0; i < degree; i++) {
                        Word &word = own[component * degree + i];
                        if constexpr (sizeof(Word) == 4) {
                            word += static_cast<Word>(field_centered(sum[i]));
                        } else {
                            word = A::add(word, A::enter(sum[i]));
                        }
                    }
                }
            }
        }
        return words;
    }

    template <class T>
    static u64 address(const std::vector<T> &of) {
        return reinterpret_cast<u64>(of.data());
    }
};

template <class Word>
double distance(Word a, Word b) {
    const Word difference = a - b;
    return sizeof(Word) == 4 ? std::abs(static_cast<double>(static_cast<i32>(difference)))
                             : std::abs(static_cast<double>(static_cast<i64>(difference)));
}

template <class Word>
bool report(const char *name, const Geometry &geometry, u32 log2_degree, const std::vector<Word> &found, const std::vector<Word> &expected, double tolerance, bool ended) {
    size_t wrong = 0;
    for (size_t i = 0; i < expected.size(); i++) wrong += ended && distance(found[i], expected[i]) <= tolerance ? 0 : 1;
    std::printf("%s %s, group of %u, N = 2^%u: %s, %zu of %zu words wrong\n", name, geometry.wait, geometry.group, log2_degree, ended ? "ended" : "hung", wrong,
                expected.size());
    return wrong == 0;
}

template <class A>
bool check(const char *name, const Shape &shape, double tolerance, std::initializer_list<Geometry> geometries) {
    const Case<A> of(shape, 3);
    const auto expected = of.expected();
    bool right = true;
    for (const Geometry &geometry : geometries) {
        std::vector<typename A::Word> found;
        const bool ended = of.run(name, geometry, found);
        right &= report(name, geometry, shape.log2_degree, found, expected, tolerance, ended);
    }
    return right;
}

// The largest products of halves that sets over the 32-bit torus can make: every digit -B/2, every half of a key's word ±2^15, at the
// degree and gadget of `paper`. With all coefficients equal, coefficient t of a product is d·w·(2t + 2 - N).
bool check_extremes(i32 word) {
    Case<Split32> of({14, 1, 5, 6, 1}, 1);
    // All digits of -2x are -32 for this x, and X^N = -1 makes the difference -2x.
    u32 x = 0;
    for (u32 level = 1; level <= 5; level++) x += 1u << (36 - 6 * level);
    of.accumulators.assign(of.accumulators.size(), x);
    of.exponents[0] = of.degree;
    of.key_words.assign(of.key_words.size(), field_of_signed(word));
    std::vector<u32> expected(of.accumulators.size());
    for (u32 i = 0; i < expected.size(); i++) {
        const i64 ones = 2 * static_cast<i64>(i % of.degree) + 2 - static_cast<i64>(of.degree);
        expected[i] = x + static_cast<u32>(-32 * 10 * ones * word);
    }
    const Geometry geometry{"cluster", 16, 1, 64};
    std::vector<u32> found;
    const bool ended = of.run("split32", geometry, found);
    return report("split32 at the extremes", geometry, 14, found, expected, 0, ended);
}

}  // namespace

int main(int count, char **arguments) {
    if (count > 1) shim::fault() = static_cast<u32>(std::atoi(arguments[1]));
    const Geometry solo{"solo", 1, 16, 64};
    bool right = true;
    // Every shape of the rows: 8, 16, 32, 64 and 128 entries.
    right &= check<Split32>("split32", {8, 1, 3, 6, 3}, 0, {solo, {"cluster", 4, 2, 96}, {"flags", 2, 4, 64}, {"cluster", 8, 1, 32}});
    right &= check<Split32>("split32", {8, 2, 3, 7, 2}, 0, {solo});
    right &= check<Fft32>("fft32", {9, 1, 3, 6, 3}, 0, {solo, {"cluster", 2, 8, 64}});
    right &= check<Ntt64>("ntt64", {7, 2, 2, 13, 2}, 0, {solo});
    right &= check<Ntt64>("ntt64", {9, 1, 2, 13, 3}, 0, {solo, {"cluster", 8, 1, 64}});
    // One step: a digit that rounding moves makes random keys another product. f64 rounds the key to 53 bits.
    right &= check<Fft64>("fft64", {10, 1, 2, 13, 1}, 0x1p34, {solo, {"flags", 4, 4, 64}});
    if (count == 1) {
        right &= check<Ntt64>("ntt64", {11, 1, 1, 20, 1}, 0, {{"flags", 4, 2, 64}});
        for (const i32 word : {0x7fff8000, -0x7fffffff - 1, 0x7fff7fff}) right &= check_extremes(word);
    }
    return right ? 0 : 1;
}
