"""Makes cyclotomic_products.txt, products in Z_q[x]/Phi_m(x) by FLINT.

    pip install python-flint
    python3 cyclotomic_products.py > cyclotomic_products.txt

A line has m, q, a seed, and the FNV-1a hash of 64 bits over a·b mod Phi_m, each coefficient as four bytes,
little-endian. a and b have deg(Phi_m) words each, and word i (from 1) is the splitmix64 of the seed and i, modulo q; b's
seed is the complement of a's. The last column is the same hash over the remainder modulo Phi_m of the polynomial of
3m + 1 words with a's seed.
"""

from flint import fmpz, fmpz_poly, nmod_poly

MASK = (1 << 64) - 1
INDICES = [1, 2, 3, 4, 7, 9, 12, 15, 45, 105, 128, 210, 257, 385, 1155, 1285, 2310, 4369, 8191, 21845, 32767, 65535]


def splitmix64(seed, i):
    z = (seed + i * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def words(length, seed, q):
    return [splitmix64(seed, i) % q for i in range(1, length + 1)]


def fnv1a(polynomial, length):
    value = 0xCBF29CE484222325
    for i in range(length):
        for byte in int(polynomial[i]).to_bytes(4, "little"):
            value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def prime_below(bound, step):
    q = (bound - 2) // step * step + 1
    while not fmpz(q).is_prime():
        q -= step
    return q


for m in INDICES:
    phi = fmpz_poly.cyclotomic(m)
    degree = phi.degree()
    step = 256 * m if 256 * m * 64 < 1 << 32 else m
    for bits in (30, 32):
        q = prime_below(1 << bits, step)
        modulus = nmod_poly([int(c) % q for c in phi.coeffs()], q)
        seed = 1000 * m + bits
        a = nmod_poly(words(degree, seed, q), q)
        b = nmod_poly(words(degree, ~seed & MASK, q), q)
        long = nmod_poly(words(3 * m + 1, seed, q), q)
        product = fnv1a(a * b % modulus, degree)
        remainder = fnv1a(long % modulus, degree)
        print(m, q, seed, f"{product:016x}", f"{remainder:016x}")
