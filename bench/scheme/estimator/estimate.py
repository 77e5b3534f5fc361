"""Recomputes the security of every parameter set by the lattice-estimator, and compares it with what the set claims.

    python3 -m venv env && env/bin/pip install -r requirements.txt
    git clone https://github.com/malb/lattice-estimator && git -C lattice-estimator checkout COMMIT
    toroid params --json | env/bin/python estimate.py lattice-estimator > results.txt

COMMIT is the constant below. Binary uniform secrets, Gaussian noise, unlimited samples, cost model MATZOV; the minimum over the attacks
usvp, bdd, dual and dual_hybrid. All sets take some minutes of one core. A test compares what `results.txt` keeps with the sets. The exit status is 1 where a set claims more than its weakest key has.
"""

import argparse
import functools
import importlib.metadata
import json
import math
import pathlib
import subprocess
import sys

COMMIT = "27a581bb8e9d49f5e9e2db315bd48ac769d5f5f5"

# What it runs on.
PACKAGES = ["passagemath-standard-no-symbolics", "passagemath-symbolics"]

# The estimator cannot express larger dimensions at this noise: more dimensions with the same noise are no less secure.
LARGEST_DIMENSION = 4096


def keys(toroid_set):
    """What is encrypted under a set's keys: dimension and log2 of the noise's standard deviation over the torus."""
    dimension = toroid_set["glwe_dimension"] * toroid_set["ring_degree"]
    found = {
        (toroid_set["lwe_dimension"], toroid_set["log2_lwe_noise"]),
        (min(dimension, LARGEST_DIMENSION), toroid_set["log2_glwe_noise"]),
    }
    for stage in toroid_set.get("stages", []):
        if stage["log2_lwe_noise"] is not None:
            found.add((stage["samples"], stage["log2_lwe_noise"]))
    return sorted(found)


# Sets have keys in common.
@functools.cache
def security(estimator, dimension, log2_noise, log2_modulus):
    """log2 of the operations of the cheapest attack, and its name."""
    lwe, nd, reduction = estimator.LWE, estimator.ND, estimator.RC
    modulus = 2**log2_modulus
    parameters = lwe.Parameters(
        n=dimension,
        q=modulus,
        Xs=nd.Uniform(0, 1),
        Xe=nd.DiscreteGaussian(2.0 ** (log2_noise + log2_modulus)),
    )
    attacks = {
        "usvp": lwe.primal_usvp,
        "bdd": lwe.primal_bdd,
        "dual": lwe.dual,
        "dual_hybrid": lwe.dual_hybrid,
    }
    costs = {
        name: math.log2(attack(parameters, red_cost_model=reduction.MATZOV)["rop"])
        for name, attack in attacks.items()
    }
    weakest = min(costs, key=costs.get)
    return costs[weakest], weakest


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("checkout", type=pathlib.Path, help="folder of the lattice-estimator")
    arguments.add_argument("--set", action="append", help="only this set; may be repeated")
    arguments.add_argument("--any-commit", action="store_true", help="do not ask for the commit that the claims are from")
    given = arguments.parse_args()

    head = ["git", "-C", str(given.checkout), "rev-parse", "HEAD"]
    if not given.any_commit and subprocess.run(head, capture_output=True, text=True).stdout.strip() != COMMIT:
        sys.exit(f"{given.checkout} is not at commit {COMMIT}; --any-commit takes it all the same")
    sys.path.insert(0, str(given.checkout))
    import estimator

    sets = json.load(sys.stdin)["sets"]
    unknown = set(given.set or []) - {entry["name"] for entry in sets}
    if unknown:
        sys.exit(f"no set {', '.join(sorted(unknown))}")
    too_much = []
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    print(f"lattice-estimator {COMMIT if not given.any_commit else 'of another commit'}, {', '.join(versions)}")
    print(f"{'set':<12} {'dimension':>9} {'noise':>8} {'bits':>6} {'by':<12} {'claimed':>7}")
    for entry in sets:
        if entry["insecure"] or (given.set and entry["name"] not in given.set):
            continue
        log2_modulus = 32 if entry["modulus"] == "2^32" else 64
        for dimension, log2_noise in keys(entry):
            bits, attack = security(estimator, dimension, log2_noise, log2_modulus)
            claimed = entry["security_bits"]
            print(f"{entry['name']:<12} {dimension:>9} {log2_noise:>8} {bits:>6.1f} {attack:<12} {claimed:>7}", flush=True)
            # To the tenth that is shown.
            if round(bits, 1) < claimed:
                too_much.append(f"{entry['name']} claims {claimed} bits; {bits:.1f} at dimension {dimension}")
    if too_much:
        sys.exit("\n".join(too_much))


if __name__ == "__main__":
    main()
