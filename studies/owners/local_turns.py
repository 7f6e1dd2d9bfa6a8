"""The boosted learners of owners who trust nobody, simulated turn after turn over the platform's own pure functions.

    python -m studies.owners.local_turns synthetic | adult | classes [--seeds 56] [--runs 5] [--learners local-ncc ...]

`synthetic`: the paper's set, 20,000 owners of 4 rows (`local-lr`: 5,000 of 80), with 500 unlabelled public rows and
without any. `adult`: one row an owner. `classes`: three classes, of wines and of houses (`--data`: the folder of their
files), one row an owner, by all that take one row, shares among them, beside the user alone. Nothing here is certified:
splits are seeded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from accountant.noise.mechanisms import DiscreteGaussian
from benchmarks.datasets import load, schema_of
from dpserve_verify.privacy.budget import Budget
from local.campaign.defining import ROUNDS, basis_for
from local.reports.coordinates import embedding
from local.reports.corners import corners
from local.reports.definition import Definition
from local.reports.directions import best_favoured
from local.reports.groups import Groups
from local.reports.learning import CANDIDATES, coordinates_for, favoured_for, learn_from_reports
from local.reports.shared import Aggregator, SharedDefinition, multiplier_for
from local.reports.shared_learning import groups_for, learn_shared
from local.reports.statistics import own_vectors
from local.turns.definition import BoostedDefinition
from local.turns.learning import next_document
from local.turns.owned_scores import scores_in
from local.turns.so_far import NOTHING, read_so_far
from models.features.features import Feature, NumericFeature, encode_columns
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_bytes
from studies.owners.local import simulate as one_round
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of

Codes = Sequence[NDArray[Any]]
CHUNK = 2048
EPSILONS = (0.5, 1.0, 2.0, 5.0, 7.0)
THREE = ("0", "1", "2")


def defined(
    learner: str, features: tuple[Feature, ...], public: Codes | None, epsilon: float, owners: int, rounds: int,
    classes: tuple[str, ...] = ("a", "b"),
) -> BoostedDefinition:  # fmt: skip
    """A campaign as the platform would define it, but for names and digests."""
    basis = basis_for(learner, features, None if public is None else list(public), owners // rounds, epsilon)
    favoured = best_favoured(basis.dimension(len(classes) - 1), CANDIDATES, epsilon)
    return BoostedDefinition(
        "simulated", "owners", "model", learner, Decimal(str(epsilon)), owners, owners, "label", classes, features,
        basis, "", np.random.bytes(32).hex(), rounds, CANDIDATES, favoured,
    )  # fmt: skip


def simulate(definition: BoostedDefinition, codes: Codes, y: NDArray[np.float64], each: int) -> Ensemble:
    """The model of a whole campaign, every owner's report drawn as an owner draws it. Owners have `each` rows; `y` are
    labels as corners.
    """
    document, numbers = NOTHING, np.arange(definition.owners)
    turns = definition.turns_of(numbers)
    for turn in range(1, definition.turns + 1):
        so_far = read_so_far(document, definition.features, definition.classes)
        here, reports = numbers[turns == turn], []
        if definition.weighs(turn) and not so_far.voters:
            continue
        for start in range(0, len(here), CHUNK):
            part = here[start : start + CHUNK]
            rows = (part[:, np.newaxis] * each + np.arange(each)).ravel()
            count = np.full(len(part), each)
            wanted = scores_in(definition, turn, [code[rows] for code in codes], y[rows], count, so_far, part)
            reports.append(definition.mechanism_in(turn).draw(wanted))
        document = next_document(definition, turn, document, here, np.concatenate(reports))
    return ensemble_from_bytes(document)


def synthetic(seeds: list[int], runs: int, learners: list[str], epsilons: list[float]) -> None:
    """Error on 100,000 rows."""
    features = tuple(NumericFeature(f"x{j}", tuple(np.linspace(-1, 1, 257))) for j in range(20))
    for seed in seeds:
        X, y = make_classification(1_000_000, 20, n_informative=10, n_redundant=10, random_state=seed)
        codes = [feature.encode(X[:, j] / np.abs(X[:, j]).max()) for j, feature in enumerate(features)]
        for learner in learners:
            owners, each = (5_000, 80) if learner == "local-lr" else (20_000, 4)
            for shown in (True, False):
                for epsilon in epsilons:
                    errors = []
                    for run in range(runs):
                        order = np.random.default_rng(run).permutation(len(y))[: 100_500 + owners * each]
                        public, held, test = np.split(order, [500, 500 + owners * each])
                        known = [code[public] for code in codes] if shown else None
                        definition = defined(learner, features, known, epsilon, owners, ROUNDS[learner])
                        model = simulate(definition, [code[held] for code in codes], 2.0 * y[held] - 1, each)
                        answers = model.coded_scores([code[test] for code in codes])[:, 0]
                        errors.append(np.mean((answers > 0) != (y[test] > 0)))
                    print(
                        f"seed {seed} {learner} {'500 public rows' if shown else 'schema alone'} epsilon {epsilon}: "
                        f"error {np.mean(errors):.3f} +- {np.std(errors):.3f}",
                        flush=True,
                    )


def adult(runs: int, learners: list[str], epsilons: list[float]) -> None:
    """AUROC on Adult's own test file; 2,000 public rows without labels, the rest one row an owner."""
    schema, train, test = parse_schema(schema_of("adult")), load("adult"), load("adult_test")
    codes, held_out = (encode_columns(schema.features, columns_of(schema, part.table)) for part in (train, test))
    labels, truth = (np.array(part.table["income"].to_pylist()) == schema.classes[1] for part in (train, test))
    for learner in learners:
        for epsilon in epsilons:
            found = []
            for run in range(runs):
                order = np.random.default_rng(run).permutation(len(labels))
                public, held = [code[order[:2000]] for code in codes], order[2000:]
                definition = defined(learner, schema.features, public, epsilon, len(held), ROUNDS[learner])
                model = simulate(definition, [code[held] for code in codes], np.where(labels[held], 1.0, -1.0), 1)
                found.append(roc_auc_score(truth, model.coded_scores(held_out)[:, 0]))
            print(f"adult {learner} epsilon {epsilon}: AUROC {np.mean(found):.3f} +- {np.std(found):.3f}", flush=True)


