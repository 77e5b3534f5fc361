"""The security that toroid-rns takes for granted, asked again of the lattice-estimator.

    env/bin/python rns.py lattice-estimator

Environment, checkout and commit are those of estimate.py. Uniform ternary secrets at the largest Q·P that `search::largest_modulus`
allows, and the sparse secret of weight 32 at the largest modulus that it is used at; Gaussian noise of 3.2 units, unlimited
samples, cost model MATZOV. For sparse secrets the estimator's dual_hybrid finds no attack at all, so that primal_hybrid decides.
It takes ten minutes. The exit status is 1 where anything has less than 128 bits.
"""

import math
import sys

SIGMA = 3.2
DENSE = ["primal_usvp", "primal_bdd", "dual_hybrid"]
SPARSE = ["primal_usvp", "primal_hybrid"]


def main():
    sys.path.insert(0, sys.argv[1])
    from estimator import LWE, ND, RC

    weakest = math.inf
    for degree, log2_modulus, weight in [
        (1 << 15, 864, None),
        (1 << 16, 1736, None),
        (1 << 15, 110, 32),
        (1 << 16, 110, 32),
    ]:
        half = (weight or 0) // 2
        secret = ND.SparseTernary(half, half, degree) if weight else ND.Uniform(-1, 1)
        parameters = LWE.Parameters(
            n=degree, q=2**log2_modulus, Xs=secret, Xe=ND.DiscreteGaussian(SIGMA)
        )
        for attack in SPARSE if weight else DENSE:
            cost = getattr(LWE, attack)(parameters, red_cost_model=RC.MATZOV)["rop"]
            bits = math.log2(cost)
            weakest = min(weakest, bits)
            kind = f"weight {weight}" if weight else "ternary"
            print(f"N = {degree}, 2^{log2_modulus}, {kind}, {attack}: {bits:.1f}", flush=True)
    sys.exit(weakest < 128)


if __name__ == "__main__":
    main()
