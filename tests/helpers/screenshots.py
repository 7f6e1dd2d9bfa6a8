"""The pictures of docs/img, made anew: `PYTHONPATH=.:tests/helpers python tests/helpers/screenshots.py`.

A home with two datasets and some jobs, a real server, a real Chromium.

Pictures hold the noise of the day they were made on; nothing compares them.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import chromium, signed_in
from small_home import DATA, ROOT, Server, dpserve, serving, until, write_files

OUT = ROOT / "docs" / "img"
MOST_BYTES = 150_000
HEIGHT = 1500  # of a picture at most: pages may be longer
JOBS = (("lazybb", "0.5"), ("ebm", "0.9"), ("forest", "0.4"), ("bdpe", "0.7"), ("lazybb", "0.6"))
LIGHT, DARK, PHONE = {}, {"dark": True}, {"phone": True, "dark": True}
REFUSED, PLOT = "text=does not fit >> visible=true", "#plots[aria-busy=false] .plot svg"
FORM = "/ui/jobs/new?dataset=adult&learner=lazybb&epsilon="
# name, address (of a part of a page: as much as the window shows), how, what is pressed once it is there, and what must
# be there before the picture is taken
SHOTS = (
    ("overview", "/ui", LIGHT, "", "text=Newest jobs"),
    ("dataset", "/ui/datasets/adult", LIGHT, "", "#fit + ul, .fit"),
    ("job-price", f"{FORM}0.4", LIGHT, "", "text=used before"),
    ("job-refused", "/ui/jobs/new?dataset=visits&learner=forest&epsilon=0.95", DARK, "", REFUSED),
    ("job-phone", "/ui/jobs/{job}", PHONE, "", "text=Certificate signed"),
    ("model-shapes", "/ui/models/adult-ebm#decides", LIGHT, "", PLOT),
    ("model-what-if", "/ui/models/adult-ebm#whatif", LIGHT, "", ".answer .said"),
    ("model-verify", "/ui/models/adult-ebm#verify", LIGHT, "#verify button:enabled", "#verify .verdict .good"),
    ("edit", "/ui/models/adult-ebm/edit?feature=age", LIGHT, "", ".picture .now"),
    ("register", "/ui/drafts/{draft}", LIGHT, "", "text=Say what each column is"),
    ("ledger-entry", "/ui/ledger/{job}", LIGHT, "", ".ticks li.good"),
)


def second(folder: Path) -> Path:
    """Other people, so that they may have a budget of their own."""
    import pyarrow.parquet as pq

    folder.mkdir()
    pq.write_table(pq.read_table(DATA / "adult_train.parquet").slice(5000, 1500), folder / "rows.parquet")
    (folder / "schema.yaml").write_text((DATA / "adult.schema.yaml").read_text().replace("32561", "1500"))
    return folder


def fill(home: Path, folder: Path) -> None:
    for name, files, epsilon in (("adult", write_files(folder / "a"), "3"), ("visits", second(folder / "b"), "1")):
        place = ("--data", str(files / "rows.parquet"), "--schema", str(files / "schema.yaml"))
        done = dpserve(home, "dataset", "register", name, *place, "--epsilon", epsilon, "--delta", "1e-6")
        assert done.returncode == 0, done.stderr


def work(server: Server) -> int:
    asked = [("adult", *job) for job in JOBS] + [("visits", "lazybb", "0.96")]
    for dataset, learner, epsilon in asked:
        body = {"dataset": dataset, "learner": learner, "epsilon": epsilon, "delta": "1e-7"}
        body |= {"model": dataset if learner == "lazybb" else f"{dataset}-{learner}"}
        job = server.post("/v1/jobs", body, scope="train").json()["job"]
        until(lambda job=job: server.get(f"/v1/jobs/{job}").json()["state"] == "issued", f"job {job}")
        time.sleep(2)
    server.post("/v1/audits", {})
    until(lambda: server.get("/v1/audits/last").json().get("entries", 0) > job, "an audit of all of it")
    return job


def brought(server: Server) -> str:
    """A draft: the first rows of the messy table."""
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "messy.csv"
        subprocess.run([sys.executable, ROOT / "examples" / "messy.py", table, table.with_suffix(".yaml")], check=True)
        rows = table.read_bytes()[: 1 << 20].rpartition(b"\nP")[0] + b"\n"
    draft = server.post("/v1/drafts", {"file": "messy.csv", "bytes": len(rows)}).json()["draft"]
    part = {"content": rows, "headers": {"Content-Type": "application/octet-stream"}}
    assert server.ask("PUT", f"/v1/drafts/{draft}/rows?at=0", **part).status_code == 200
    return draft


def packed(raw: bytes) -> bytes:
    """In 160 colours, which is enough for flat pages; cut at HEIGHT."""
    from PIL import Image

    picture = Image.open(io.BytesIO(raw)).convert("RGB")
    picture = picture.crop((0, 0, picture.width, min(picture.height, HEIGHT)))
    out = io.BytesIO()
    picture.quantize(160, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def shoot(server: Server, job: int) -> None:
    OUT.mkdir(exist_ok=True)
    draft = brought(server)
    with chromium() as browser:
        for name, path, how, presses, waits in SHOTS:
            page = signed_in(browser, server, **how)
            page.goto(path.format(job=job, draft=draft))
            if presses:
                page.locator(presses).click()
            page.locator(waits).first.wait_for()
            page.wait_for_timeout(500)
            content = packed(page.screenshot(full_page="#" not in path))
            assert len(content) < MOST_BYTES, (name, len(content))
            (OUT / f"{name}.png").write_bytes(content)
            page.context.close()
            print(f"{name}.png {len(content)}", file=sys.stderr)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        assert dpserve(home, "init").returncode == 0
        (home / "first-token").unlink()  # as its notice asks
        fill(home, Path(scratch))
        with serving(home, workers=1) as server:
            shoot(server, work(server))


if __name__ == "__main__":
    main()
