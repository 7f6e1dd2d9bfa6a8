"""What reports on its users is told not to, before it is loaded and, of BentoML, after its command has asked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = "from bentoml._internal.utils.analytics.usage_stats import do_not_track\n"
VARIABLES = ("BENTOML_DO_NOT_TRACK", "ORT_DISABLE_TELEMETRY")


def run(text: str, **more: str) -> str:
    """What a program in a process of its own prints, and why it ended; of these variables it has `more` alone."""
    mine = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", text], env={**mine, **more}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr.rpartition("\nRuntimeError: ")[2]


@pytest.mark.slow
@pytest.mark.parametrize("before", [{}, {"BENTOML_DO_NOT_TRACK": "False"}, {"BENTOML_DO_NOT_TRACK": "True"}])
def test_bentoml_asks_again_when_its_command_has_asked(before):
    quiet = "from accountant.system.quiet import import_quietly\nimport_quietly('bentoml')\nprint(do_not_track())"
    left_alone = "True" if before.get("BENTOML_DO_NOT_TRACK") == "True" else "False"
    assert run(f"{ASK}print(do_not_track())\n{quiet}", **before) == f"{left_alone}\nTrue\n"


def test_a_bentoml_that_would_report_is_not_served(tmp_path):
    """Of a release that keeps the answer elsewhere; who has said so in time is served."""
    (tmp_path / "bentoml.py").write_text("")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom accountant.system.quiet import import_quietly\n"
    text += "import_quietly('bentoml')\nprint('served')"
    assert run(text) == "BentoML would report on its use: start it with BENTOML_DO_NOT_TRACK=True\n"
    assert run(text, BENTOML_DO_NOT_TRACK="True") == "served\n"


def test_onnx_runtime_finds_its_variable_whatever_it_said(tmp_path):
    (tmp_path / "onnxruntime.py").write_text("import os\nprint(os.environ['ORT_DISABLE_TELEMETRY'])")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom accountant.system.quiet import import_quietly\n"
    assert run(f"{text}import_quietly('onnxruntime')", ORT_DISABLE_TELEMETRY="0") == "1\n"