HOUSES = (120_000, 220_000)  # dollars: up to, above, above
WHOM = tuple(Aggregator(name, f"{at + 1}" * 64, f"{at + 3}" * 64) for at, name in enumerate("ab"))


def classes_of(name: str, folder: str | None) -> tuple[tuple[Feature, ...], Codes, NDArray[np.int64]]:
    """Features, codes and one of three classes of every row: of wines the judges' marks, of houses a public price."""
    data = load(name, folder)
    schema, answers = parse_schema(data.schema_bytes), data.table[data.target].to_numpy()
    labels = np.digitize(answers, HOUSES, right=True) if name == "california" else answers.astype(int)
    return schema.features, encode_columns(schema.features, columns_of(schema, data.table)), labels


def _rows(codes: Codes, rows: NDArray[np.int64]) -> list[NDArray[Any]]:
    return [code[rows] for code in codes]


def in_one_round(
    features: tuple[Feature, ...], codes: Codes, public: Codes, y: NDArray[np.float64], epsilon: float
) -> Ensemble:
    """local-linear's model, of owners of one row each."""
    coordinates = coordinates_for(features, list(public), len(y), epsilon)
    definition = Definition(
        "simulated", "owners", "model", "local-linear", Decimal(str(epsilon)), len(y), len(y), "label", THREE, features,
        coordinates, "0" * 64, np.random.bytes(32).hex(), CANDIDATES, favoured_for(coordinates, epsilon, 3),
    )  # fmt: skip
    own = own_vectors("local-linear", coordinates.of(codes), y, np.ones(len(y), np.int64))
    return learn_from_reports(definition, np.arange(len(y)), one_round(definition, own))


