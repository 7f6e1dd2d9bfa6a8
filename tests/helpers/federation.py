"""A federation of three institutions on this machine, by NVFlare's own programs: `federation.py FOLDER` writes what
came of it to FOLDER/found.json. Runs in an environment that has nvflare, in a network with loopback alone where it may.

The server is an adversary's: it lets every job in. What is refused is refused by the institutions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import federated_rounds  # noqa: E402
import numpy as np  # noqa: E402
import owners  # noqa: E402
from composed import Composed  # noqa: E402
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session  # noqa: E402
from pages import part  # noqa: E402

from accountant.home import Home  # noqa: E402
from local.campaign import campaigns  # noqa: E402
from local.federated.workspace import guard, write_job  # noqa: E402
from local.owner.own_ledger import OwnLedger  # noqa: E402

SITES, USER = ("north", "south", "west"), "user@platform.example"
PAGE = part("docs/reference/institutions.md", "Over NVFlare")
PROJECT = PAGE.split("```yaml\n")[1].split("```")[0]
OWNER = """\
url = "https://campaigns.example"
trust = "trust.json"
rows = "rows.csv"
ledger = "owner.db"

[question]
target = "answer"
classes = ["no", "yes"]
features = ["a", "b", "c"]

[policy]
total_epsilon = "{total}"
largest_epsilon = "2"
"""
SHIPPED = """\
from pathlib import Path
from nvflare.apis.executor import Executor

class Shipped(Executor):
    def __init__(self):
        super().__init__()
        Path("{mark}").write_text("ran")

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        return shareable
"""


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    began = time.monotonic()
    os.environ.update({
        "DPSERVE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "NVFLARE_ENABLE_METRICS": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    })  # fmt: skip
    home = Home.init()
    owners.asking(folder, home, len(SITES))
    ports = [_free(), _free(), _free()]
    (folder / "project.yml").write_text(PROJECT.replace("8002", str(ports[0])).replace("8003", str(ports[1])))
    provision = [sys.executable, "-m", "nvflare.cli", "provision", "-p", "project.yml", "-w", "workspace"]
    subprocess.run(provision, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    kits = folder / "workspace" / "campaigns" / "prod_00"
    _let_in_everything(kits / "localhost", folder)
    for at, site in enumerate(SITES):
        guard(kits / site)
        local = kits / site / "local"
        shutil.copy(folder / "home" / "trust.json", local / "trust.json")
        people = owners.people(60, at)
        if site == "south":  # whose rows fit no question: it answers, and is charged, as any other
            people["answer"] = np.full(60, "perhaps")
        owners.write(local / "rows.csv", people)
        (local / "owner.toml").write_text(OWNER.format(total="5" if site != "west" else "2"))
    federated_rounds.prepare(folder, home, SITES, kits, ports[2])
    programs: list[subprocess.Popen[bytes]] = []

    def start(name: str, **given: str) -> subprocess.Popen[bytes]:
        programs.append(_composed(folder, kits, ports[2], given).start(name, folder / f"{name}.log"))
        return programs[-1]

    for name in ("service", "server", *SITES):
        start(name)
    try:
        session = _session(kits)
        found["stranger"], found["member"] = _greeted(ports[0], kits, None), _greeted(ports[0], kits, "north")
        stop = ["nvflare", "system", "shutdown", "client", "north", "--force", "--startup-kit", str(kits / USER)]
        stopped = subprocess.run(stop, cwd=folder, capture_output=True, timeout=60, check=False)
        found["stopped"] = stopped.returncode == 0 or programs[2].poll() is not None  # the north
        listed, close, asked = _ask_as_the_page_says(folder)
        brought = _submit(session, folder, "code", shipped=True)
        other = _submit(session, folder, "other", path="nvflare.app_common.np.np_trainer.NPTrainer")
        found["survey"] = _end(session, asked)
        found["listed"] = any(asked in line and "COMPLETED" in line for line in _run(listed, folder).splitlines())
        found["reports"] = campaigns.state(home, "survey")["reports"]
        found["seconds"] = time.monotonic() - began
        before = _lines(kits)
        found |= {"code": _end(session, brought), "other": _end(session, other)}
        found["ran"] = (folder / "mark").exists()
        owners.asking(folder, home, len(SITES), name="again")  # the west has nothing left
        found["again"] = _end(session, _submit(session, folder, "again"))
        found["again reports"] = campaigns.state(home, "again")["reports"]
        found["survey again"] = _end(session, _submit(session, folder, "twice", campaign="survey"))
        after = _lines(kits)
        found["same bytes"] = all(after[site][0][:2] == before[site][0][:2] for site in SITES)
        found["lines"] = {site: [line[0] for line in after[site]] for site in SITES}
        found["sent"] = all(line[2] for site in SITES for line in after[site])
        found["study"] = federated_rounds.play(
            folder, lambda command: _run(command, folder), PAGE, start, lambda job: _end(session, job, 400)
        )
        found["rounds"] = campaigns.state(home, "study")
    finally:
        for program in programs:
            with suppress(ProcessLookupError):  # an aggregator that has answered
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    found["study closed"] = json.loads(_run([*["dpserve", "campaign", "close", "study"], "--json"], folder))["state"]
    found["closed"] = json.loads(_run([*close, "--json"], folder))["state"]
    (folder / "found.json").write_text(json.dumps(found))


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _let_in_everything(server: Path, folder: Path) -> None:
    """NVFlare's own rules, which let the user bring code; any class; and its files in `folder`."""
    text = (server / "local" / "resources.json.default").read_text().replace("/tmp/nvflare/", f"{folder}/")
    (server / "local" / "resources.json").write_text(json.dumps(json.loads(text) | {"class_allow_list": ["*"]}))


