"""What deploy/ promises in words, read from its files: the tools of `make lint-deploy` judge their form."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from prometheus_rule import RULES, prometheus_rule
from small_home import ROOT

from serving.cli.app import TREE
from serving.process.config.settings import all_settings

DEPLOY, GRAFANA = ROOT / "deploy", ROOT / "serving" / "grafana"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
BASE = DEPLOY / "kubernetes" / "base"
DEPLOYING = (ROOT / "docs" / "deployment.md").read_text()
OURS = ("service", "worker")


def objects() -> list[dict]:
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    files = [BASE / name for name in names if name.endswith(".yaml")]
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in objects() if "template" in each.get("spec", {})}
MIGRATE = yaml.safe_load((DEPLOY / "kubernetes" / "migrate.yaml").read_text())
PODS["dpserve-migrate"] = MIGRATE["spec"]["template"]


def mounts(service: str) -> dict[str, str]:
    """Where -> what, of a service's volumes."""
    return {part[1]: part[0] for part in (text.split(":") for text in COMPOSE["services"][service]["volumes"])}


@pytest.mark.parametrize("name", sorted(PODS))
def test_pods_have_no_power(name):
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    user = re.search(r"^USER (\d+):(\d+)$", CONTAINERFILE, re.M)
    assert [spec["securityContext"][key] for key in ("runAsUser", "fsGroup")] == [int(user[1]), int(user[2])]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_doors_are_asked_over_http_and_workers_hearts_are_looked_at():
    (door,), (worker,) = PODS["dpserve"]["spec"]["containers"], PODS["dpserve-worker"]["spec"]["containers"]
    asked = {kind: door[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert not {"readinessProbe", "ports"} & set(worker)
    beats = ["python3", "-m", "serving.process.config.healthy", "worker"]
    assert {tuple(worker[kind]["exec"]["command"]) for kind in ("startupProbe", "livenessProbe")} == {tuple(beats)}
    assert COMPOSE["services"]["worker"]["healthcheck"]["test"] == ["CMD", *beats]


def test_rows_and_the_issuers_key_are_where_jobs_run_and_nowhere_else():
    """Also not in the container that makes the home, as to the rows: their place must be its own folder."""
    works, door = PODS["dpserve-worker"]["spec"], PODS["dpserve"]["spec"]
    (worker,), (first,), (service,) = works["containers"], works["initContainers"], door["containers"]
    where = [{mount["name"]: mount["mountPath"] for mount in part["volumeMounts"]} for part in (worker, first, service)]
    assert where[0]["rows"] == "/var/lib/dpserve/home/datasets"
    assert ["rows" in each for each in where] == [True, False, False]
    assert ["issuer" in each for each in where] == [True, True, False]
    assert first["args"] == ["init", "--if-absent"]
    for name, mounted, has_key in (("service", False, False), ("worker", True, True)):
        assert ("/var/lib/dpserve/home/datasets" in mounts(name)) is mounted
        assert ("issuer" in COMPOSE["services"][name].get("secrets", [])) is has_key
    doors = [COMPOSE["services"]["service"]["environment"]]
    doors += [each["data"] for each in objects() if "DPSERVE_UPLOAD_BYTES" in each.get("data", ())]
    for given in doors:
        assert [given[f"DPSERVE_{key}"] for key in ("ISSUER_KEY", "JOB_WORKERS", "UPLOAD_BYTES")] == ["none", "0", "0"]


def test_the_step_before_an_upgrade_uses_what_the_base_has():
    pod = PODS["dpserve-migrate"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["migrate"]
    assert "migrate" in TREE
    named = [each["configMapRef"]["name"] for each in container["envFrom"]]
    named += [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert set(named) <= {each["metadata"]["name"] for each in objects()}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_secrets_are_referred_to():
    for pod in PODS.values():
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            assert [each for each in container["env"] if "value" in each] == []
            assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "dpserve-database", "key": "password"}
    assert [each for each in objects() if each["kind"] == "Secret"] == []
    for service in ("service", "worker", "postgres"):
        told = [text for name, text in COMPOSE["services"][service]["environment"].items() if "PASSWORD" in name]
        assert told
        assert all(text.startswith("${DPSERVE_DB_PASSWORD:?") for text in told)
    assert all((DEPLOY / each["file"]).parent.name == "secrets" for each in COMPOSE["secrets"].values())


def test_policies_and_budgets_choose_the_pods_that_there_are():
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    chosen = {}
    for each in objects():
        if each["kind"] in ("NetworkPolicy", "PodDisruptionBudget", "Service"):
            selector = each["spec"].get("podSelector") or each["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            chosen[each["kind"], each["metadata"]["name"]] = sum(wanted.items() <= own.items() for own in labels)
    assert chosen == {
        ("Service", "dpserve"): 1,
        ("Service", "dpserve-pods"): 1,
        ("PodDisruptionBudget", "dpserve"): 1,
        ("PodDisruptionBudget", "dpserve-worker"): 1,
        ("NetworkPolicy", "dpserve"): 3,
        ("NetworkPolicy", "dpserve-doors"): 1,
    }


def test_what_watches_is_one_source():
    """Rules and board are those of serving/grafana; what says them again in deploy/ is made of them, and the scrape of
    compose differs in the addresses alone.
    """
    watched = {**mounts("prometheus"), **mounts("grafana")}
    used = {(DEPLOY / source).resolve() for source in watched.values() if "/" in source and source != "./grafana"}
    assert used == {*(GRAFANA / name for name in ("alerts.yml", "dashboard.json")), DEPLOY / "prometheus.yml"}
    made = yaml.safe_load((GRAFANA / "kustomization.yaml").read_text())["configMapGenerator"]
    assert [(GRAFANA / name).is_file() for each in made for name in each["files"]] == [True, True]
    assert "../../../serving/grafana" in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    written = [path for path in DEPLOY.rglob("*.y*ml") if "node_modules" not in path.parts]
    assert [path for path in written if "- alert:" in path.read_text()] == [RULES]
    assert RULES.read_text() == prometheus_rule(), "run python tests/helpers/prometheus_rule.py"
    alone, composed = (yaml.safe_load((folder / "prometheus.yml").read_text()) for folder in (GRAFANA, DEPLOY))
    assert composed.pop("alerting")["alertmanagers"][0]["static_configs"][0]["targets"] == ["alertmanager:9093"]
    targets = [each["scrape_configs"][0]["static_configs"][0].pop("targets") for each in (alone, composed)]
    assert targets == [["127.0.0.1:3000"], ["service:3000"]]
    assert alone == composed


def test_what_watches_goes_on_where_the_service_begins_anew():
    """No container has the network of another: that is gone with it, and the watcher would see nothing any more."""
    services = COMPOSE["services"]
    assert [name for name, service in services.items() if "network_mode" in service] == []
    reach = {name: set(service["networks"]) for name, service in services.items()}
    for asks, asked in (("prometheus", "service"), ("prometheus", "alertmanager"), ("grafana", "prometheus")):
        assert reach[asks] & reach[asked]
    for name, user in (("grafana", 472), ("prometheus", 65534), ("alertmanager", 65534)):
        assert f"chown {user}" in DEPLOYING, name


@pytest.mark.parametrize(("content", "mode", "begins"), [("x", 0o644, True), ("", 0o644, False), ("x", 0, False)])
def test_grafana_begins_with_its_own_password_or_not_at_all(content, mode, begins):
    """Where it cannot read one, it would take "admin"."""
    shell, option, program = COMPOSE["services"]["grafana"]["entrypoint"]
    other = {"user": 472, "group": 472} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        secret = Path(folder) / "grafana"
        secret.write_text(content)
        secret.chmod(mode)
        program = program.replace("/run/secrets/grafana", str(secret)).replace("/run.sh", "echo begins")
        done = subprocess.run([shell, option, program], capture_output=True, text=True, **other)
    assert (done.stdout, done.returncode) == (("begins\n", 0) if begins else ("", 1))
    assert ("secrets/grafana: must hold" in done.stderr) is not begins


def test_compose_gives_what_the_image_asks_for():
    volumes = set(re.findall(r'"(/[^"]+)"', re.search(r"^VOLUME (.*)$", CONTAINERFILE, re.M)[1]))
    for name in OURS:
        service = COMPOSE["services"][name]
        inside = {"/var/lib/dpserve/home/datasets"} & {*mounts(name)}
        assert {*mounts(name), *(each.split(":")[0] for each in service["tmpfs"])} == volumes | inside
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert mounts("service")["/var/lib/dpserve"] == mounts("worker")["/var/lib/dpserve"]
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert COMPOSE["services"]["worker"]["networks"] == ["data"]


@pytest.mark.parametrize("file", ["compose.federation.yaml", "compose.cluster.yaml"])
def test_services_of_other_files_have_no_power_and_write_to_volumes_alone(file):
    body = yaml.safe_load((DEPLOY / file).read_text())
    user = re.search(r"^USER (\S+)$", CONTAINERFILE, re.M)[1]
    own = {
        name: service
        for name, service in body["services"].items()
        if (file, name) != ("compose.cluster.yaml", "worker")
    }
    for name, service in own.items():
        assert (service["read_only"], service["cap_drop"], service["user"]) == (True, ["ALL"], user), name
        assert service["security_opt"] == ["no-new-privileges:true"]
        written = {
            *(text.split(":")[1] for text in service.get("volumes", ())),
            *(each.split(":")[0] for each in service["tmpfs"]),
        }
        assert {"/tmp", "/var/local/dpserve"} <= written, name
        assert set(service.get("depends_on", ())) <= set(body["services"])
        assert set(service.get("networks", ())) <= set(body.get("networks", ()))
    known = {setting.name for setting in all_settings({})}
    told = {key for service in body["services"].values() for key in service.get("environment", {})}
    assert {key for key in told if key.startswith("DPSERVE")} <= known | {"DPSERVE_AGGREGATOR_TOKEN"}


@pytest.mark.parametrize("file", ["compose.yaml", "compose.federation.yaml", "compose.cluster.yaml"])
def test_no_service_takes_the_memory_of_the_others(file):
    """What no limit holds is ended by the system where all is gone, and it may be the database. Ours have what pods
    have.
    """
    services = yaml.safe_load((DEPLOY / file).read_text())["services"]
    inherits = {("compose.cluster.yaml", "worker")}  # the one of compose.yaml, with another image
    assert {name for name, service in services.items() if "mem_limit" not in service} == {
        name for where, name in inherits if where == file
    }
    pods = {"service": "dpserve", "worker": "dpserve-worker"}
    for name, pod in pods.items() if file == "compose.yaml" else ():
        (container,) = PODS[pod]["spec"]["containers"]
        assert container["resources"]["limits"]["memory"].lower().removesuffix("i") == services[name]["mem_limit"]


def test_settings_are_ours():
    known = {setting.name for setting in all_settings({})}
    texts = (CONTAINERFILE, (DEPLOY / "compose.yaml").read_text(), (BASE / "settings.yaml").read_text())
    named = {name for text in texts for name in re.findall(r"\b(DPSERVE_[A-Z_]+)(?=[=:] ?[^-?])", text)}
    assert {"DPSERVE_HOME", "DPSERVE_LOCAL", "DPSERVE_LEDGER_URL", "DPSERVE_JOB_WORKERS"} <= named
    assert named <= known


def test_what_the_image_is_built_from_is_not_ignored():
    listed = (ROOT / ".containerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINERFILE, re.M)
    wanted = {name for names in copied for name in names.split() if "$" not in name}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "requirements").glob("image*.txt")}
    kept = [line.removeprefix("!") for line in listed if line.startswith("!")]
    assert [name for name in wanted if not any(name == part or name.startswith(f"{part}/") for part in kept)] == []
    assert "*" in listed
    assert Path(ROOT / ".dockerignore").resolve() == ROOT / ".containerignore"


def test_continuous_integration_judges_the_files_and_builds_the_image_which_make_test_leaves_out():
    called = (ROOT / ".ci" / "run").read_text()
    made = [line.split()[1] for line in called.splitlines() if line.startswith("make ")]
    assert made == ["lint-deploy", "stores-test", "clients-test", "mlflow-test", "federated-test", "image-test", "test"]
    assert "buildah" in re.search(r'^packages="(.*)"$', called, re.M).group(1).split()
    assert "not image and not stores and not clients and not mlflow$(if $(FAST)" in (ROOT / "Makefile").read_text()
