"""The doors of a home over real HTTPS on this machine, with a certificate that is made for the test."""

from __future__ import annotations

import datetime
import ipaddress
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from in_process import Site
from small_home import free_port


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate of 127.0.0.1 that signs itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).add_extension(names, critical=False)
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").write_bytes(private)
    (folder / "tls.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    return folder / "tls.key", folder / "tls.pem"


@contextmanager
def served(site: Site, folder: Path) -> Iterator[tuple[str, Path]]:
    """(address, certificate) while it listens."""
    key, pem = certificate(folder)
    port = free_port()
    config = uvicorn.Config(
        site.doors, "127.0.0.1", port, ssl_keyfile=str(key), ssl_certfile=str(pem), log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def look() -> None:
        while not server.should_exit:
            site.look()
            time.sleep(0.3)

    looking = threading.Thread(target=look, daemon=True)  # as a worker does: what was seen long ago is not relied upon
    looking.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    try:
        yield f"https://127.0.0.1:{port}", pem
    finally:
        server.should_exit = True
        thread.join()
        looking.join()
