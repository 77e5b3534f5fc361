// The kernels alone against products by definition, on fibers: check [FAULT]. It prints a line for each case and ends with 0 if all words
// are right. Built with sanitizers: buffers are exactly as long as the kernels may touch.
#include "../toroid.cu"

#include <algorithm>
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
    // GGSW samples of each step.
    u32 samples = 1;
    // Switches between ring keys have no rows of the body.
    bool masks_alone = false;
    bool alternating = false;
};

template <class T>
u64 address(const std::vector<T> &of) {
    return reinterpret_cast<u64>(of.data());
}

struct Geometry {
    const char *wait;
    u32 group, at_once, threads;
};

// GGSW samples in a shape, and products with them.
template <class A>
struct Products {
    using Point = typename A::Point;
    using Word = typename A::Word;

    Shape shape;
    Stage stage{};
    u32 degree, components, points;
    std::vector<u64> key_words;
    std::vector<Point> twiddles, inverse, key;

    explicit Products(const Shape &of) : shape(of) {
        degree = 1u << of.log2_degree;
        components = of.masks + 1;
        points = A::PARTS == 2 ? degree / 2 : degree;
        stage.log2_degree = of.log2_degree;
        stage.components = components;
        stage.rows = of.levels * (of.masks_alone ? of.masks : components);
        stage.steps = of.steps;
        u64 offset = 0;
        u32 bits = 8 * sizeof(Word);
        for (u32 level = 0; level < of.levels; level++, bits -= of.log2_base) offset += 1ull << (bits - 1);
        offset += 1ull << (bits - 1);
        for (u32 row = 0; row < stage.rows; row++) {
            stage.component[row] = row / of.levels;
            stage.digit[row] = {offset, static_cast<u32>(8 * sizeof(Word)) - of.log2_base * (row % of.levels + 1), of.log2_base};
        }
        key_words.resize(static_cast<size_t>(of.steps) * of.samples * stage.rows * components * degree);
        for (u64 &word : key_words) word = sizeof(Word) == 4 ? field_of_signed(static_cast<i32>(random_word())) : random_word() % P;
        twiddles = table<A>(points, false);
        inverse = A::PARTS == 2 ? twiddles : table<A>(points, true);
    }

    u32 sums() const { return components * A::HALVES; }
    u32 padded_columns() const { return points / ROWS + points / ROWS / 8; }
    // Shared memory of the points of `rows` rows.
    unsigned long shared(u32 rows) const { return static_cast<unsigned long>(rows) * std::max(stage.rows, sums()) * padded_columns() * sizeof(Point); }

    bool load(const std::string &name) {
        key.assign(static_cast<size_t>(shape.steps) * shape.samples * stage.rows * sums() * points, Point{});
        const u32 polynomials = shape.steps * shape.samples * stage.rows * components;
        const LoadArgs args{address(key_words), address(key), address(twiddles), 0, polynomials, 0, stage};
        const shim::Launch launch{{polynomials, 1, 1}, 64, ROWS * padded_columns() * sizeof(Point), 1, false, random_word()};
        return shim::run(*shim::kernel(("load_" + name).c_str()), &args, launch);
    }

    Digit digit_at(u32 row, u32 index) const {
        Digit digit = stage.digit[row];
        if (shape.alternating && index % 2 == 1) {
            for (u32 level = 1; level <= shape.levels; level++) digit.offset -= 1ull << (8 * sizeof(Word) - level * shape.log2_base);
        }
        return digit;
    }

