"""An additive ensemble as ONNX nodes: its score, and on request what each feature adds.

The score: as votes are exported (one tree over all numbers, a dictionary for each text, float32 sums of integers), or,
where a score may leave what float32 holds exactly, one tree per feature summed in double. Measured with ONNX Runtime
1.31 on one core, terms of 14 features (Adult, 8 of them texts; 33 and 256 bins per number), one row / 1,000 rows:

    as votes                                    24 us / 540 us      25 us / 660 us      (chosen)
    a tree per feature, texts as codes          25 us / 672 us      25 us / 723 us      (great scores)
    a tree per feature with a target of its own 25 us / 635 us      25 us / 693 us
    the same for codes, and a Gather of terms   27 us / 784 us      28 us / 845 us

`contributions` takes nodes of its own, which ONNX Runtime runs whether they are asked for or not (+5 us / +290 us);
`models.onnx.runtime` leaves them out of the session that predicts.
"""

from __future__ import annotations

import numpy as np

from models.explain.explain import centre_tables
from models.features.features import CategoricalFeature
from models.onnx.nodes import Graph, Inputs, Namer, Walk, coded, regressor
from models.onnx.sums import balanced, coded_pairs, halves, moving, pair_walk, steps, text_codes
from models.parts.released import FeatureSum


def great_scores(ensemble: FeatureSum, inputs: Inputs, name: Namer, target: str) -> Graph:
    """Build the nodes that turn raw values into `target` (N, 1), scores that float32 does not hold exactly: each is
    rounded to it once, never across 0.
    """
    tables, (constant,) = ensemble.tables()
    tables += [pair.table for pair in ensemble.pairs]
    encoding, coded_inputs, walks = _walks(ensemble, tables, inputs, name)
    return encoding + Graph((regressor([*walks.values(), (int(constant),)], coded_inputs.numbers, target),))


def contributions_of(ensemble: FeatureSum, inputs: Inputs, name: Namer, target: str) -> tuple[Graph, float]:
    """Build the nodes that turn raw values into `target` (N, features and pairs), centred as
    `models.explain.explain.contributions` does, in logits or in units of the target; and return the base: with it, a
    row adds up to the logit before it bends, or to the value before it is clipped.
    """
    tables, base = centre_tables(ensemble)
    encoding, coded_inputs, walks = _walks(ensemble, tables, inputs, lambda part: name(f"contributions_{part}"))
    node = regressor(list(walks.values()), coded_inputs.numbers, target, list(walks), len(tables))
    return encoding + Graph((node,)), float(base[0])


def _walks(
    ensemble: FeatureSum, tables: list[np.ndarray], inputs: Inputs, name: Namer
) -> tuple[Graph, Inputs, dict[int, Walk]]:
    """Return a tree per feature, and per pair, that moves the score, over numbers and the codes of texts. Texts that
    mean the same to a feature's own tree share a code there.
    """
    used = moving(tables[: len(ensemble.features)])
    codes, rows = {}, {}
    for i in used:
        if isinstance(feature := ensemble.features[i], CategoricalFeature):
            distinct, group = np.unique(tables[i], axis=0, return_inverse=True)
            codes[i], rows[i] = text_codes(feature, group.reshape(-1)), tuple(map(tuple, distinct.tolist()))
    encoding, found = coded(inputs, codes, name)
    column = found.columns
    walks = {
        i: balanced(column[i], halves(len(rows[i])), rows[i])
        if i in rows
        else steps(ensemble.features[i], tables[i]).walk(column[i])
        for i in used
    }
    if not ensemble.pairs:
        return encoding, found, walks
    more, all_found = coded_pairs(ensemble, Inputs(found.numbers, column, inputs.texts), name)
    pairs = enumerate(ensemble.pairs, len(ensemble.features))
    walks |= {at: pair_walk(ensemble.features, pair, tables[at], all_found) for at, pair in pairs if tables[at].any()}
    return encoding + more, all_found, walks
