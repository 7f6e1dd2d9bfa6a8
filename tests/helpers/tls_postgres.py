"""A real PostgreSQL that takes one user over TLS alone, under a certificate by an authority of its own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric import ec
from postgres import Server, programs
from small_home import free_port

PASSWORD = "of the tests alone"


def certified(names: tuple[str, ...]) -> tuple[bytes, bytes, bytes]:
    """PEM of a new authority, of a certificate of these names that it signed, and of its private key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    subjects = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("an authority", names[0])]
    now, made = datetime.now(UTC), []
    for own, subject in zip(keys, subjects, strict=True):
        builder = x509.CertificateBuilder(subjects[0], subject, own.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
        is_authority = own is keys[0]
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(pkix.Encoding.PEM))
    private = keys[1].private_bytes(pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, pkix.NoEncryption())
    return made[0], made[1], private


class TlsServer(Server):
    """Listens on the loopback interface, too. `authority`: the PEM of who signed its certificate of `names`."""

    def __init__(self, user: str, names: tuple[str, ...]) -> None:
        source = programs(installed_alone=True)
        if source is None:
            pytest.skip("postgresql: no server of the operating system, and that of PyPI speaks no TLS")
        self.name, self.names, self.port = user, names, free_port()
        super().__init__(source=source)
        self.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'")

    def prepare(self) -> tuple[str, ...]:
        self.authority, certificate, key = certified(self.names)
        rules = f"local all postgres trust\nhostssl all {self.name} 127.0.0.1/32 scram-sha-256\n"
        written = {"pg_hba.conf": rules.encode(), "server.crt": certificate, "server.key": key}
        for name, content in written.items():
            (self.data / name).write_bytes(content)
            (self.data / name).chmod(0o600)
            if self.user is not None:
                os.chown(self.data / name, self.user.pw_uid, self.user.pw_gid)
        return "listen_addresses=127.0.0.1", f"port={self.port}", "ssl=on"

    def empty(self) -> None:
        """Have one empty database of the user, of the same name."""
        self.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        self.execute(f"CREATE DATABASE {self.name} OWNER {self.name}")
