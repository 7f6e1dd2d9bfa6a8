"""What is done to NVFlare's own files: a site that runs installed code alone, and the job that asks a campaign.

    python -m local.federated guard SITE             # a provisioned server's or client's folder
    python -m local.federated job survey --out JOB --site north --site south --site west

Needs no nvflare: files in, files out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpserve_verify.errors import InputError
from local.federated.words import ANSWER, ASKING, INSTITUTION, ROUNDS, SEEN, TAKEN

LOGS = "site_log_streamer"
RESOURCES, AUTHORIZATION = "resources.json", "authorization.json"
MAY = {  # what one who submits jobs may do; nothing else is granted to anybody, code in a job least of all
    "submit_job": "any", "clone_job": "none", "manage_job": "n:submitter", "download_job": "n:submitter",
    "view": "any", "operate": "none", "shell_commands": "none", "byoc": "none", "server-predeployed-flwr": "none",
}  # fmt: skip
OPERATE = {"operate": "any"}
ROLES = {
    "project_admin": MAY | OPERATE, "lead": MAY, "org_admin": MAY | {"submit_job": "none"} | OPERATE,
    "member": {"view": "any"},
}  # fmt: skip


def guard(site: Path) -> None:
    """Make a provisioned folder run the two installed classes and no other, refuse jobs that bring code, and keep its
    logs: NVFlare would send a site's to the server, and an institution's say what is left of its budget.

    InputError where it is no provisioned folder, or has not the files that NVFlare 2.9 gives it.
    """
    local = site / "local"
    try:
        resources = json.loads((local / f"{RESOURCES}.default").read_text("utf-8"))
        permissions = json.loads((local / f"{AUTHORIZATION}.default").read_text("utf-8"))
        version = permissions["format_version"]
    except (OSError, ValueError, KeyError):
        raise InputError(f"site={site.name}: has no local/{RESOURCES}.default of NVFlare 2.9; provision it") from None
    allowed_components = [component for component in resources.get("components", []) if component.get("id") != LOGS]
    allowed = {"class_allow_list": [ASKING, INSTITUTION], "class_list_enforcement_mode": "enforce"}
    _write(local / RESOURCES, resources | allowed | {"components": allowed_components, "allow_log_streaming": False})
    _write(local / AUTHORIZATION, {"format_version": version, "permissions": ROLES})


def write_job(folder: Path, campaign: str, sites: Sequence[str], seconds: int = 60) -> None:
    """Write a job of configuration alone. The sites' places in the list are their numbers as owners. InputError where
    the folder is there, or sites are not different ones.
    """
    if folder.exists():
        raise InputError(f"out={folder.name}: is there already")
    if not sites or len(set(sites)) != len(sites):
        raise InputError("sites: must be different ones, at least one")
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    _write(folder / "meta.json", {
        "name": f"dpserve-{campaign}", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]},
    })  # fmt: skip
    asking = {"id": "ask", "path": ASKING, "args": {"campaign": campaign, "sites": list(sites), "seconds": seconds}}
    _write(config / "config_fed_server.json", {"format_version": 2, "workflows": [asking], "components": []})
    executor = {"tasks": [SEEN, ANSWER, TAKEN, ROUNDS], "executor": {"path": INSTITUTION, "args": {}}}
    _write(config / "config_fed_client.json", {"format_version": 2, "executors": [executor], "components": []})


def _write(path: Path, body: dict[str, Any]) -> None:
    path.write_text(json.dumps(body, indent=2) + "\n", "utf-8")
