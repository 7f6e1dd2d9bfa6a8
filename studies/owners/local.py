"""Owners who trust nobody, simulated over the same pure functions as the platform's.

    python -m studies.owners.local variance | synthetic | adult | aggregators | million [--seeds 56 18 767] [--runs 5]

`variance`: of one of K beside PrivUnit2's. `synthetic`: the paper's set, one round. `adult`: one row an owner.
`aggregators`: the same owners, in shares, with the noise of both aggregators. `million`: how long 1e6 owners take. Test
sets are held out of everything. Nothing here is certified: splits are seeded.
"""

from __future__ import annotations

import argparse
import resource
import time
from decimal import Decimal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from accountant.noise import shares
from accountant.noise.mechanisms import DiscreteGaussian
from benchmarks.datasets import load, schema_of
from dpserve_verify.privacy.budget import Budget
from local.reports.coordinates import Coordinates
from local.reports.definition import Definition
from local.reports.directions import directions, gains, scores
from local.reports.groups import Groups
from local.reports.learning import CANDIDATES, coordinates_for, ensemble_of, favoured_for, learn_from_reports
from local.reports.shared import Aggregator, SharedDefinition, multiplier_for
from local.reports.shared_learning import groups_for, learn_shared
from local.reports.statistics import own_vectors
from models.features.features import NumericFeature, encode_columns
from studies.owners.local_mechanisms import privunit_gain
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

Floats = NDArray[np.float64]
CHUNK = 4096
EPSILONS = (0.5, 1.0, 2.0, 5.0)


def variance() -> None:
    print("variance of one of K over PrivUnit2's, best m; a report has log2 K bits")
    for dimension in (9, 21, 51):
        for epsilon in (0.5, 1, 2, 5, 7):
            own = [
                f"K={k} {(privunit_gain(dimension, epsilon) / gains(dimension, k, epsilon).max()) ** 2:.2f}"
                for k in (2, 8, 64, 512)
            ]
            print(f"D {dimension:>3} epsilon {epsilon:>3}: {'; '.join(own)}", flush=True)


def defined(
    learner: str, coordinates: Coordinates, epsilon: float, owners: int, classes: tuple[str, str]
) -> Definition:
    """A campaign as the platform would define it, but for names and digests."""
    return Definition(
        "simulated", "owners", "model", learner, Decimal(str(epsilon)), owners, owners, "label", classes,
        coordinates.features, coordinates, "0" * 64, np.random.bytes(32).hex(), CANDIDATES,
        favoured_for(coordinates, epsilon),
    )  # fmt: skip


def simulate(definition: Definition, own: Floats) -> NDArray[np.int64]:
    """Every owner's report (owners,), drawn as an owner draws it."""
    seed, reports = bytes.fromhex(definition.seed), []
    for start in range(0, len(own), CHUNK):
        numbers = np.arange(start, min(start + CHUNK, len(own)))
        vectors = directions(seed, numbers, definition.candidates, definition.dimension)
        reports.append(definition.mechanism.draw(scores(vectors, own[numbers])))
    return np.concatenate(reports)


def synthetic(seeds: list[int], runs: int) -> None:
    """Error on 100,000 rows; 500 unlabelled public rows; 20,000 owners x 4 (linear), 5,000 x 80 (own regression)."""
    features = tuple(NumericFeature(f"x{j}", tuple(np.linspace(-1, 1, 257))) for j in range(20))
    for seed in seeds:
        X, y = make_classification(1_000_000, 20, n_informative=10, n_redundant=10, random_state=seed)
        X, y = X / np.abs(X).max(axis=0), 2 * y - 1
        for learner, owners, each in (("local-linear", 20_000, 4), ("local-lr", 5_000, 80)):
            for epsilon in EPSILONS:
                errors = [_synthetic_run(features, X, y, learner, owners, each, epsilon, run) for run in range(runs)]
                print(
                    f"seed {seed} {learner} epsilon {epsilon}: error {np.mean(errors):.3f} +- {np.std(errors):.3f}",
                    flush=True,
                )
        alone = {rows: _alone(X, y, rows, runs) for rows in (200, 500, 2000)}
        print(f"seed {seed} the user alone: " + ", ".join(f"{n} rows {e:.3f}" for n, e in alone.items()), flush=True)


def _synthetic_run(
    features: tuple[NumericFeature, ...], X: Floats, y: NDArray[np.int64], learner: str, owners: int, each: int,
    epsilon: float, run: int,
) -> float:  # fmt: skip
    order = np.random.default_rng(run).permutation(len(X))
    public, held, test = np.split(order[: 500 + owners * each + 100_000], [500, 500 + owners * each])
    codes = [feature.encode(X[:, j]) for j, feature in enumerate(features)]
    coordinates = coordinates_for(features, [code[public] for code in codes], owners, epsilon)
    definition = defined(learner, coordinates, epsilon, owners, ("a", "b"))
    z = coordinates.of([code[held] for code in codes])
    own = own_vectors(learner, z, y[held].astype(float), np.full(owners, each))
    model = learn_from_reports(definition, np.arange(owners), simulate(definition, own))
    answers = model.coded_scores([code[test] for code in codes])[:, 0]
    return float(np.mean((answers > 0) != (y[test] > 0)))


def _alone(X: Floats, y: NDArray[np.int64], rows: int, runs: int) -> float:
    errors = []
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(X))
        fit = LogisticRegression(max_iter=500).fit(X[order[:rows]], y[order[:rows]])
        errors.append(np.mean(fit.predict(X[order[-100_000:]]) != y[order[-100_000:]]))
    return float(np.mean(errors))


