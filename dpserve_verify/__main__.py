"""`python -m dpserve_verify`: the command `dpserve-verify`."""

from runpy import run_module

run_module("dpserve_verify.command.program", run_name="__main__", alter_sys=True)
