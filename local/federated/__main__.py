"""`python -m local.federated guard | job`: see `local.federated.workspace`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpserve_verify.errors import DpserveError
from local.federated import workspace


def main() -> int:
    """Run the command, and return its exit code: 0 when it is done, 2 where what was given is not right."""
    parser = argparse.ArgumentParser(prog="python -m local.federated", description=workspace.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    guard = commands.add_parser("guard", help="let a provisioned site run installed code alone")
    guard.add_argument("site", type=Path, nargs="+", help="folders that `nvflare provision` made")
    job = commands.add_parser("job", help="write the job that asks a campaign")
    job.add_argument("campaign")
    job.add_argument("--out", type=Path, required=True, help="a new folder")
    job.add_argument("--site", action="append", required=True, help="an institution; always in the same order")
    job.add_argument("--seconds", type=int, default=60, help="how long answers are waited for")
    asked = parser.parse_args()
    try:
        if asked.command == "guard":
            for site in asked.site:
                workspace.guard(site)
        else:
            workspace.write_job(asked.out, asked.campaign, asked.site, asked.seconds)
    except DpserveError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