def adult(runs: int) -> None:
    """AUROC on Adult's own test file; 2,000 public rows without labels, the rest one row an owner."""
    schema, train, test = parse_schema(schema_of("adult")), load("adult"), load("adult_test")
    codes, held_out = (encode_columns(schema.features, columns_of(schema, part.table)) for part in (train, test))
    labels, truth = (np.array(part.table["income"].to_pylist()) == schema.classes[1] for part in (train, test))
    for epsilon in EPSILONS:
        found = []
        for run in range(runs):
            order = np.random.default_rng(run).permutation(len(labels))
            public, held = order[:2000], order[2000:]
            coordinates = coordinates_for(schema.features, [code[public] for code in codes], len(held), epsilon)
            definition = defined("local-linear", coordinates, epsilon, len(held), schema.classes)
            own = own_vectors("local-linear", coordinates.of([code[held] for code in codes]),
                              np.where(labels[held], 1.0, -1.0), np.ones(len(held), np.int64))  # fmt: skip
            model = learn_from_reports(definition, np.arange(len(held)), simulate(definition, own))
            found.append(roc_auc_score(truth, model.coded_scores(held_out)[:, 0]))
            exact = roc_auc_score(truth, ensemble_of(definition, own.mean(axis=0)).coded_scores(held_out)[:, 0])
        print(f"adult local-linear epsilon {epsilon}: AUROC {np.mean(found):.3f} +- {np.std(found):.3f}; "
              f"{coordinates.size} directions; without noise {exact:.3f}", flush=True)  # fmt: skip


def aggregators(runs: int) -> None:
    """AUROC on Adult's own test file, one row an owner, all in shares; delta 1e-6; the schema alone is public."""
    schema, train, test = parse_schema(schema_of("adult")), load("adult"), load("adult_test")
    codes, held_out = (encode_columns(schema.features, columns_of(schema, part.table)) for part in (train, test))
    labels, truth = (np.array(part.table["income"].to_pylist()) == schema.classes[1] for part in (train, test))
    y, owners = np.where(labels, 1.0, -1.0), len(labels)
    whom = tuple(Aggregator(name, f"{at + 1}" * 64, f"{at + 3}" * 64) for at, name in enumerate("ab"))
    sums: dict[int, NDArray[np.int64]] = {}
    for epsilon in (0.1, 0.25, 0.5, 1.0, 2.0):
        budget, groups = Budget.of(epsilon, "0.000001"), groups_for(owners, epsilon)
        layout = Groups(schema.features, groups)
        definition = SharedDefinition(
            "simulated", "owners", "model", "shared-additive", budget.epsilon, owners, owners, "income",
            tuple(map(str, schema.classes)), schema.features, budget.delta, groups, multiplier_for(layout, budget),
            None, whom,
        )  # fmt: skip
        if groups not in sums:
            sums[groups] = sum(layout.statistic([code[[at]] for code in codes], y[[at]]) for at in range(owners))  # type: ignore[assignment]
        mechanism, nothing = DiscreteGaussian(definition.noise_multiplier), np.zeros(layout.numbers, np.int64)
        found = []
        for _ in range(runs):
            noise = [mechanism.draw(nothing, layout.sensitivity) for _ in whom]
            model = learn_shared(definition, sums[groups] + noise[0] + noise[1], owners)
            found.append(roc_auc_score(truth, model.coded_scores(held_out)[:, 0]))
        exact = roc_auc_score(truth, learn_shared(definition, sums[groups], owners).coded_scores(held_out)[:, 0])
        print(f"adult shared-additive epsilon {epsilon}: AUROC {np.mean(found):.4f} +- {np.std(found):.4f}; {groups} "
              f"groups, {layout.numbers} numbers, a sealed share has {definition.share_bytes} bytes; without noise "
              f"{exact:.3f}", flush=True)  # fmt: skip
    took = []
    for at in range(200):
        start = time.perf_counter()
        halves = shares.split(layout.statistic([code[[at]] for code in codes], y[[at]]))
        for half in halves:
            shares.seal(shares.to_bytes(half), X25519PrivateKey.generate().public_key().public_bytes_raw(), b"about")
        took.append(time.perf_counter() - start)
    print(f"an owner of one row: counted, split and sealed in {1e3 * float(np.median(took)):.1f} ms, the median of 200")


def million() -> None:
    """1e6 owners of one row each, nine directions: drawing and learning."""
    owners, rng = 1_000_000, np.random.default_rng(0)
    features = tuple(NumericFeature(f"x{j}", tuple(np.linspace(-1, 1, 65))) for j in range(10))
    coordinates = coordinates_for(features, [rng.integers(0, 66, 500) for _ in features], 20_000, 0.5)
    definition = defined("local-linear", coordinates, 1.0, owners, ("a", "b"))
    own = own_vectors("local-linear", rng.standard_normal((owners, coordinates.size)), rng.choice([-1.0, 1.0], owners),
                      np.ones(owners, np.int64))  # fmt: skip
    start = time.perf_counter()
    learn_from_reports(definition, np.arange(owners), simulate(definition, own))
    took, most = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"1e6 owners: {took:.0f} s, {most:.2f} GB at most, {coordinates.size} directions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("variance", "synthetic", "adult", "aggregators", "million"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[56, 18, 767])
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    if asked.what == "synthetic":
        synthetic(asked.seeds, asked.runs)
    elif asked.what == "adult":
        adult(asked.runs)
    elif asked.what == "aggregators":
        aggregators(asked.runs)
    else:
        variance() if asked.what == "variance" else million()


if __name__ == "__main__":
    main()
