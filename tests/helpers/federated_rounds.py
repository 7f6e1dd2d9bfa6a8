"""A campaign of institutions over NVFlare: Adult cut among three of them, in homes of their own, and two aggregators
that ask the platform's own service. Runs in an environment that has nvflare.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import sharing

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from local.aggregator.settings import PUBLIC
from local.campaign.defining import read_aggregator
from training.datasets.datasets import register

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE = ROOT / "examples" / "data", (ROOT / "docs" / "reference" / "institutions.md").read_text("utf-8")
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.S)[0]
ROWS = 10_853  # of each
SHORT = ("--set", "epochs=2", "--set", "rate=0.5")  # 44 rounds, in place of some 600
Run = Callable[[list[str]], str]


def prepare(folder: Path, home: Home, sites: tuple[str, ...], kits: Path, port: int) -> None:
    """Each institution's home, rows and settings, and the aggregators' folders."""
    url = f"http://127.0.0.1:{port}"
    one, _ = sharing.aggregators(folder, home, url)
    trusted, text = read_aggregator(one / PUBLIC).fingerprint, (DATA / "adult.schema.yaml").read_text()
    table = pq.read_table(DATA / "adult_train.parquet")
    (folder / "people.yaml").write_text(text)
    for at, site in enumerate(sites):
        own = folder / f"{site}-home"
        own.mkdir()
        pq.write_table(table.slice(at * ROWS, ROWS), own / "rows.parquet")
        (own / "own.yaml").write_text(text.replace("records: 32561", f"records: {ROWS}"))
        made = Home.init({"DPSERVE_HOME": str(own / "home")})
        total = Budget.of("2", "0.00001")
        register(made, "clinic", own / "rows.parquet", own / "own.yaml", total, Relation.ADD_REMOVE, "record")
        settings = TOML.replace("https://campaigns.example", url).replace("FINGERPRINT", trusted)
        (kits / site / "local" / "institution.toml").write_text(settings)


def open_study(folder: Path, run: Run, sites: int) -> tuple[str, ...]:
    """The tokens of the two aggregators."""
    asked = ["--epsilon", "1", "--delta", "0.000001", "--owners", str(sites), "--least", "2"]
    whom = [word for name in ("first", "second") for word in ("--aggregator", str(folder / name / PUBLIC))]
    run(["dpserve", "campaign", "population", "clinics", "--schema", "people.yaml", "--owners", str(sites),
         "--epsilon", "5", "--delta", "0.00001", "--unit", "record"])  # fmt: skip
    told = run(["dpserve", "campaign", "open", "study", "--population", "clinics", *asked, *whom,
                "--invitations", "invitations.txt", *SHORT, "--json"])  # fmt: skip
    return tuple(json.loads(told)["tokens"])


def play(
    folder: Path, run: Run, page: str, start: Callable[..., subprocess.Popen[bytes]], end: Callable[[str], list[str]]
) -> list[str]:
    """Ask as the page says, with the aggregators of the compose file; how the job ended."""
    block = page.split("## Rounds of institutions")[1].split("```sh\n")[1].split("```")[0]
    write, submit = (line.split() for line in block.splitlines()[:2])
    tokens = dict(zip(("one", "two"), open_study(folder, run, 3), strict=True))
    both = [start(name, **{f"DPSERVE_TOKEN_{name.upper()}": token}) for name, token in tokens.items()]
    run(write)
    (job,) = set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", run(submit)))
    ended = end(job)
    assert [each.wait(10) for each in both] == [0, 0], [(folder / f"{name}.log").read_text() for name in tokens]
    return ended
