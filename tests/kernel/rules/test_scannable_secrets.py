"""Secrets that scanners find: prefix, randomness and checksum."""

import re

from core.kernel.scannable_secrets import CREDENTIAL_PREFIX, LENGTH, PATTERN, generate, is_well_formed


def test_a_secret_has_the_form_that_scanners_look_for() -> None:
    secret = generate(CREDENTIAL_PREFIX)
    assert len(secret) == LENGTH
    assert re.search(PATTERN, f'password = "{secret}"')
    assert is_well_formed(secret, CREDENTIAL_PREFIX)


def test_secrets_differ() -> None:
    assert len({generate(CREDENTIAL_PREFIX) for _ in range(100)}) == 100


def test_every_typo_is_found() -> None:
    secret = generate(CREDENTIAL_PREFIX)
    for position, letter in enumerate(secret):
        typo = secret[:position] + ("a" if letter != "a" else "b") + secret[position + 1 :]
        assert not is_well_formed(typo, CREDENTIAL_PREFIX)


def test_other_text_is_not_a_secret() -> None:
    secret = generate(CREDENTIAL_PREFIX)
    for text in ("", "gthc_", secret[:-1], f"{secret}0", secret.replace("gthc", "gthp"), generate("gthp"), "é" * LENGTH):
        assert not is_well_formed(text, CREDENTIAL_PREFIX)


def test_the_checksum_is_crc_32_in_base_62() -> None:
    """Scanners compute it, so it never changes."""
    assert is_well_formed("gthc_" + "A" * 43 + "3HsSko", CREDENTIAL_PREFIX)
