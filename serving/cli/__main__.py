"""`python -m serving.cli`: the `dpserve` command."""

from __future__ import annotations

from serving.cli.app import main

main()
