"""The image, built and run: `make image-test` (root, Debian, buildah), as continuous integration does. `make test`
leaves it out by its marker.
"""

from __future__ import annotations

import json
import os
import re
import time
from types import SimpleNamespace

import httpx
import pytest
from containers import Container, Images, timed, wheels
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from packaging.utils import canonicalize_name
from postgres import server
from small_home import ROOT, free_port, records, until, write_files

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.system("buildah", "setpriv", "unshare", "apt-cache")]
PEM = (pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, pkix.NoEncryption())
SECRETS = ("pip.conf", "PIP_", "dps_", "PRIVATE KEY", "index-url")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("the image is built and entered as root")
    folder = tmp_path_factory.mktemp("images")
    folder.chmod(0o755)
    now = time.monotonic()
    images = Images(folder)
    images.base()
    now = timed("base", now)
    found = wheels(folder)
    now = timed("wheels", now)
    images.build(found)
    timed("build", now)
    yield images
    images.remove()


@pytest.fixture(scope="module")
def place(image, tmp_path_factory):
    """Three containers of one image: one makes the home, one is a door, one works. All see the home and a PostgreSQL,
    who works the rows besides, and the door no issuer's key.
    """
    folder = tmp_path_factory.mktemp("volumes")
    for parent in (folder, *folder.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)  # the last may be everybody's, who write to it, too
    owner, port, database = 10001, free_port(), server()
    database.folder.chmod(0o711)  # its socket is for the containers too
    inputs = write_files(folder / "inputs")
    for path in (inputs, *inputs.iterdir()):
        path.chmod(0o755)
    names = ("shared", "rows", "one", "two", "three", "other-shared", "other-own")
    volumes = {name: folder / name for name in names}
    for name, path in volumes.items():
        path.mkdir(mode=0o700)
        os.chown(path, 20002 if name.startswith("other") else owner, 20002 if name.startswith("other") else owner)
    (folder / "secrets").mkdir()
    secret = folder / "secrets" / "issuer.pem"
    secret.write_bytes(Ed25519PrivateKey.generate().private_bytes(*PEM))
    secret.chmod(0o440)
    os.chown(secret, 0, owner)  # as a cluster mounts a Secret for fsGroup
    config, root = image.config(), image.root
    shared = {volumes["shared"]: "/var/lib/dpserve", inputs: "/mnt", database.folder: "/media"}
    works = shared | {folder / "secrets": "/run/secrets/dpserve"}
    settings = {
        "DPSERVE_LEDGER_URL": database.fresh().replace(str(database.folder), "/media"),
        "DPSERVE_HOST": "127.0.0.1",
        "DPSERVE_PORT": str(port),
        "DPSERVE_WORKERS": "1",
        "DPSERVE_JOB_WORKERS": "0",
        "DPSERVE_AUDIT_SECONDS": "0",
    }
    key = {"DPSERVE_ISSUER_KEY": "file:/run/secrets/dpserve/issuer.pem"}
    door = {"DPSERVE_ISSUER_KEY": "none", "DPSERVE_UPLOAD_BYTES": "0"}
    first = Container(root, config, works | {volumes["three"]: "/var/local/dpserve"}, more=settings | key)
    one = Container(root, config, shared | {volumes["one"]: "/var/local/dpserve"}, more=settings | door)
    works |= {volumes["rows"]: "/var/lib/dpserve/home/datasets", volumes["two"]: "/var/local/dpserve"}
    two = Container(root, config, works, more=settings | key)
    return SimpleNamespace(
        first=first, one=one, two=two, port=port, config=config, volumes=volumes, folder=folder, root=root
    )


def test_image_says_how_it_runs(image):
    config = image.config()
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["dpserve"]
    assert config["Cmd"] == ["serve"]
    assert set(config["Volumes"]) == {"/var/lib/dpserve", "/var/local/dpserve", "/tmp"}
    assert config["Healthcheck"]["Test"] == ["CMD", "python3", "-m", "serving.process.config.healthy"]
    told = json.dumps(config)
    assert [secret for secret in SECRETS if secret in told] == []


def test_image_holds_the_project_alone_and_nothing_that_others_can_write(image):
    root = image.root
    assert not (root / "etc/pip.conf").exists()
    assert not (root / "src").exists()
    assert not (root / "wheels").exists()
    site = next((root / "opt/dpserve/lib").glob("python3.*/site-packages"))
    assert not (site / "tests").exists()
    assert not (root / "opt/build").exists()
    there = {canonicalize_name(path.name.split("-")[0]) for path in site.glob("*.dist-info")}
    assert {"pip", "setuptools", "wheel", "uv", "bentoml", "nvidia-ml-py", "watchfiles"} & there == set()
    listed = json.loads((root / "opt/dpserve/sbom.json").read_text())
    licences = {canonicalize_name(part["name"]): json.dumps(part.get("licenses", "")) for part in listed["components"]}
    assert licences.keys() == there
    notice = (ROOT / "NOTICE").read_text()
    strict = {name for name, text in licences.items() if re.search("GPL|MPL|Mozilla", text)}
    named = {canonicalize_name(name) for name in re.findall(r"[\w-]+", notice[notice.index("  psycopg") :])}
    assert strict == named & there
    assert (site / "serving/grafana/alerts.yml").read_text() == (ROOT / "serving/grafana/alerts.yml").read_text()
    loose = [
        path
        for path in (root / "opt").rglob("*")
        if not path.is_symlink() and (path.stat().st_mode & 0o022 or path.stat().st_uid or path.stat().st_mode & 0o6000)
    ]
    assert loose == []