def _composed(folder: Path, kits: Path, port: int, given: dict[str, str]) -> Composed:
    """The compose file of deploy/, its volumes at folders of this test."""
    places = {"./platform": folder, "./one": folder / "first", "./two": folder / "second"}
    places |= {f"./{site}": folder / f"{site}-home" for site in SITES}
    kit = "./workspace/campaigns/prod_00"
    places |= {f"{kit}/server": kits / "localhost", **{f"{kit}/{site}": kits / site for site in SITES}}
    return Composed([ROOT / "deploy" / "compose.federation.yaml"], places, given, {"DPSERVE_PORT": str(port)})


def _session(kits: Path) -> Session:
    """Once the server answers, and all institutions are there."""
    for _ in range(60):
        try:
            session = new_secure_session(USER, str(kits / USER), timeout=5)
            break
        except Exception:
            time.sleep(0.5)
    while len(session.get_system_info().client_info) < len(SITES):
        time.sleep(0.3)
    return session


def _greeted(port: int, kits: Path, site: str | None) -> bool:
    """Whether the server speaks to who connects: with a site's certificate, or with none."""
    startup = kits / "north" / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.set_alpn_protocols(["h2"])
    if site:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with (
            socket.create_connection(("localhost", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            return bool(secure.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


def _run(command: list[str], folder: Path) -> str:
    """What a command of the page prints."""
    names = {"python": [sys.executable], "dpserve": [sys.executable, "-m", "serving.cli"]}
    real = [*names.get(command[0], command[:1]), *command[1:]]
    done = subprocess.run(real, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _ask_as_the_page_says(folder: Path) -> tuple[list[str], list[str], str]:
    """The commands that list jobs and close the campaign, and the job that the page's first two made."""
    block = PAGE.split("## Ask")[1].split("```sh\n")[1].split("```")[0]
    write, submit, listed, close = (line.split() for line in block.splitlines())
    _run(write, folder)
    (job,) = set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", _run(submit, folder)))
    return listed, close, job


def _submit(
    session: Session, folder: Path, name: str, path: str = "", shipped: bool = False, campaign: str = ""
) -> str:
    """A job as the platform writes it; or with another class, or with code in it."""
    job = folder / "jobs" / name
    write_job(job, campaign or (name if name == "again" else "survey"), SITES, 30 if not (path or shipped) else 3)
    file = job / "app" / "config" / "config_fed_client.json"
    if shipped:
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "shipped.py").write_text(SHIPPED.format(mark=folder / "mark"))
        path = "shipped.Shipped"
    if path:
        body = json.loads(file.read_text())
        body["executors"][0]["executor"]["path"] = path
        file.write_text(json.dumps(body))
    return str(session.submit_job(str(job)))


def _end(session: Session, job: str, seconds: float = 90) -> list[str]:
    """How a job ended, and what was said of it where it was deployed."""
    session.monitor_job(job, timeout=seconds, poll_interval=0.5)
    meta = session.get_job_meta(job)
    return [str(meta["status"]), *map(str, meta.get("job_deploy_detail", []))]


def _lines(kits: Path) -> dict[str, list[tuple[str, str, str | None]]]:
    """Of each institution's own ledger: campaign, bytes, when it was confirmed."""
    ledgers = {site: OwnLedger(kits / site / "local" / "owner.db") for site in SITES}
    return {site: [(each.campaign, each.body.hex(), each.sent) for each in ledger.lines()]
            for site, ledger in ledgers.items()}  # fmt: skip


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # NVFlare's threads would keep it
