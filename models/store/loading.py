"""Loading a model, failing closed: every byte is read once and nothing is served that was not verified. No warn-only
mode.

`card.md` alone says nothing that counts: it is a page for people that newer versions word differently. Whoever shows
or exports a model makes it again from the verified certificate (`card_of`); `unvouched` says where it is another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.certificates.bundle import FILES, Bundle, read_bundle, verify_bundle
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.certificates.sentences import GROWTH
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.keys.trust import PublicKeys
from models.explain.card import model_card
from models.features.features import CalendarFeature, CategoricalFeature, Feature, NumericFeature
from models.features.table_format import TableFormat, format_from_text
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_bytes
from models.store.lineage import check_edits, check_released

if TYPE_CHECKING:
    from models.onnx import export as exports
    from models.onnx import runtime as graphs
else:
    exports = later("models.onnx.export")
    graphs = later("models.onnx.runtime")  # who looks at the released numbers runs no graph

STRICT = Policy()
FEW = 64  # categories that a certificate lists


@dataclass(frozen=True)
class VerifiedModel:
    """A model that may be served: its certificate, its released numbers, and its graph in a session."""

    certificate: Certificate
    ensemble: Ensemble
    bundle: Bundle

    @cached_property
    def runtime(self) -> graphs.OnnxModel:
        """Return the model's graph, checked and in a session: it is there already, unless the model was loaded to be
        looked at.

        It is made from the released numbers here, and must be the certified one: a person who can have a file signed
        cannot have it opened. ModelInvalid where it is another.
        """
        about, reservation = self.certificate.form, self.certificate.reservation
        metadata = exports.metadata_of(about.dataset.name, self.certificate.model, reservation, about.public.target)
        made = exports.to_onnx(self.ensemble, metadata)
        if not exports.same_graph(made, self.bundle.onnx):
            raise ModelInvalid("model.onnx: is not the graph that ensemble.json comes to")
        return graphs.OnnxModel(made)

    @cached_property
    def certified_format(self) -> TableFormat | None:
        """Return how the tables of its dataset are written, by its certificate, None where that does not say it.
        ModelInvalid where it cannot be read.
        """
        text = self.certificate.form.dataset.format
        try:
            return None if text is None else format_from_text(text)
        except InputError as error:
            raise ModelInvalid(f"certificate: {error.message}") from None

    @property
    def format(self) -> TableFormat:
        """Return how whatever is brought to the model is read, at every door: as its dataset was. InputError where its
        certificate does not say how.
        """
        if self.certified_format is None:
            raise InputError(
                "format: the certificate does not say how tables of the model's dataset are written; say it: over REST "
                "by query `format`, on the command line by --schema"
            )
        return self.certified_format

    @property
    def travelling(self) -> Bundle:
        """Return the bundle with its card made again, so that all of it follows from what was verified."""
        return replace(self.bundle, card=card_of(self.ensemble, self.certificate).encode())


@dataclass(frozen=True)
class OpenedModel:
    """A model that was verified on this machine. Its graph is opened when it is first used.

    reference: `name@version`.
    folder: Where its files are; None where they were fetched from a server.
    verified: The model and its certificate.
    """

    reference: str
    folder: str | None
    verified: VerifiedModel


def unvouched(directory: Path, verified: VerifiedModel) -> list[str]:
    """Return names in a bundle's folder that its certificate says nothing of, sorted: what is no file of a bundle, and
    a card that is not the one that follows from the certificate.
    """
    names = (os.fsencode(name).decode("utf-8", "backslashreplace") for name in os.listdir(directory))
    found = set(names) - FILES.keys()
    return sorted(found if verified.bundle == verified.travelling else found | {"card.md"})


def load_verified(directory: Path, trust: PublicKeys, policy: Policy = STRICT, runs: bool = True) -> VerifiedModel:
    """Read a bundle once, verify certificate, proof and files, then open the graph; not where it never `runs`, as for
    whoever looks at the released numbers. Raises VerificationError; never warns."""
    return verified_bundle(read_bundle(directory), trust, policy, runs)


def verified_bundle(bundle: Bundle, trust: PublicKeys, policy: Policy = STRICT, runs: bool = True) -> VerifiedModel:
    """Verify a bundle that was read already, as `load_verified` does."""
    certificate = verify_bundle(bundle, trust, policy)
    ensemble = ensemble_from_bytes(bundle.ensemble)
    check_edits(ensemble, certificate)
    if certificate.form.public.target not in (None, ensemble.target):
        raise ModelInvalid("ensemble.json: predicts another target than the certificate names")
    found = VerifiedModel(certificate, ensemble, bundle)
    found.certified_format  # noqa: B018 - ModelInvalid
    if runs:
        found.runtime  # noqa: B018 - ModelInvalid
    return found


def load_of_home(
    home: Home, folder: Path, name: str, trust: PublicKeys | None = None, runs: bool = True
) -> VerifiedModel:
    """Load a model, verified offline as anybody would verify it, and also against what stands in the ledger now, which
    is at hand: a ledger put back to yesterday knows nothing of a model of today. `trust`: the home's, where the caller
    has it already.
    """
    verified = load_verified(folder, trust or home.trust, runs=runs)
    certificate = verified.certificate
    if certificate.model != name:
        raise ModelInvalid(f"certificate: speaks of {certificate.model!r}, not of {name!r}")
    if home.ledger.log.entry(certificate.issued).value != certificate.entry:
        raise ModelInvalid(f"certificate: entry {certificate.issued} of this ledger is another")
    check_released(home.ledger, certificate)
    return verified


def card_of(ensemble: Ensemble, certificate: Certificate) -> str:
    """Return the model card, from verified parts alone."""
    form, (epsilon, delta) = certificate.form, certificate.headline
    words = {
        "epsilon": f"{epsilon:f}",
        "delta": f"{delta:f}",
        "relation": certificate.relation,
        "unit": f"one {form.claim.unit.name}",
        "dataset": form.dataset.name,
        "learner": form.public.learner,
        "made": sentences_of(certificate),
    }
    return model_card(ensemble, words)


def sentences_of(certificate: Certificate) -> tuple[str, ...]:
    """Say where the bins come from, what it was made from, and what growth does, as derived."""
    return (
        *([f"all of this is {certificate.word}: a program read the rows"] if certificate.word else []),
        certificate.form.preprocessing,
        *filter(None, [certificate.learner_words]),
        *certificate.parts,
        GROWTH[certificate.growth],
    )


def domains(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Return what the public schema says of each feature, as a certificate states it."""
    return [_domain(feature) for feature in features]


def stated_range(ensemble: Ensemble) -> tuple[str, str] | None:
    """Return the public range of a number, as a certificate states it; None of classes."""
    limits = ensemble.target_range
    return None if limits is None else (_number(limits[0]), _number(limits[1]))


def _domain(feature: Feature) -> dict[str, Any]:
    named = {"name": feature.name, "type": feature.kind}
    if isinstance(feature, NumericFeature):
        written = feature.text if isinstance(feature, CalendarFeature) else _number
        low, high = (written(feature.edges[end]) if feature.edges else None for end in (0, -1))
        return {**named, "low": low, "high": high, "cuts": len(feature.edges)}
    if isinstance(feature, CategoricalFeature):
        few = list(feature.values) if len(feature.values) <= FEW else None
        return {**named, "count": len(feature.values), "values": few}
    return named


def _number(edge: float) -> str:
    return repr(float(edge)).removesuffix(".0")
