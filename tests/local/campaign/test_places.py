"""Where a campaign's service may be: an invitation goes to nobody else, and nobody reads it on the way."""

from __future__ import annotations

import pytest

from dpserve_verify.errors import InputError
from local.aggregator.settings import create_folder
from local.aggregator.settings import read_settings as read_aggregator
from local.owner.settings import read_settings

OWNER = """url = "{url}"
trust = "trust.json"
rows = "rows.csv"
ledger = "owner.db"
[policy]
total_epsilon = "3"
largest_epsilon = "1"
"""
REFUSED = (
    "http://127.0.0.1.x", "http://127.0.0.1.example.org/", "http://localhost.example.org", "http://localhosts",
    "http://127.0.0.1@example.org", "http://localhost:80@example.org", "http://example.org", "http://0x7f.1.example",
    "http://127.1", "http://[::2]", "http://", "https://", "https://a@example.org", "https://example.org/?a=b",
    "https://example.org/#a", "https://example.org:port", "https://[x]", "ftp://127.0.0.1", "HTTP", "", "//127.0.0.1",
)  # fmt: skip
FINE = (
    "https://campaigns.example/a", "http://127.0.0.1:3000/", "http://127.255.0.1", "http://localhost:3000",
    "http://[::1]:3000", "HTTPS://campaigns.example",
)  # fmt: skip


@pytest.fixture(params=["owner", "aggregator"])
def settings(request, tmp_path):
    """Read a file of settings with this address; return the address."""

    def read(url):
        if request.param == "owner":
            (tmp_path / "owner.toml").write_text(OWNER.replace("{url}", url))
            return read_settings(tmp_path / "owner.toml").url
        if not (tmp_path / "a").exists():
            create_folder(tmp_path / "a", "a", "{url}")
        text = (tmp_path / "a" / "aggregator.toml").read_text()
        (tmp_path / "a" / "aggregator.toml").write_text(text.replace(text.splitlines()[0], f'url = "{url}"'))
        return read_aggregator(tmp_path / "a").url

    return read


def test_a_service_is_https_or_this_machine(settings):
    for url in REFUSED:
        with pytest.raises(InputError, match="must be https, or this machine"):
            settings(url)
    for url in FINE:
        assert settings(url) == url.rstrip("/")