    // own += sample number `number` times the digits of `factor`, by definition. Sums of the f64 path are exact here, and those over p
    // come back to its torus.
    void add_product(size_t number, const std::vector<Word> &factor, Word *own) const {
        std::vector<u64> sum(degree);
        for (u32 component = 0; component < components; component++) {
            sum.assign(degree, 0);
            for (u32 row = 0; row < stage.rows; row++) {
                const u64 *const polynomial = &key_words[((number * stage.rows + row) * components + component) * degree];
                for (u32 i = 0; i < degree; i++) {
                    const Digit of = digit_at(row, i);
                    const Field field{of.offset, of.shift, of.log2_base, of.offset == stage.digit[row].offset ? 0u : 1u};
                    const u64 digit = field_of_signed(A::digit(factor[stage.component[row] * degree + i], field));
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

    std::vector<Word> random_words(size_t count) const {
        std::vector<Word> words(count);
        for (Word &word : words) word = static_cast<Word>(random_word() % P);
        return words;
    }
};

template <class A>
struct Case : Products<A> {
    using Point = typename A::Point;
    using Word = typename A::Word;
    using Products<A>::shape, Products<A>::stage, Products<A>::degree, Products<A>::components, Products<A>::points;

    std::vector<Word> accumulators;
    std::vector<u32> exponents, sample;

    Case(const Shape &of, u32 jobs) : Products<A>(of) {
        accumulators = this->random_words(static_cast<size_t>(jobs) * components * degree);
        exponents.resize(static_cast<size_t>(jobs) * of.steps);
        for (u32 &exponent : exponents) exponent = random_word() % (2 * degree);
        // Steps that nothing turns, and the ends of what may turn.
        exponents[0] = 0;
        exponents.back() = 2 * degree - 1;
        for (u32 job = 0; job < jobs; job++) sample.push_back((job + 1) % of.samples);
    }

    // False if threads wait for ever.
    bool run(const std::string &name, const Geometry &geometry, std::vector<Word> &words) {
        const u32 jobs = sample.size(), groups = jobs > 1 ? jobs - 1 : 1;
        std::vector<Point> exchange(static_cast<size_t>(groups) * (stage.rows + this->sums()) * points);
        std::vector<u32> flags(groups * 32);
        if (!this->load(name)) return false;
        words = accumulators;
        const std::string wait = geometry.wait;
        const RotateArgs args{address(words), address(exponents), address(this->key), address(this->twiddles), address(this->inverse), address(exchange),
                              address(flags), jobs, geometry.group, 0, shape.steps, geometry.at_once, shape.alternating,
                              shape.samples > 1 ? address(sample) : 0, shape.samples, 0, stage};
        const unsigned long shared =
            this->shared(geometry.at_once) + static_cast<unsigned long>(components) * degree / geometry.group * sizeof(Word);
        const shim::Launch launch{{groups * geometry.group, 1, 1}, geometry.threads, shared, wait == "cluster" ? geometry.group : 1, wait == "flags", random_word()};
        const auto kernel = "rotate_" + name + "_k" + std::to_string(shape.masks) + "_" + wait;
        return shim::run(*shim::kernel(kernel.c_str()), &args, launch);
    }

    std::vector<Word> expected() const {
        std::vector<Word> words = accumulators;
        std::vector<Word> difference(components * degree);
        for (u32 job = 0; job < sample.size(); job++) {
            Word *const own = &words[static_cast<size_t>(job) * components * degree];
            for (u32 step = 0; step < shape.steps; step++) {
                const u32 exponent = exponents[job * shape.steps + step];
                for (u32 i = 0; i < components * degree; i++) {
                    const u32 from = (i % degree + 2 * degree - exponent) % (2 * degree);
                    const Word turned = own[i - i % degree + from % degree];
                    difference[i] = A::sub(from < degree ? turned : A::neg(turned), own[i]);
                }
                this->add_product(static_cast<size_t>(step) * shape.samples + sample[job], difference, own);
            }
        }
        return words;
    }
};

template <class Word>
double distance(Word a, Word b) {
    const Word difference = a - b;
    return sizeof(Word) == 4 ? std::abs(static_cast<double>(static_cast<i32>(difference)))
                             : std::abs(static_cast<double>(static_cast<i64>(difference)));
}

template <class Word>
bool report(const std::string &what, const std::vector<Word> &found, const std::vector<Word> &expected, double tolerance, bool ended) {
    size_t wrong = 0;
    for (size_t i = 0; i < expected.size(); i++) wrong += ended && distance(found[i], expected[i]) <= tolerance ? 0 : 1;
    std::printf("%s: %s, %zu of %zu words wrong\n", what.c_str(), ended ? "ended" : "hung", wrong, expected.size());
    return wrong == 0;
}

std::string described(const std::string &name, const Geometry &geometry, u32 log2_degree) {
    return name + " " + geometry.wait + ", group of " + std::to_string(geometry.group) + ", N = 2^" + std::to_string(log2_degree);
}

template <class A>
bool check(const char *name, const Shape &shape, double tolerance, std::initializer_list<Geometry> geometries) {
    Case<A> of(shape, 3);
    const auto expected = of.expected();
    bool right = true;
    for (const Geometry &geometry : geometries) {
        std::vector<typename A::Word> found;
        const bool ended = of.run(name, geometry, found);
        right &= report(described(name, geometry, shape.log2_degree), found, expected, tolerance, ended);
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
    return report(described("split32 at the extremes", geometry, 14), found, expected, 0, ended);
}

// The rows of GGSW samples from what extractions left: a trace over the automorphisms and products with the secret polynomials.
bool check_circuit(u32 log2_degree) {
    constexpr u32 K = 2, JOBS = 2, LEVELS = 3;
    Products<Ntt64> switches({log2_degree, K, 2, 9, log2_degree + K, 1, true});
    const u32 degree = switches.degree, words = (K + 1) * degree;
    const auto accumulators = switches.random_words(static_cast<size_t>(JOBS) * words);
    std::vector<u64> rows(static_cast<size_t>(JOBS) * (K + 1) * LEVELS * words), expected(rows.size());
    CircuitArgs args{address(accumulators), 0, address(switches.twiddles), address(switches.inverse), address(rows), JOBS, LEVELS, {}, switches.stage};
    for (u32 level = 0; level < LEVELS; level++) args.half_level[level] = random_word() % P;
    for (u32 job = 0; job < JOBS; job++) {
        for (u32 level = 0; level < LEVELS; level++) {
            const auto row = [&](u32 component) { return &expected[static_cast<size_t>((job * (K + 1) + component) * LEVELS + level) * words]; };
            std::vector<u64> sample(words), moved(words);
            for (u32 i = 0; i < words; i++) {
                const u32 index = i % degree, from = index + level;
                const u64 word = accumulators[static_cast<size_t>(job) * words + i - index + from % degree];
                sample[i] = from < degree ? field_neg(word) : word;
            }
            sample[K * degree] = field_add(sample[K * degree], args.half_level[level]);
            for (u64 &word : sample) word = field_mul(word, field_power(degree, P - 2));
            for (u32 depth = 0; depth < log2_degree; depth++) {
                for (u32 i = 0; i < words; i++) {
                    const u32 at = i % degree * ((degree >> depth) + 1) % (2 * degree);
                    moved[i - i % degree + at % degree] = at < degree ? sample[i] : field_neg(sample[i]);
                }
                for (u32 i = K * degree; i < words; i++) sample[i] = field_add(sample[i], moved[i]);
                switches.add_product(depth, moved, sample.data());
            }
            std::copy(sample.begin(), sample.end(), row(K));
            for (u32 secret = 0; secret < K; secret++) {
                std::copy(sample.begin() + K * degree, sample.end(), row(secret) + secret * degree);
                switches.add_product(log2_degree + secret, sample, row(secret));
            }
        }
    }
    bool ended = switches.load("ntt64");
    args.key = address(switches.key);
    const shim::Launch launch{{LEVELS, JOBS, 1}, 96, switches.shared(ROWS) + (words + degree) * sizeof(u64), 1, false, random_word()};
    ended = ended && shim::run(*shim::kernel("circuit_ntt64"), &args, launch);
    return report("circuit_ntt64, N = 2^" + std::to_string(log2_degree), rows, expected, 0, ended);
}

// Two levels of trees of CMuxes: from tables, then from accumulators.
template <class A>
bool check_select(const std::string &name, const Shape &shape, double tolerance) {
    using Word = typename A::Word;
    constexpr u32 JOBS = 3, TABLES = 2;
    Products<A> bits(shape);
    const u32 degree = bits.degree, components = bits.components, words = components * degree, body = words - degree;
    std::vector<u64> tables(static_cast<size_t>(TABLES) * 4 * degree);
    for (u64 &word : tables) word = random_word() % P;
    const std::vector<u32> table{1, 0, 1}, sample{1, 1, 0};
    bool ended = bits.load(name), right = true;
    std::vector<Word> from(static_cast<size_t>(JOBS) * 4 * words);
    for (u32 job = 0; job < JOBS; job++) {
        for (u32 i = 0; i < 4 * degree; i++) {
            from[(job * 4 + i / degree) * words + body + i % degree] = A::enter(tables[table[job] * 4 * degree + i]);
        }
    }
    for (u32 level = 0, nodes = 2; level < shape.steps; level++, nodes /= 2) {
        std::vector<Word> to(static_cast<size_t>(JOBS) * nodes * words), expected(to.size()), difference(words);
        for (u32 job = 0; job < JOBS; job++) {
            for (u32 node = 0; node < nodes; node++) {
                const Word *const low = &from[static_cast<size_t>(job * nodes + node) * 2 * words], *const high = low + words;
                Word *const own = &expected[static_cast<size_t>(job * nodes + node) * words];
                for (u32 i = 0; i < words; i++) difference[i] = A::sub(high[i], low[i]);
                std::copy(low, low + words, own);
                bits.add_product(static_cast<size_t>(level) * shape.samples + sample[job], difference, own);
            }
        }
        const u64 key = address(bits.key) + sizeof(typename A::Point) * level * shape.samples * bits.stage.rows * bits.sums() * bits.points;
        const SelectArgs args{level == 0 ? address(tables) : 0, address(table), level == 0 ? 0 : address(from), address(to), key, address(sample),
                              address(bits.twiddles), address(bits.inverse), JOBS, nodes, bits.stage};
        const shim::Launch launch{{nodes, JOBS, 1}, 96, bits.shared(ROWS), 1, false, random_word()};
        ended = ended && shim::run(*shim::kernel(("select_" + name).c_str()), &args, launch);
        right &= report("select_" + name + ", level " + std::to_string(level), to, expected, tolerance, ended);
        from = expected;
    }
    return right;
}

bool check_exponents(u32 log2_order, u32 log2_slots) {
    constexpr u32 JOBS = 3, STEPS = 700;
    const u32 shift = 64 - log2_order + log2_slots;
    std::vector<u32> sums(JOBS * (STEPS + 1)), exponents(JOBS * STEPS), exponent(JOBS), expected;
    for (u32 &word : sums) word = random_word();
    // Errors of about half a step, whose sum takes more than 64 bits.
    for (u32 i = 0; i < STEPS; i++) {
        sums[i] = 0u - ((1u << (shift - 33)) - 1);
        sums[STEPS + 1 + i] = 0u - ((1u << (shift - 33)) + 1);
    }
    std::vector<u64> bodies(JOBS);
    for (u64 &body : bodies) body = random_word() % P;
    const u64 addend = random_word() % P;
    for (u32 job = 0; job < JOBS; job++) {
        const u32 *const own = &sums[job * (STEPS + 1)];
        __int128 errors = 0;
        for (u32 i = 0; i < STEPS; i++) {
            const u64 word = torus32_to_field(0u - own[i]), to = (word >> (shift - 1)) + 1;
            errors += static_cast<i64>(word - (to / 2 << shift));
            expected.push_back((to / 2 << log2_slots) % (1u << log2_order));
        }
        const u64 word = field_add(field_add(torus32_to_field(0u - own[STEPS]), bodies[job]), addend);
        const u64 body = (word - static_cast<u64>(errors >> 1)) >> shift << log2_slots;
        expected.push_back(((1ull << log2_order) - body) % (1u << log2_order));
    }
    const ExponentsArgs args{address(sums), address(bodies), address(exponents), address(exponent), addend, JOBS, STEPS, log2_order, log2_slots};
    const shim::Launch launch{{JOBS, 1, 1}, 64, 64 * 16, 1, false, random_word()};
    const bool ended = shim::run(*shim::kernel("exponents_64"), &args, launch);
    std::vector<u32> found;
    for (u32 job = 0; job < JOBS; job++) {
        for (u32 i = 0; i < STEPS; i++) found.push_back(exponents[job * STEPS + i] & ((1u << log2_order) - 1));
        found.push_back(exponent[job]);
    }
    return report("exponents_64 of 2^" + std::to_string(log2_order - log2_slots), found, expected, 0, ended);
}

// Samples to digits, and accumulators to sums of samples.
bool check_samples() {
    constexpr u32 K = 2, JOBS = 2, LEVELS = 4, LOG2 = 7, STEPS = 30;
    const Products<Ntt64> of({7, K, LEVELS, 3, 1});
    const u32 degree = of.degree, masks = K * degree, words = masks + degree;
    const auto samples = of.random_words(JOBS * (masks + 1));
    std::vector<i8> digits(JOBS * masks * LEVELS);
    std::vector<u64> bodies(JOBS), shifted, expected;
    std::vector<u32> sums(JOBS * (STEPS + 1), 1);
    ShiftArgs shift{address(samples), address(digits), address(bodies), address(sums), JOBS, masks, LEVELS, LOG2, STEPS, 0, {}};
    std::copy(of.stage.digit, of.stage.digit + LEVELS, shift.digit);
    bool ended = shim::run(*shim::kernel("shift_digits"), &shift, {{2, JOBS, 1}, 96, 0, 1, false, random_word()});
    for (u32 job = 0; job < JOBS; job++) {
        for (u32 i = 0; i <= masks; i++) {
            const u64 word = field_mul(samples[job * (masks + 1) + i], 1 << LOG2);
            shifted.push_back(i < masks ? 0 : bodies[job]);
            expected.push_back(i < masks ? 0 : word);
            for (u32 level = 0; level < LEVELS && i < masks; level++) {
                shifted.push_back(static_cast<u64>(digits[(job * masks + i) * LEVELS + level]));
                expected.push_back(static_cast<u64>(static_cast<i64>(digit_of(field_to_torus(word), field_of(of.stage.digit[level], false)))));
            }
        }
    }
    for (const u32 sum : sums) {
        shifted.push_back(sum);
        expected.push_back(0);
    }
    bool right = report("shift_digits", shifted, expected, 0, ended);

    const std::vector<u32> first{0, 2, 2, 3};
    const auto accumulators = of.random_words(3 * words), added = of.random_words(3);
    for (const bool fresh : {true, false}) {
        const u32 index = fresh ? 0 : 5;
        const auto from = of.random_words(3 * (masks + 1));
        std::vector<u64> found(from.size()), sum = fresh ? std::vector<u64>(from.size()) : from;
        for (u32 sample = 0; sample < 3; sample++) {
            u64 *const own = &sum[sample * (masks + 1)];
            own[masks] = field_add(own[masks], added[sample]);
            for (u32 number = first[sample]; number < first[sample + 1]; number++) {
                const u64 *const accumulator = &accumulators[number * words];
                for (u32 i = 0; i < masks; i++) {
                    const u32 j = i % degree;
                    const u64 word = accumulator[i - j + (degree + index - j) % degree];
                    own[i] = j <= index ? field_add(own[i], word) : field_sub(own[i], word);
                }
                own[masks] = field_add(own[masks], accumulator[masks + index]);
            }
        }
        const GatherArgs args{address(accumulators), address(first), fresh ? 0 : address(from), address(found), address(added), 3, index, of.stage};
        ended = shim::run(*shim::kernel("gather_ntt64"), &args, {{(masks + 1 + 95) / 96, 3, 1}, 96, 0, 1, false, random_word()});
        right &= report("gather_ntt64", found, sum, 0, ended);
    }
    return right;
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
    // Keys that differ from job to job, as those of bits do.
    right &= check<Ntt64>("ntt64", {7, 2, 3, 6, 2, 3, false, true}, 0, {solo});
    right &= check<Fft64>("fft64", {8, 2, 2, 9, 1, 2, false, true}, 0x1p34, {solo});
    right &= check_select<Ntt64>("ntt64", {7, 2, 3, 6, 2, 2, false, true}, 0);
    right &= check_select<Fft64>("fft64", {8, 2, 2, 9, 1, 2, false, true}, 0x1p34);
    right &= check_circuit(7);
    right &= check_exponents(11, 2);
    right &= check_exponents(11, 0);
    right &= check_samples();
    if (count == 1) {
        right &= check<Ntt64>("ntt64", {11, 1, 1, 20, 1}, 0, {{"flags", 4, 2, 64}});
        for (const i32 word : {0x7fff8000, -0x7fffffff - 1, 0x7fff7fff}) right &= check_extremes(word);
    }
    return right ? 0 : 1;
}
