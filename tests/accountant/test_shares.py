"""Shares: what one reader sees is uniform whatever the numbers are, and a sealed share opens for one reader alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy.stats import binomtest, chi2

from accountant.noise import shares
from dpserve_verify.errors import InputError


@pytest.mark.parametrize("bits", [3, 5])
def test_either_share_is_exactly_uniform_on_a_small_modulus(bits, monkeypatch):
    """Every draw of the entropy once, for every value: each share takes every number equally often."""
    size = 1 << bits
    for value in range(-size // 2, size // 2):
        seen = []
        for drawn in range(size):
            raw = np.array([drawn << (64 - bits)], "<u8").tobytes()
            monkeypatch.setattr(shares.os, "urandom", lambda count, raw=raw: raw)
            first, second = shares.split(np.array([value]), size, bits)
            assert shares.join(first, second, bits) == [value]
            seen.append((int(first[0]), int(second[0])))
        for at in (0, 1):
            assert sorted(pair[at] for pair in seen) == list(range(size))


@pytest.mark.statistical
def test_either_share_is_uniform_on_the_real_modulus():
    """Every bit is fair, bytes fit the uniform law, and worst values do not show. False alarms: 1e-6 a figure."""
    for value in (0, 1, -1, 2**62, -(2**62)):
        for share in shares.split(np.full(20_000, value), 2**80):
            raw = np.frombuffer(shares.to_bytes(share), np.uint8)
            ones = np.unpackbits(raw.reshape(-1, 8), axis=1).sum(axis=0)
            assert all(binomtest(int(count), 20_000).pvalue > 1e-6 / 64 for count in ones)
            counts = np.bincount(raw, minlength=256)
            assert ((counts - raw.size / 256) ** 2 / (raw.size / 256)).sum() < chi2.isf(1e-6, 255)


def test_sums_of_shares_are_shares_of_sums():
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**40), 2**40, (50, 7))
    halves = [shares.split(row, 2**50) for row in values]
    first, second = (sum(half[at] for half in halves) for at in (0, 1))
    assert np.array_equal(shares.join(first, second), values.sum(axis=0))
    assert np.array_equal(shares.from_bytes(shares.to_bytes(first)), first)
    with pytest.raises(InputError):
        shares.from_bytes(b"1234567")


def test_sealed_share_opens_for_its_reader_and_purpose_alone():
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    key = own.public_key().public_bytes_raw()
    sealed = shares.seal(b"numbers", key, b"campaign 3 0")
    assert shares.unseal(sealed, own, b"campaign 3 0") == b"numbers"
    assert len(sealed) == len(b"numbers") + shares.OVERHEAD
    assert sealed != shares.seal(b"numbers", key, b"campaign 3 0")
    wrong = [(sealed, other, b"campaign 3 0"), (b"", own, b"campaign 3 0"), (sealed[:-1], own, b"campaign 3 0")]
    wrong += [(sealed, own, about) for about in (b"campaign 4 0", b"campaign 3 1", b"another 3 0", b"")]
    wrong += [
        (sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], own, b"campaign 3 0") for at in (0, 33, -1 % 55)
    ]
    for text, key_of, about in wrong:
        with pytest.raises(InputError, match="does not open"):
            shares.unseal(text, key_of, about)
    assert len(set(itertools.islice((shares.seal(b"", key, b"") for _ in range(3)), 3))) == 3
