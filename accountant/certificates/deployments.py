"""A verified certificate as a record of the Differential Privacy Deployments Registry (registry.opendp.org), in YAML.

Field names are those of `schemas/deployments-schema.yaml` in github.com/opendp/deployments-registry-data as of commit
3e9c812a (15 July 2026). What a certificate cannot know (who publishes, for what, where) is marked `FILL_IN`, and the
record is a `Draft`, which in the registry's words means that its author has to complete it.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.certificates.plain_words import bound_of, event_text
from dpserve_verify.certificates.predicate import BooleanDomain, CategoricalDomain, Domain, Predicate
from dpserve_verify.formats.canonical import encode_base64

FILL_IN = "to be filled in by the publisher"
UNKNOWN_DATE = "1900-01-01"


def record(certificate: Certificate) -> dict[str, Any]:
    """Return the record as plain data, in the registry's order."""
    form = certificate.form
    date = str(certificate.entry.get("time", UNKNOWN_DATE))[:10]
    name = f"Model {certificate.model}"
    deployment = {
        "basic": _basic(certificate, name, date),
        "dp_variant": _variant(certificate),
        "privacy_loss": _loss(certificate),
        "deployment_model": _model(certificate),
        "accounting": {
            "post_processing": "Export of the released numbers as ONNX.",
            "composition": f"{form.accounting.composition}. {form.claim.conversion}",
        },
        "implementation": _implementation(certificate),
        "administrative": _administrative(certificate),
    }
    return {"url_slug": slug(name, FILL_IN, date), "status": "Draft", "tier": 3, "deployment": deployment}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, which people can edit."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def to_yaml(certificate: Certificate) -> str:
    """Return the record as the registry's file."""
    return yaml.dump(record(certificate), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def slug(name: str, curators: str, date: str) -> str:
    """Return the record's name by the registry's rule: name, curators and year, in lower case, words joined by
    hyphens.
    """
    parts = (re.sub(r"\W+", "_", part.lower()) for part in (name, curators, date.split("-")[0]))
    return "_".join(parts).replace("_", "-")


def _basic(certificate: Certificate, name: str, date: str) -> dict[str, Any]:
    form = certificate.form
    return {
        "name": name,
        "data_curators": [FILL_IN],
        "intended_use": FILL_IN,
        "data_product_type": "Machine learning model",
        "data_product_region": FILL_IN,
        "description": f"A model by the learner {form.public.learner}, learnt from the dataset {form.dataset.name}.",
        "publication_date": date,
    }


def _variant(certificate: Certificate) -> dict[str, str]:
    form = certificate.form
    return {
        "variant_name": "Approximate DP" if certificate.headline[1] else "Pure DP",
        "data_domain": _domains(form),
        "unprotected_quantities": "\n".join(f"- {entry}" for entry in form.public.unprotected),
    }


def _domains(form: Predicate) -> str:
    """Return every dataset that the public schema describes, of any size under add/remove."""
    size = "of any size" if form.dataset.records is None else f"of {form.dataset.records} records"
    lines = [f"- {_domain(each)}" for each in form.public.domains or ()]
    named = [f"- {name}" for name in form.public.inputs or ()]
    schema = f"Tables {size} under the schema with sha256 {form.dataset.schema_digest}."
    return "\n".join([schema, *(lines or named)])


def _domain(domain: Domain) -> str:
    if isinstance(domain, BooleanDomain):
        return f"{domain.name}: true, false or missing"
    if isinstance(domain, CategoricalDomain):
        values = f"{domain.count} categories" if domain.values is None else ", ".join(domain.values)
        return f"{domain.name}: {values}; anything else is other; or missing"
    noun = "number" if domain.type == "numeric" else domain.type
    return f"{domain.name}: a {noun}, told apart at {domain.cuts} cut points from {domain.low} to {domain.high}"


def _loss(certificate: Certificate) -> dict[str, Any]:
    claim = certificate.form.claim
    shared = claim.trust_model.startswith("two-aggregators:")
    neighbours = (
        f"Adjacent sums are with and without the contribution of one {claim.unit.name}; who takes part is public."
        if shared
        else f"Adjacent datasets differ by one {claim.unit.name} more or less."
        if certificate.relation == "add-remove"
        else f"Adjacent datasets have the same size and differ in one {claim.unit.name}, replaced by any other."
    )
    curve = ", ".join(f"{line.epsilon} at order {line.order}" for line in claim.rdp)
    epsilon, delta = certificate.headline
    parts = "".join(f"- {part}\n" for part in certificate.parts)
    parts = f"The sum with what the model was made from:\n{parts}Of the model by itself, " if parts else ""
    return {
        "privacy_unit": f"one {claim.unit.name}",
        "privacy_unit_details": (
            f"{neighbours} Contributions of one unit: at most {claim.unit.contributions} ({claim.unit.bounding})."
        ),
        "privacy_parameters": {"epsilon": float(epsilon), "delta": f"{delta:f}"},
        "privacy_parameters_details": (
            f"{parts}epsilon is {certificate.epsilon:f}, rounded up, by the bound "
            f"{claim.bound or 'of its conversion'}; "
            f"pure epsilon {claim.pure or 'infinite'}; Renyi divergence {curve or 'not used'}."
        ),
    }


CENTRAL_ACTORS = "- The operator of the platform, who sees the rows and is trusted with them.\n"
LOCAL_ACTORS = (
    "- The owners, each of whom keeps its rows and draws its own report.\n"
    "- The operator of the platform, who sees reports and no row, and is not trusted.\n"
)


SHARED_ACTORS = (
    "- The owners, each of whom keeps its rows and sends a share of what they come to, sealed, to each aggregator.\n"
    "- Two aggregators, of whom one must be honest; each adds the whole noise.\n"
    "- The operator of the platform, who sees sealed shares and noisy sums, and is not trusted.\n"
)
INSTITUTION_ACTORS = (
    "- The institutions, each of which keeps its rows, bounds what one unit contributes, and sends a share of every "
    "sum, sealed, to each aggregator.\n"
    "- Two aggregators, of whom one must be honest; each adds the whole noise to every sum.\n"
    "- The operator of the platform, who sees sealed shares and noisy sums, and is not trusted.\n"
)
ACTORS = {
    "central": ("Central", CENTRAL_ACTORS),
    "local": ("Local", LOCAL_ACTORS),
    "two-aggregators": ("Two aggregators", SHARED_ACTORS),
    "institutions": ("Institutions and two aggregators", INSTITUTION_ACTORS),
}


def _model(certificate: Certificate) -> dict[str, str]:
    form = certificate.form
    families = form.dataset.families or []
    totals = [account.budget for account in families] or [form.dataset.budget]
    total = "; ".join(f"epsilon {budget.epsilon} at delta {budget.delta}" for budget in totals)
    named, actors = ACTORS.get(form.claim.trust_model.partition(":")[0], ACTORS["central"])
    return {
        "model_name": named,
        "model_name_details": form.claim.trust_model,
        "actors": (
            f"{actors}"
            "- The accountant, who admits jobs and signs the ledger and certificates; audited by its public log.\n"
            f"- The adversary: {form.claim.adversary}; not trusted."
        ),
        "release_type": "One release",
        "release_type_details": f"This record is about one model. The total is {total}. {bound_of(certificate)}",
        "data_source_type": "Static" if form.dataset.blocks is None else "Dynamic",
        "data_source_type_details": f"Version {form.dataset.version or 1} of its family, fixed by a keyed commitment.",
        "access_type": "Non-interactive",
        "access_type_details": "The model is published; nobody queries the rows.",
    }


def _implementation(certificate: Certificate) -> dict[str, str]:
    form = certificate.form
    tuning = form.accounting.tuning or f"accounted for: {'yes' if form.accounting.covers_tuning else 'no'}"
    versions = ", ".join(f"{name} {value}" for name, value in form.implementation.items() if name != "floats")
    lines = [
        f"- {run.count} x {run.mechanism} ({event_text(run.event)}; {run.norm} sensitivity {run.sensitivity}) for "
        f"{run.purpose}, by {run.library}"
        for run in form.mechanisms
    ]
    lines += [f"- Floating point: {form.implementation.get('floats', 'not stated')}."]
    lines += [
        f"- Randomness: {form.randomness.source}{'' if form.randomness.seeded is None else ', not seeded'}.",
        f"- Versions: {versions}.",
    ]
    made = f"Preprocessing: {certificate.form.preprocessing}. Tuning: {tuning}."
    return {
        "preprocessing_and_hyperparameter_tuning": made,
        "mechanisms": "\n".join(lines),
        "justification": FILL_IN,
    }


def _administrative(certificate: Certificate) -> dict[str, Any]:
    form = certificate.form
    not_covered = "\n".join(f"- {threat}" for threat in form.not_covered)
    return {
        "sources": (
            f"- Privacy certificate: model with sha256 {certificate.sha256}; entry {certificate.issued} of the ledger "
            f"{form.ledger.origin}, in the tree of {certificate.checkpoint_size} entries with root "
            f"{encode_base64(certificate.root)}."
        ),
        "notes": f"Not covered by the promise:\n{not_covered}",
        "registry_authors": [FILL_IN],
    }
