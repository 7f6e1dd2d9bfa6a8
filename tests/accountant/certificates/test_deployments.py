"""The record for the deployments registry: its form is the registry's, its facts are the certificate's."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import ledgers
import pytest
import yaml
from ledgers import plan
from offices import Office, dataset

from accountant.certificates.deployments import FILL_IN, record, slug, to_yaml
from accountant.ledger.families.records import Unit
from dpserve_verify.certificates.certificate import Certificate, verify
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import PureDp
from serving.cli.app import run

# What schemas/deployments-schema.yaml of opendp/deployments-registry-data (3e9c812a) allows in each part.
FORM = {
    "basic": {
        *("name", "data_curators", "intended_use", "data_product_type", "data_product_region", "description"),
        *("publication_date", "data_product_sector"),
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
    "deployment_model": {
        *("model_name", "model_name_details", "actors", "release_type", "release_type_details", "data_source_type"),
        *("data_source_type_details", "access_type", "access_type_details"),
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}
REQUIRED = FORM["basic"] - {"data_product_sector"}
WORDS = {
    ("basic", "data_product_type"): {"Summary statistics", "Machine learning model", "Dataset", "Synthetic data"},
    ("dp_variant", "variant_name"): {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    ("deployment_model", "model_name"): {"Local", "Central", "Shuffle", "Federated", "Varies"},
    ("deployment_model", "release_type"): {"One release", "Many releases"},
    ("deployment_model", "data_source_type"): {"Static", "Dynamic"},
    ("deployment_model", "access_type"): {"Interactive", "Non-interactive"},
}


def certificate(**options) -> Certificate:
    made = Office()
    filed = made.issue(**options)
    return verify(filed.envelope, filed.proof, filed.onnx, made.trust)


KINDS = {
    "approximate": {},
    "pure": {"what": plan(PureDp(Decimal("0.05")), 10), "about": dataset(budget=Budget.of("3")), "delta": "0"},
    "several families": {"about": dataset(Relation.REPLACE_ONE, Unit("person", "customer", 3), families=2, version=4)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_is_the_registrys(kind):
    found = yaml.safe_load(to_yaml(certificate(**KINDS[kind])))
    assert list(found) == ["url_slug", "status", "tier", "deployment"]
    assert (found["status"], found["tier"]) == ("Draft", 3)
    parts = found["deployment"]
    assert set(parts) == set(FORM)
    for name, part in parts.items():
        assert set(part) <= FORM[name]
    assert set(parts["basic"]) >= REQUIRED
    for (part, field), words in WORDS.items():
        assert parts[part][field] in words
    for part in parts.values():
        for field, value in part.items():
            expected = {"privacy_parameters": dict, "data_curators": list, "registry_authors": list}.get(field, str)
            assert type(value) is expected
    assert type(parts["privacy_loss"]["privacy_parameters"]["epsilon"]) is float


def test_the_facts_are_the_certificates():
    found = certificate()
    parts = record(found)["deployment"]
    loss = parts["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": float(found.epsilon), "delta": "0.000001"}
    assert loss["privacy_unit"] == "one record"
    assert "differ by one record more or less" in loss["privacy_unit_details"]
    assert parts["dp_variant"]["variant_name"] == "Approximate DP"
    assert "- work: private, state; anything else is other" in parts["dp_variant"]["data_domain"]
    assert parts["basic"]["publication_date"] == "2025-01-31"
    assert "25 x exponential" in parts["implementation"]["mechanisms"]
    assert found.sha256 in parts["administrative"]["sources"]
    for each in found.form.not_covered:
        assert each in parts["administrative"]["notes"]


def test_what_a_certificate_cannot_know_is_marked():
    parts = record(certificate())["deployment"]
    open_fields = {
        (part, field)
        for part, content in parts.items()
        for field, value in content.items()
        if value in (FILL_IN, [FILL_IN])
    }
    assert open_fields == {
        ("basic", "data_curators"),
        ("basic", "intended_use"),
        ("basic", "data_product_region"),
        ("implementation", "justification"),
        ("administrative", "registry_authors"),
    }


def test_other_kinds():
    pure = record(certificate(**KINDS["pure"]))["deployment"]
    assert pure["dp_variant"]["variant_name"] == "Pure DP"
    assert pure["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5, "delta": "0"}
    several = record(certificate(**KINDS["several families"]))["deployment"]
    assert (
        "at most 3 (the first 3 records of each value of customer, in file order)"
        in several["privacy_loss"]["privacy_unit_details"]
    )
    assert "Tables of 1000 records" in several["dp_variant"]["data_domain"]
    assert "Version 4 of its family" in several["deployment_model"]["data_source_type_details"]
    assert several["deployment_model"]["release_type_details"].count("epsilon 3 at delta 0.000001") == 2


def test_slugs_follow_the_registrys_rule():
    assert (
        slug("Current Pageviews", "Wikimedia Foundation", "2023-06-01") == "current-pageviews-wikimedia-foundation-2023"
    )
    assert slug("Safety Classifier", "Google", "2024-01-01") == "safety-classifier-google-2024"
    assert record(certificate())["url_slug"] == "model-adult-to-be-filled-in-by-the-publisher-2025"


def test_names_cannot_break_out_of_the_file():
    """YAML quotes what it must; what is read back is what was written."""
    found = certificate()
    assert yaml.safe_load(to_yaml(found)) == record(found)
    nasty = replace(found.form, preprocessing="a: b\n- c\n\x00#'\"&*!|>%@`")
    changed = Certificate(**{**found.__dict__, "form": nasty})
    assert yaml.safe_load(to_yaml(changed)) == record(changed)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(ledgers.copy(ledgers.trained(), tmp_path / "home")))
    assert run(["model", "show", "adult@1", "--registry"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] <= 0.5
    assert err == ""
    assert run(["model", "show", "adult@1", "--registry", "--out", str(tmp_path / "adult.yaml")]) == 0
    assert (tmp_path / "adult.yaml").read_text() == out
    capsys.readouterr()
    assert run(["model", "show", "adult@1", "--registry", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["record"]["status"] == "Draft"
