"""Encrypting stored secrets (security L-1, L-2)."""

import base64
import hashlib

import pytest

from adapters.crypto import AesVault, generate_key, parse_keys
from ports.crypto import SealBroken, SecretContext, Vault
from tests.tables import table

CONTEXT = SecretContext("mfa_secrets", "0b6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a01", "secret")


def new_vault(*ids: str) -> AesVault:
    return AesVault([(key_id, hashlib.sha256(key_id.encode()).digest()) for key_id in ids or ("k1",)])


def test_the_vault_decrypts_its_values() -> None:
    vault: Vault = new_vault()
    for plaintext in (b"", b"x", b"secret" * 1000):
        sealed = vault.seal(plaintext, CONTEXT)
        assert vault.open(sealed, CONTEXT) == plaintext
        assert len(plaintext) < 6 or plaintext not in sealed  # a short plaintext can occur in the ciphertext by chance
    assert vault.seal(b"x", CONTEXT) != vault.seal(b"x", CONTEXT)


def test_a_value_decrypts_only_in_its_context() -> None:
    vault = new_vault()
    sealed = vault.seal(b"secret", CONTEXT)
    for context in (
        SecretContext("mfa_secrets", "other-row", "secret"),
        SecretContext("mfa_secrets", CONTEXT.row, "backup"),
        SecretContext("webhooks", CONTEXT.row, "secret"),
        SecretContext("mfa_secrets", CONTEXT.row + "s", "ecret"),
    ):
        with pytest.raises(SealBroken, match="copied from another row or column"):
            vault.open(sealed, context)


def test_contexts_with_the_same_joined_text_are_different() -> None:
    vault = new_vault()
    sealed = vault.seal(b"secret", SecretContext("a", "b", "c.d"))
    for context in (SecretContext("a.c", "b", "d"), SecretContext("a", "bc", ".d"), SecretContext("ab", "", "c.d")):
        with pytest.raises(SealBroken):
            vault.open(sealed, context)


def test_a_value_with_any_changed_byte_does_not_decrypt() -> None:
    vault = new_vault("k1", "k2")
    sealed = vault.seal(b"secret", CONTEXT)
    for position in range(len(sealed)):
        for bit in (1, 128):
            tampered = bytearray(sealed)
            tampered[position] ^= bit
            with pytest.raises(SealBroken):
                vault.open(bytes(tampered), CONTEXT)
    for broken in (b"", b"\x01", b"secret", sealed[:-1], sealed[1:], sealed + b"x", b"\x01\xff" + sealed[2:]):
        with pytest.raises(SealBroken):
            vault.open(broken, CONTEXT)
        assert not vault.is_current(broken[:10])


def test_a_value_does_not_decrypt_under_another_key_id() -> None:
    key = b"k" * 32  # the same key under two ids: the tag also covers the id
    vault = AesVault([("k1", key), ("k2", key)])
    sealed = vault.seal(b"secret", CONTEXT)
    assert sealed[:4] == b"\x01\x02k1"
    with pytest.raises(SealBroken):
        vault.open(b"\x01\x02k2" + sealed[4:], CONTEXT)


def test_the_error_names_an_unknown_key_and_there_is_no_fallback() -> None:
    sealed = new_vault("old").seal(b"secret", CONTEXT)
    with pytest.raises(SealBroken, match="encrypted with the key 'old', which is not configured"):
        new_vault("new").open(sealed, CONTEXT)
    with pytest.raises(SealBroken, match="is not an encrypted value"):
        new_vault("new").open(b"plaintext that was never sealed, long enough for a nonce and a tag", CONTEXT)


def test_the_first_key_encrypts_and_all_keys_decrypt() -> None:
    before, after = new_vault("old"), new_vault("new", "old")
    sealed = before.seal(b"secret", CONTEXT)
    assert before.is_current(sealed)
    assert not after.is_current(sealed)
    resealed = after.seal(after.open(sealed, CONTEXT), CONTEXT)
    assert after.is_current(resealed)
    assert new_vault("new").open(resealed, CONTEXT) == b"secret"


def test_columns_do_not_share_a_derived_key() -> None:
    vault = new_vault()
    for context in (CONTEXT, SecretContext("webhooks", CONTEXT.row, "secret"), SecretContext("mfa_secrets", CONTEXT.row, "backup")):
        vault.seal(b"secret", context)
    assert len({id(cipher) for cipher in vault._derived.values()}) == 3
    nonce = b"n" * 12
    assert len({cipher.encrypt(nonce, b"secret", None) for cipher in vault._derived.values()}) == 3


@table(
    ("keys", "sentence"),
    [
        ([], "At least one encryption key is needed"),
        ([("k1", b"")], "'k1' has 0 bytes; it must have 32"),
        ([("k1", b"x" * 32), ("k2", b"x" * 31)], "'k2' has 31 bytes; it must have 32"),
        ([("", b"x" * 32)], "The id of encryption key 1"),
        ([("k1", b"x" * 32), ("k 2", b"x" * 32)], "The id of encryption key 2"),
        ([("k" * 33, b"x" * 32)], "The id of encryption key 1"),
        ([("k1", b"x" * 32), ("k1", b"y" * 32)], "Two encryption keys have the same id"),
    ],
)
def test_unusable_keys_stop_the_start(keys: list[tuple[str, bytes]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AesVault(keys)


def test_keys_are_parsed_in_all_base64_forms() -> None:
    key = bytes(range(223, 255))
    standard, urlsafe = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()
    assert standard != urlsafe
    text = f"k1:{standard}, k2:{urlsafe} ,k3:{standard.rstrip('=')}"
    assert parse_keys(text) == (("k1", key), ("k2", key), ("k3", key))


def test_a_generated_key_can_be_parsed() -> None:
    first, second = generate_key(), generate_key()
    assert first != second
    vault = AesVault(parse_keys(f"{first},{second}"))
    assert vault.open(vault.seal(b"secret", CONTEXT), CONTEXT) == b"secret"


@table("text", ["", "k1", "c2VjcmV0LXNlY3JldA==", "k1:c2Vj*cmV0", "k1:a", "k1:c2VjcmV0, ", "k1:\u00e9"])
def test_unreadable_keys_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(ValueError, match=r"Encryption key \d is not of the form id:base64\.") as error:
        parse_keys(text)
    assert "c2Vj" not in str(error.value)


def test_the_representation_contains_no_secret() -> None:
    vault = AesVault([("k1", b"0123456789abcdef0123456789ABCDEF")])
    sealed = vault.seal(b"open sesame", CONTEXT)
    with pytest.raises(SealBroken) as broken:
        vault.open(sealed + b"x", CONTEXT)
    representation = repr(vault) + repr(broken.value)
    assert "0123456789" not in representation
    assert "sesame" not in representation