def in_shares(features: tuple[Feature, ...], codes: Codes, y: NDArray[np.float64], epsilon: float) -> Ensemble:
    """shared-additive's model, with the noise of both aggregators; delta 1e-6."""
    budget, groups, owners = Budget.of(str(epsilon), "0.000001"), groups_for(len(y), epsilon), len(y)
    layout = Groups(features, groups, 2)
    definition = SharedDefinition(
        "simulated", "owners", "model", "shared-additive", budget.epsilon, owners, owners, "label", THREE, features,
        budget.delta, groups, multiplier_for(layout, budget), None, WHOM,
    )  # fmt: skip
    total = np.zeros(layout.numbers, np.int64)
    for at in range(owners):
        total += layout.statistic([code[[at]] for code in codes], y[[at]])
    noise, nothing = DiscreteGaussian(definition.noise_multiplier), np.zeros(layout.numbers, np.int64)
    for _ in WHOM:
        total += noise.draw(nothing, layout.sensitivity)
    return learn_shared(definition, total, owners)


def three_classes(runs: int, learners: list[str], epsilons: list[float], folder: str | None) -> None:
    """Accuracy on a fifth held out; 500 public rows without labels, the rest one row an owner."""
    for name in ("wine", "california"):
        features, codes, labels = classes_of(name, folder)
        found: dict[tuple[str, float], list[float]] = {}
        for run in range(runs):
            order = np.random.default_rng(run).permutation(len(labels))
            test, public, held = np.split(order, [len(order) // 5, len(order) // 5 + 500])
            y = corners(3)[labels[held]]
            of = partial(_rows, codes)
            for learner in (*learners, "local-linear", "shared-additive"):
                for epsilon in epsilons:
                    if learner == "shared-additive":
                        model = in_shares(features, of(held), y, epsilon)
                    elif learner == "local-linear":
                        model = in_one_round(features, of(held), of(public), y, epsilon)
                    else:
                        rounds = ROUNDS[learner]
                        definition = defined(learner, features, of(public), epsilon, len(held), rounds, THREE)
                        model = simulate(definition, of(held), y, 1)
                    right = model.coded_scores(of(test)).argmax(axis=1) == labels[test]
                    found.setdefault((learner, epsilon), []).append(float(right.mean()))
            found.setdefault(("the most frequent", 0), []).append(float(np.bincount(labels[test]).max() / len(test)))
            flat = np.concatenate([embedding(f)[code] for f, code in zip(features, codes, strict=True)], axis=1)
            for rows in (200, 2000, len(held)):
                fit = LogisticRegression(max_iter=3000).fit(flat[held[:rows]], labels[held[:rows]])
                right = fit.predict(flat[test]) == labels[test]
                what = "all rows, central, not private" if rows == len(held) else f"the user alone, {rows} rows"
                found.setdefault((what, 0), []).append(float(right.mean()))
        for (what, epsilon), each in found.items():
            asked = f" epsilon {epsilon:g}" if epsilon else ""
            print(f"{name} ({len(held)} owners) {what}{asked}: {np.mean(each):.3f} +- {np.std(each):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("synthetic", "adult", "classes"))
    parser.add_argument("--data", help="folder of the Parquet files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[56, 18])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--learners", nargs="+", default=["local-ncc", "local-stump", "local-lr"], choices=ROUNDS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    asked = parser.parse_args()
    without = [each for each in asked.learners if each != "local-lr"]
    if asked.what == "classes":
        three_classes(asked.runs, without, asked.epsilons, asked.data)
    elif asked.what == "synthetic":
        synthetic(asked.seeds, asked.runs, asked.learners, asked.epsilons)
    else:
        adult(asked.runs, without, asked.epsilons)


if __name__ == "__main__":
    main()
