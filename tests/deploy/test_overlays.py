"""Each overlay as kustomize puts it together, started: environment, arguments, mounted files and probes of its pods,
over a PostgreSQL that takes its user over TLS alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import warm
import yaml
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from small_home import ROOT, Server, free_port, until
from tls_postgres import PASSWORD, TlsServer, certified

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.system("kubectl")]
PRODUCTION = ROOT / "deploy" / "kubernetes" / "overlays" / "production"
COMPONENTS = ROOT / "deploy" / "lint" / "components"
OVERLAYS = [*sorted(PRODUCTION.parent.iterdir()), COMPONENTS]
PLACES = ("/var/lib/dpserve", "/var/local/dpserve", "/etc/dpserve", "/run/secrets/dpserve", "/backup")


@pytest.fixture(scope="module")
def database():
    found = TlsServer("dpserve", ("postgres.example.org", "postgres"))
    yield found
    found.stop()


class Pods:
    """The containers of an overlay, with what is mounted below `folder`."""

    def __init__(self, overlay: Path, folder: Path, database: TlsServer) -> None:
        made = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(made.stdout)}
        self.overlay, self.folder, self.database = overlay, folder, database
        self.secrets = {("dpserve-database", "password"): PASSWORD}
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, pkix.NoEncryption())
        self.files = {
            ("secret", "dpserve-issuer", "issuer.pem"): pem,
            ("configMap", "dpserve-database-ca", "ca.crt"): database.authority,
        }

    def container(self, kind: str, name: str, init: bool = False) -> tuple[dict, dict]:
        """A container of a workload, and the volumes of its pod."""
        spec = self.objects[kind, name]["spec"]
        spec = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]
        return spec["initContainers" if init else "containers"][0], {each["name"]: each for each in spec["volumes"]}

    def listens(self, port: str) -> bool:
        """Return whether a setting of the doors names this port; where one does, Services lead there, and the policy
        lets the same clients in as to HTTP.
        """
        number = self.objects["ConfigMap", "dpserve-doors"]["data"].get(f"DPSERVE_{port.upper()}")
        ports = {each["name"]: each["containerPort"] for each in self.container("StatefulSet", "dpserve")[0]["ports"]}
        if number is None:
            assert port not in ports
            return False
        assert ports[port] == int(number)
        for name in ("dpserve", "dpserve-pods"):
            assert port in [each["targetPort"] for each in self.objects["Service", name]["spec"]["ports"]]
        (rule,) = self.objects["NetworkPolicy", f"dpserve-{port}"]["spec"]["ingress"]
        (doors,) = self.objects["NetworkPolicy", "dpserve-doors"]["spec"]["ingress"]
        assert rule == doors | {"ports": [{"protocol": "TCP", "port": int(number)}]}
        return True

    def environment(self, container: dict, volumes: dict) -> dict[str, str]:
        """What the kubelet gives the container, its mounted files written; paths of mounts lead below `folder`."""
        given: dict[str, str] = {}
        for source in container["envFrom"]:
            given |= self.objects["ConfigMap", source["configMapRef"]["name"]]["data"]
        for each in container["env"]:
            secret = each["valueFrom"]["secretKeyRef"]
            given[each["name"]] = self.secrets[secret["name"], secret["key"]]
        for mount in container["volumeMounts"]:
            self._mount(mount, volumes.get(mount["name"], {}))
        image = {"DPSERVE_HOME": "/var/lib/dpserve/home", "DPSERVE_LOCAL": "/var/local/dpserve"}
        given = {name: self.inside(value) for name, value in (image | given).items()}
        # The name that the certificate is of leads to this machine, and the standard port to a free one.
        return given | {"PGHOSTADDR": "127.0.0.1", "PGPORT": str(self.database.port)}

    def _mount(self, mount: dict, volume: dict) -> None:
        place = Path(self.inside(mount["mountPath"]))
        for (kind, name, key), content in self.files.items():
            if volume.get(kind, {}).get("name", volume.get(kind, {}).get("secretName")) == name:
                file = place if mount.get("subPath") == key else place / key
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)
                file.touch(0o400)
                file.write_bytes(content)

    def inside(self, text: str) -> str:
        for place in PLACES:
            text = text.replace(place, f"{self.folder}{place}")
        return text

    def run(self, kind: str, name: str, init: bool = False, probe: str = "") -> subprocess.CompletedProcess[str]:
        container, volumes = self.container(kind, name, init)
        command = container[probe]["exec"]["command"][1:] if probe else ["-m", "serving.cli", *container["args"]]
        given = self.process(container, volumes)
        return subprocess.run([*warm.python(), *command], capture_output=True, text=True, timeout=120, **given)

    def process(self, container: dict, volumes: dict, **more: str) -> dict:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        kept |= {name: value for name, value in os.environ.items() if name.startswith(("NUMBA_", "WARM_", "XDG_"))}
        return {
            "env": {**kept, "PYTHONPATH": str(ROOT), **self.environment(container, volumes), **more},
            "cwd": self.folder,
        }

    @contextlib.contextmanager
    def started(self, kind: str, name: str, **more: str):
        container, volumes = self.container(kind, name)
        log = self.folder / f"{name}.log"
        given = self.process(container, volumes, **more)
        with log.open("wb") as out:
            command = [sys.executable, "-m", "serving.cli", *container["args"]]
            process = warm.Popen(command, stdout=out, stderr=out, **given)
        server = Server(self.folder, int(more.get("DPSERVE_PORT", 0)), process, log)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(params=OVERLAYS, ids=lambda overlay: overlay.name)
def pods(request, tmp_path, database):
    database.empty()
    return Pods(request.param, tmp_path, database)


def test_an_overlay_reaches_its_database_and_is_ready(pods):
    (pods.folder / "var/lib/dpserve").mkdir(parents=True)
    assert pods.listens("grpc") is (pods.overlay == COMPONENTS)
    port, calls = str(free_port()), str(free_port() if pods.listens("grpc") else 0)
    early = pods.run("StatefulSet", "dpserve")
    assert (early.returncode, "run `dpserve init` first" in early.stderr) == (2, True), early.stderr
    for _ in range(2):  # of each worker that starts
        made = pods.run("Deployment", "dpserve-worker", init=True)
        assert made.returncode == 0, made.stderr
        assert "dps_" not in made.stdout + made.stderr
    token = (pods.folder / "var/lib/dpserve/home/first-token").read_text().strip()
    assert not (pods.folder / "var/lib/dpserve/home/keys/issuer.pem").exists()
    door, _ = pods.container("StatefulSet", "dpserve")
    assert not {"issuer", "rows"} & {mount["name"] for mount in door["volumeMounts"]}
    with pods.started(
        "StatefulSet", "dpserve", DPSERVE_HOST="127.0.0.1", DPSERVE_PORT=port, DPSERVE_GRPC=calls
    ) as server:
        until(server.ready, "the door is ready")
        if calls != "0":
            with grpc.insecure_channel(f"127.0.0.1:{calls}") as channel:
                grpc.channel_ready_future(channel).result(timeout=60)
        server.tokens["admin"] = token
        assert server.get("/v1/models").json()["models"] == []
        assert pods.run("Deployment", "dpserve-worker", probe="livenessProbe").returncode == 1
        with pods.started("Deployment", "dpserve-worker"):
            until(lambda: pods.run("Deployment", "dpserve-worker", probe="livenessProbe").returncode == 0, "it works")


def test_the_production_overlay_trusts_the_named_authority_alone(tmp_path, database):
    database.empty()
    pods = Pods(PRODUCTION, tmp_path, database)
    pods.files["configMap", "dpserve-database-ca", "ca.crt"] = certified(("postgres.example.org",))[0]
    (tmp_path / "var/lib/dpserve").mkdir(parents=True)
    refused = pods.run("Deployment", "dpserve-worker", init=True)
    assert (refused.returncode, "SSL error" in refused.stderr) == (1, True), refused.stderr
    shutil.rmtree(tmp_path / "etc/dpserve")
    del pods.files["configMap", "dpserve-database-ca", "ca.crt"]  # the ConfigMap is optional, its absence is told
    refused = pods.run("Deployment", "dpserve-worker", init=True)
    assert (refused.returncode, "ca.crt" in refused.stderr) == (1, True), refused.stderr


def test_the_nightly_backup_runs_and_old_ones_go(tmp_path, database):
    database.empty()
    pods, folder = Pods(COMPONENTS, tmp_path, database), tmp_path / "backup"
    (tmp_path / "var/lib/dpserve").mkdir(parents=True)
    assert pods.run("Deployment", "dpserve-worker", init=True).returncode == 0
    old, others = folder / "2026-01-01T021700Z", folder / "kept"
    for path in (old, others):
        path.mkdir(parents=True)
        os.utime(path, (0, 0))
    container, volumes = pods.container("CronJob", "dpserve-backup")
    given = pods.process(container, volumes)
    given["env"]["PATH"] = f"{Path(sys.executable).parent}:{given['env']['PATH']}"
    command = [*container["command"], *map(pods.inside, container["args"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **given)
    assert done.returncode == 0, done.stderr
    (new,) = set(folder.iterdir()) - {others}
    assert (new / "ledger.db").stat().st_size > 0
    assert not (new / "keys/issuer.pem").exists()
