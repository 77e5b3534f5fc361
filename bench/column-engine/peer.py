"""OpenFHE's functional bootstrapping of one column, as a line of JSON.

    peer.py BITS [--tables N]

The table is random, so are the messages, and every value of the ciphertexts' coefficients is checked. The number of threads is
that of the variable OMP_NUM_THREADS. Parameters are those of OpenFHE's own examples for so many bits.
"""

import argparse
import json
import random
import resource
import sys
import time

import openfhe as fhe

# Bits of a message: log2 of the ring degree, bits of a prime, factor of the coefficients, digits of a key switch.
PARAMETERS = {1: (15, 33, 1, 3), 8: (16, 47, 32, 4)}
FINE = 12


def clock():
    return time.perf_counter(), time.process_time()


class Watch:
    """Wall and processor seconds since the last question."""

    def __init__(self):
        self.last = clock()

    def lap(self):
        now = clock()
        wall, processor = now[0] - self.last[0], now[1] - self.last[1]
        self.last = now
        return {"wall_s": wall, "processor_s": processor}


def coefficients(values, bits, scale):
    if bits == 1:
        return [values[1], values[0] - values[1]]
    return fhe.GetHermiteTrigCoefficients(
        lambda m: values[m % len(values)], len(values), 1, scale
    )


def centred(x, modulus):
    x %= modulus
    return x - modulus if x > modulus // 2 else x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bits", type=int, choices=sorted(PARAMETERS))
    parser.add_argument("--tables", type=int, default=2)
    options = parser.parse_args()
    log2_degree, prime_bits, scale, digits = PARAMETERS[options.bits]
    degree, size = 1 << log2_degree, 1 << options.bits
    slots, modulus, fresh = degree // 2, 1 << prime_bits, 1 << 60
    tables = [[random.randrange(size) for _ in range(size)] for _ in range(options.tables)]
    factors = [coefficients(table, options.bits, scale) for table in tables]

    watch = Watch()
    budget = [3, 3]
    secret = fhe.SecretKeyDist.SPARSE_ENCAPSULATED
    depth = fhe.CryptoContext.GetFBTDepth(budget, factors[0], size, 1, secret)
    parameters = fhe.CCParamsCKKSRNS()
    parameters.SetSecretKeyDist(secret)
    parameters.SetSecurityLevel(fhe.SecurityLevel.HEStd_NotSet)
    parameters.SetScalingModSize(prime_bits)
    parameters.SetFirstModSize(prime_bits)
    parameters.SetScalingTechnique(fhe.ScalingTechnique.FIXEDMANUAL)
    parameters.SetNumLargeDigits(digits)
    parameters.SetBatchSize(slots)
    parameters.SetRingDim(degree)
    parameters.SetMultiplicativeDepth(depth)
    context = fhe.GenCryptoContext(parameters)
    for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "FHE"):
        context.Enable(getattr(fhe.PKESchemeFeature, feature))
    keys = context.KeyGen()
    context.EvalFBTSetup(
        factors[0], slots, size, size, modulus, keys.publicKey, [0, 0], budget, 0, 0, 1
    )
    setup = watch.lap()
    context.EvalBootstrapKeyGen(keys.secretKey, slots)
    context.EvalMultKeyGen(keys.secretKey)
    generation = watch.lap()

    messages = [random.randrange(size) for _ in range(degree)]
    elements = fhe.SchemeletRLWEMP.GetElementParams(keys.secretKey, depth)
    column = fhe.SchemeletRLWEMP.EncryptCoeff(messages, fresh, size, keys.secretKey, elements)
    fhe.SchemeletRLWEMP.ModSwitch(column, modulus, fresh)
    ciphertext = fhe.SchemeletRLWEMP.ConvertRLWEToCKKS(
        context, column, keys.publicKey, modulus, slots, depth
    )
    wrong, errors, laps = 0, [], []

    def check(result, table):
        nonlocal wrong
        polys = fhe.SchemeletRLWEMP.ConvertCKKSToRLWE(result, modulus)
        fine = fhe.SchemeletRLWEMP.DecryptCoeff(
            polys, modulus, size << FINE, keys.secretKey, elements, slots, degree
        )
        for found, message in zip(fine, messages):
            error = centred(found - (table[message] << FINE), size << FINE)
            wrong += abs(error) >= 1 << (FINE - 1)
            errors.append(error / (1 << FINE))

    watch.lap()
    alone = context.EvalFBT(ciphertext, factors[0], options.bits, elements.GetModulus(), scale, 0, 1)
    one = watch.lap()
    check(alone, tables[0])
    watch.lap()
    powers = context.EvalMVBPrecompute(
        ciphertext, factors[0], options.bits, elements.GetModulus(), 1
    )
    shared = watch.lap()
    for table, factor in zip(tables, factors):
        watch.lap()
        result = context.EvalMVB(powers, factor, options.bits, scale, 0, 1)
        laps.append(watch.lap())
        check(result, table)
    variance = sum(error * error for error in errors) / len(errors)
    json.dump(
        {
            "bits": options.bits,
            "degree": degree,
            "values": degree,
            "prime_bits": prime_bits,
            "depth": depth,
            "setup": setup,
            "keys": generation,
            "table": one,
            "shared": shared,
            "further": laps[-1],
            "checked": len(errors),
            "wrong": wrong,
            "sigma_steps": variance**0.5,
            "worst_steps": max(map(abs, errors)),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        },
        sys.stdout,
    )
    print()


if __name__ == "__main__":
    main()
