"""Three institutions, two aggregators and a platform, a process each: a model of rows that nobody pooled."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import hospitals
import numpy as np
import pyarrow.parquet as pq
import pytest
import warm
from sklearn.metrics import roc_auc_score
from small_home import DATA, ROOT, dpserve, environment, until

from accountant.audit.audit import audit_home
from accountant.certificates.deployments import to_yaml
from accountant.home import Home
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import InputError
from local.campaign import campaigns
from local.campaign.defining import read_aggregator
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from training.planning.other_noise import OtherNoise

LOG = logging.getLogger(__name__)
ROWS = 1500  # of each institution
LEAST = 0.82  # AUROC; of 20 draws of the noise .884 +- .003
SHORT = ("--set", "epochs=2", "--set", "rate=0.5")  # 56 rounds, in place of some 600


def files_of(place: hospitals.Hospitals) -> dict[str, Path]:
    """What names of files on the page stand for."""
    text = (DATA / "adult.schema.yaml").read_text()
    for name, count in (("people.yaml", 3 * ROWS), ("own.yaml", ROWS)):
        (place.folder / name).write_text(text.replace("records: 32561", f"records: {count}"))
    pairs = dict(zip(("one", "two"), place.whom, strict=True))
    names = ("people.yaml", "own.yaml", "invitations.txt")
    made = {f"{name}/aggregator.json": folder / "aggregator.json" for name, folder in pairs.items()}
    return {**{name: place.folder / name for name in names}, **pairs, **made}


@pytest.mark.slow
def test_commands_of_the_page_make_a_model_of_three_institutions(tmp_path):
    with hospitals.asking(tmp_path) as place:
        page = (
            (ROOT / "docs/reference/institutions.md")
            .read_text()
            .partition("\n## Over NVFlare")[0]
            .replace("https://campaigns.example", place.url)
        )
        lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.S)).strip().splitlines()
        (toml,) = re.findall(r"```toml\n(.*?)```", page, re.S)
        verbs = [" ".join(line.split()[1:3]) for line in lines]
        assert verbs == [
            "campaign population", "campaign open", "institution init", "dataset register", "institution start",
            "institution status", "aggregator answer", "aggregator answer", "campaign show", "campaign close",
            "campaign open", "campaign open",
        ]  # fmt: skip
        files = files_of(place)

        def words(line: str, given: dict[str, str]) -> list[str]:
            return [given.get(word, str(files.get(word, word))) for word in shlex.split(line)[1:]]

        def run(at: int, home: Path, *more: str, **given: str) -> str:
            done = dpserve(home, *words(lines[at], given), *more)
            assert done.returncode == 0, (lines[at], done.stderr)
            return done.stdout + done.stderr

        def start(at: int, home: Path, *more: str, **given: str) -> subprocess.Popen[bytes]:
            command = [*warm.python(), "-m", "serving.cli", *words(lines[at], given), *more]
            return subprocess.Popen(
                command, env=environment(home), cwd=home.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )

        assert "3 institutions" in run(0, place.home.path)
        opened = run(1, place.home.path, *SHORT)
        tokens = re.findall(r"dpa_[12]_[0-9a-f]+", opened)
        invitations = files["invitations.txt"].read_text().split()
        print_of = read_aggregator(files["two/aggregator.json"]).fingerprint
        table, running, homes = pq.read_table(DATA / "adult_train.parquet"), [], []
        for at, invitation in enumerate(invitations):
            own = tmp_path / f"own-{at}"
            own.mkdir()
            pq.write_table(table.slice(at * ROWS, ROWS), own / "rows.parquet")
            shutil.copy(place.home.path / "trust.json", own / "received.json")
            files |= {"rows.parquet": own / "rows.parquet"}
            homes.append(own / "home")
            told = run(2, homes[-1], "--ca", str(place.ca), FINGERPRINT=print_of)
            assert all(key.keyid in told for key in (*place.home.trust.issuers, *place.home.trust.logs))
            assert tomllib.loads(
                toml.replace("FINGERPRINT", print_of).replace("https://campaigns.example", place.url)
            ) == {
                key: value
                for key, value in tomllib.loads((own / "institution.toml").read_text()).items()
                if key != "ca"
            }
            run(3, homes[-1])
            (own / "invitations" / "study").write_text(f"{invitation}\n")
            running.append(start(4, homes[-1], *(["--once"] if at else [])))
        running += [start(6 + at, tmp_path / "one", **{f"TOKEN{at + 1}": token}) for at, token in enumerate(tokens)]

        def first() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(run(5, homes[0], "--json"))["campaigns"][0]
            return found

        until(lambda: (first()["rounds"] or 0) > 2, "the first is in the middle")
        running[0].terminate()
        running[0].communicate(timeout=60)
        assert first()["state"] == "answering"
        running[0] = start(4, homes[0])  # it goes on, charged once
        said = [each.communicate(timeout=240)[0].decode() for each in running[1:]]
        assert [each.returncode for each in running[1:]] == [0] * 4, said
        until(lambda: first()["state"] == "answered", "the first is done")
        running[0].terminate()  # it would wait for other invitations
        assert "answered 56 rounds, charged as job" in running[0].communicate(timeout=60)[0].decode()
        told = run(5, homes[1])
        assert re.search(r"study +answered +56 of 56 +\S+ +0.000001 +\d+\n", told), told
        shown = run(8, place.home.path)
        assert "56 of 56" in shown
        assert "3 institutions of clinics, by ebm" in shown
        assert "for each record, once" in shown
        assert "study: issued" in run(9, place.home.path)
        check_model(place, [Home.open({"DPSERVE_HOME": str(home)}) for home in homes])
        files |= {name: place.folder / name for name in ("worth.txt", "spread.txt")}
        assert "by evaluation" in run(10, place.home.path)
        tokens = re.findall(r"dpa_[12]_[0-9a-f]+", run(11, place.home.path))
        running = []
        for home, invitation in zip(homes, files["spread.txt"].read_text().split(), strict=True):
            (home.parent / "invitations" / "spread").write_text(f"{invitation}\n")
            running.append(start(4, home, "--once"))
        for at, token in enumerate(tokens):
            running.append(start(6 + at, tmp_path / "one", study="spread", **{f"TOKEN{at + 1}": token}))
        said = [each.communicate(timeout=120)[0].decode() for each in running]
        assert [each.returncode for each in running] == [0] * 5, said
        assert "spread: issued" in run(9, place.home.path, study="spread")
        (statement,) = place.home.profiles.glob("*/profile.dsse.json")
        done = dpserve(place.home.path, "verify", str(statement), "--trust", str(place.home.path / "trust.json"))
        assert done.returncode == 0, done.stderr


def check_model(place: hospitals.Hospitals, homes: list[Home]) -> None:
    """It is good, says who is trusted with what, and is paid for in every home alike."""
    definition = campaigns.load(place.home, "study").definition
    loaded = load_verified(ModelStore(place.home.models).resolve("study"), place.home.trust)
    test = pq.read_table(DATA / "adult_test.parquet")
    scores = loaded.ensemble.probabilities(hospitals.columns(test))[:, 1]
    auroc = roc_auc_score(np.asarray(test["income"].to_pylist()) == str(loaded.ensemble.classes[1]), scores)
    LOG.warning("AUROC of 3 institutions of %d rows of Adult at epsilon 2, in 56 rounds: %.4f", ROWS, auroc)
    assert auroc > LEAST
    claim, form = loaded.certificate.claim, loaded.certificate.form
    assert claim["trustModel"].startswith("institutions: ")
    assert (claim["unit"]["name"], claim["relation"]) == ("record", "add-remove")
    assert any("does not bound" in line for line in form.not_covered)
    assert (definition.learner, form.public.hyperparameters["chosen-by-auto"]) == ("ebm", definition.chosen)
    assert form.public.hyperparameters["aggregator_2"] == definition.aggregators[1].fingerprint
    assert "institutions bound contributions honestly" in to_text(plain(loaded.certificate))
    assert "model_name: Institutions and two aggregators\n" in to_yaml(loaded.certificate)
    with pytest.raises(InputError, match="two noises"):
        OtherNoise.of(place.home, loaded.ensemble, loaded.certificate)
    for home in (place.home, *homes):
        assert audit_home(home).ok
    for home in homes:
        (entry,) = hospitals.charged(home)
        assert (entry["plan"], entry["contributes"]) == (definition.plan.to_json(), definition.digest)
