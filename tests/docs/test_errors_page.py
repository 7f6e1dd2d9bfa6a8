"""The table of errors: each code means something, says what to do, and a test is answered with it."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import typer
from starlette.exceptions import HTTPException

from dpserve import ServiceError
from dpserve_verify.errors import (
    CertificateInvalid,
    CertificateRevoked,
    DpserveError,
    InputError,
    KeyInvalid,
    LedgerInvalid,
    ModelInvalid,
    OtherHistory,
    VerificationError,
)
from serving.cli import next as next_step
from serving.cli.app import run
from serving.cli.backends.choice import ServerAddress
from serving.cli.backends.server.connection import error_of_home
from serving.pages.parts import static_files
from serving.wire.errors import error_response

sys.path.insert(0, "docs")
import reference

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", reference.errors(), re.M)
# Code -> the test that something is answered with it in; of this file where nothing is said.
CLI, SERVICE, ABUSE = "serving/cli/test_cli.py", "serving/test_service.py", "serving/test_abuse.py"
TRIGGERS = {
    "answer_missing": "training/datasets/test_asked.py",
    "bad_input": f"{CLI}::test_without_a_home_the_next_step_is_named",
    "budget_refused": f"{CLI}::test_refusal_is_exit_code_3",
    "certificate_invalid": f"{SERVICE}::test_tampered_model_is_refused_and_the_others_go_on",
    "certificate_revoked": "accountant/ledger/test_placement.py",
    "cross_site": "serving/http/test_session_cookie.py::test_two_origins_are_none",
    "data_invalid": f"{CLI}::test_draft_of_what_is_no_table",
    "engine_unavailable": "training/rows/test_cluster.py",
    "entry_refused": "accountant/log/test_judge.py",
    "forbidden": "serving/cli/test_remote_cli.py::test_who_may_not_is_told_so",
    "http_error": "",
    "idempotency_conflict": f"{CLI}::test_train_spends_once_per_key",
    "internal": f"{SERVICE}::test_bug_is_answered_at_once_and_says_nothing",
    "interrupted": "",
    "job_failed": f"{CLI}::test_job_that_fails_after_its_start_is_exit_code_5",
    "json_invalid": "accountant/test_canonical.py::test_error_is_the_users_and_has_its_code",
    "key_invalid": f"{CLI}::test_init_puts_one_admin_token_into_a_file_and_prints_none",
    "ledger_invalid": "training/measuring/test_profile.py",
    "ledger_unavailable": "accountant/store/test_store.py",
    "method_not_allowed": f"{SERVICE}::test_bad_input",
    "model_invalid": f"{ABUSE}::test_model_changed_while_it_is_served",
    "name_taken": f"{CLI}::test_dataset_name_is_given_once",
    "not_additive": "serving/rest/test_explain_rest.py::test_trees_are_told_apart",
    "not_found": f"{SERVICE}::test_bad_input",
    "not_invited": "local/campaign/test_campaigns.py",
    "not_private": "training/notebook/test_unprotected.py",
    "not_ready": f"{SERVICE}::test_ledger_behind_its_mark_stops_everything_but_life",
    "nothing_served": "serving/process/test_registry.py",
    "other_history": "local/owner/test_histories.py",
    "overloaded": "serving/http/test_connections.py::test_a_server_that_was_late_blames_no_body",
    "plan_mismatch": "training/test_session.py",
    "record_invalid": f"{SERVICE}::test_record_that_does_not_fit",
    "redirected": "serving/cli/test_remote_cli.py::test_a_server_that_lies_is_found_out",
    "refused": "local/aggregator/test_aggregator.py",
    "request_timeout": "serving/test_service.py",
    "rows_unavailable": f"{CLI}::test_rows_that_are_not_what_was_registered_are_refused_before_a_job_costs",
    "schema_invalid": f"{CLI}::test_draft_is_not_accepted_as_it_is",
    "takes_too_much": "accountant/test_confined.py",
    "timeout": "serving/test_starve.py::test_a_price_that_nobody_waits_for_ends",
    "too_large": f"{ABUSE}::test_too_many_records",
    "too_many_requests": "serving/process/test_limits.py::test_too_many_requests_are_told_when_to_come_back",
    "unauthorized": "serving/http/test_session_cookie.py::test_header_goes_before_the_cookie",
    "unknown_name": f"{CLI}::test_unknown_model",
    "unsupported_media_type": f"{ABUSE}::test_other_media_types",
    "usage": f"{CLI}::test_bad_jobs",
    "verification_failed": "",
    "version_behind": f"{SERVICE}::test_a_door_that_is_behind_predicts_and_writes_nothing",
    "wrong_state": "serving/cli/test_cli_keys.py::test_rotate_with_overlap_then_retire",
}
KINDS = {  # of errors that tests know by their class, or by their status
    "answer_missing": r"pytest\.raises\(AnswerMissing",
    "certificate_revoked": r"pytest\.raises\(CertificateRevoked",
    "engine_unavailable": r"pytest\.raises\(EngineUnavailable",
    "entry_refused": r"pytest\.raises\(EntryRefused",
    "ledger_unavailable": r"pytest\.raises\(LedgerUnavailable",
    "ledger_invalid": r"pytest\.raises\(LedgerInvalid",
    "not_invited": r"pytest\.raises\(NotInvited",
    "not_private": r"pytest\.raises\(NotPrivate",
    "nothing_served": r"pytest\.raises\(NothingServed",
    "other_history": r"pytest\.raises\(OtherHistory",
    "plan_mismatch": r"pytest\.raises\(PlanMismatch",
    "refused": r"pytest\.raises\(Refused",
    "request_timeout": "HTTP/1.1 408",
    "takes_too_much": r"pytest\.raises\(TooMuch",
}


def test_every_code_means_something_and_says_what_to_do():
    assert [code for code, *_ in ROWS] == sorted(TRIGGERS)
    for code, _, _, means, do in ROWS:
        assert len(means) > 15, code
        assert len(do) > 15, code
        assert do != DpserveError.remedy or code == "internal"


@pytest.mark.parametrize(("code", "place"), [pair for pair in TRIGGERS.items() if pair[1]])
def test_something_is_answered_with_it(code, place):
    file, _, name = place.partition("::")
    text = (ROOT / "tests" / file).read_text("utf-8")
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    if name:
        first = min([found[name].lineno, *(each.lineno for each in found[name].decorator_list)])
        text = "\n".join(text.splitlines()[first - 1 : found[name].end_lineno])
    assert re.search(KINDS.get(code, rf"[\"']{code}[\"']"), text), place


def test_a_command_that_is_broken_off_at_a_question(monkeypatch, capsys):
    def broken_off(*_: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(next_step, "show_version", broken_off)
    assert run(["--version", "--json"]) == 1
    assert "interrupted" in capsys.readouterr().err


def test_what_the_servers_own_parts_refuse():
    answer = error_response(HTTPException(417))
    assert (answer.status_code, json.loads(answer.body)["error"]["code"]) == (417, "http_error")


def test_a_code_that_another_server_told_is_no_kind_of_error_here():
    """The page is made of all kinds that this process has: one made for each strange answer would stand on it."""
    before, to = reference.errors(), ServerAddress("https://elsewhere", None, None, "a test")
    for kind in (CertificateInvalid, CertificateRevoked, KeyInvalid, LedgerInvalid, ModelInvalid, OtherHistory):
        assert type(error_of_home(ServiceError(503, kind.code, "so it said"), to)) is kind  # exit code 4
    for status, code, kind in ((302, "redirected", InputError), (500, "http_error", DpserveError)):
        told = error_of_home(ServiceError(status, code, "so it said"), to)
        assert (type(told), told.to_json()["error"]["code"], kind.code == code) == (kind, code, False)
    assert reference.errors() == before


def test_static_files_that_are_not_the_pinned_ones(tmp_path):
    spoilt = shutil.copytree(static_files.FOLDER, tmp_path / "static")
    next(iter(sorted((spoilt / "vendor").glob("*.js")))).write_text("alert(1)")
    with pytest.raises(VerificationError, match="install dpserve anew") as caught:
        static_files.files(spoilt)
    assert error_response(caught.value).status_code == 503
    assert caught.value.code == "verification_failed"