def test_two_containers_share_a_home_and_a_ledger(place):
    """One serves, without rows and issuer key, the other registers and trains; nothing but their volumes can be
    written.
    """
    now = time.monotonic()
    one, two = place.one, place.two
    for _ in range(2):
        place.first.dpserve("init", "--if-absent")
    schema = ["--data", "/mnt/rows.parquet", "--schema", "/mnt/schema.yaml"]
    total = ["--epsilon", "3", "--delta", "1e-6"]
    two.dpserve("dataset", "register", "adult", *schema, *total)
    scopes = [part for scope in ("train", "predict", "audit") for part in ("--scope", scope)]
    token = {"Authorization": "Bearer " + two.dpserve("token", "create", *scopes, "--name", "t")["token"]}
    now = timed("init, register, token", now)
    url, log = f"http://127.0.0.1:{place.port}", place.folder / "log"
    health = place.config["Healthcheck"]["Test"][1:]
    two.run(*health, code=1)
    with one.started(log) as process:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return httpx.get(f"{url}/readyz").status_code == 200
            except httpx.TransportError:
                return False

        until(ready, "the server in the container is ready")
        now = timed("serve to ready", now)
        two.run(*health)
        body = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.5", "parameters": {"rounds": "10"}}
        asked = httpx.post(f"{url}/v1/jobs", json=body, headers=token, timeout=60)
        assert asked.status_code == 202, asked.text
        assert [each["name"] for each in one.dpserve("dataset", "list")["datasets"]] == ["adult"]
        assert "Your own messy table" in httpx.get(f"{url}/docs", headers=token, timeout=60).text
        done = two.run("dpserve", "worker", "--once", "--json")
        ran = json.loads(done.stdout)
        assert (ran["job"], ran["state"]) == (asked.json()["job"], "committed"), done.stderr
        now = timed("the job, in the other container", now)

        def predicted() -> httpx.Response:
            body = {"model": "adult", "records": records(3)}
            return httpx.post(f"{url}/predict", json=body, headers=token, timeout=60)

        until(lambda: predicted().status_code == 200, "the model is served")
        assert len(predicted().json()["predictions"]) == 3
        assert httpx.get(f"{url}/metrics", headers=token, timeout=60).status_code == 200
        assert two.dpserve("ledger", "audit")["ok"]
    assert process.returncode == 0, log.read_text()[-3000:]
    timed("prediction, metrics, audit, stop", now)
    assert (place.volumes["one"] / "logs/access.jsonl").exists()
    assert (place.volumes["one"] / "run").stat().st_mode & 0o777 == 0o700
    assert not (place.volumes["shared"] / "home/logs").exists()
    assert not (place.volumes["shared"] / "home/keys/issuer.pem").exists()
    assert list((place.volumes["shared"] / "home/datasets").iterdir()) == []
    assert len(list(place.volumes["rows"].glob("*/bins.npy"))) == 1
    assert list(place.volumes["two"].rglob("*.nbc")) == []  # what computes was compiled in the image


def test_root_cannot_be_written_and_the_user_has_no_power(place):
    code = (
        "import os, pathlib\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "assert 'CapEff:\\t0000000000000000' in status and 'NoNewPrivs:\\t1' in status, status\n"
        "assert os.getuid() == 10001 and os.listdir('/proc').count('1')\n"
        "for name in ('/x', '/opt/dpserve/x', '/etc/x', '/var/x'):\n"
        "    try: open(name, 'w')\n"
        "    except OSError: continue\n"
        "    raise SystemExit(name)\n"
        "for name in ('/tmp/x', '/var/lib/dpserve/x', '/var/local/dpserve/x'):\n"
        "    open(name, 'w').close()\n"
    )
    place.two.run("python3", "-c", code)


def test_image_runs_as_a_user_without_a_name(place):
    """As clusters do that give each project a number of its own."""
    volumes = {place.volumes["other-shared"]: "/var/lib/dpserve", place.volumes["other-own"]: "/var/local/dpserve"}
    other = Container(place.root, place.config, volumes, user="20002:20002")
    assert other.dpserve("init")["home"] == "/var/lib/dpserve/home"
    assert other.dpserve("ledger", "audit")["ok"]
