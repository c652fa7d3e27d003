"""What people type or paste into pages, in the form that the API takes. A value that no reader knows stays as it is."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from quart import request

_BACKUP_CODE: Final = re.compile("([0-9A-Z]{4})-?([0-9A-Z]{4})")
_URL_AROUND_HOST: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/?#\s]*@)?([^/?#\s@:]+)(?::[0-9]+)?(?:[/?#].*)?", re.IGNORECASE)
_CERTIFICATE: Final = re.compile(r"(?:-----BEGIN CERTIFICATE-----)?([A-Za-z0-9+/=\s]+)(?:-----END CERTIFICATE-----)?")
_DAY: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY_PARAMETERS: Final = frozenset({"since", "until"})  # parameters that are times in the API and days in forms
_LINE: Final = 64  # characters in a PEM line (RFC 7468)
# What programs and people put around an address or a link: spaces, also invisible spaces, and punctuation.
_SPACES: Final = " \t\r\n\v\f\u00a0\u200b\ufeff"
_AROUND_LINKS: Final = _SPACES + ".,;:!?)>]}\"'"


def to_code(text: str) -> str:
    """Return a code without ASCII spaces. A backup code is also in upper case and has its dash."""
    code = re.sub(r"\s", "", text, flags=re.ASCII)
    match = _BACKUP_CODE.fullmatch(code.upper()) if code.isascii() else None
    return code if match is None else f"{match[1]}-{match[2]}"


def trim(text: str) -> str:
    """Return a text without the spaces around it, also invisible spaces."""
    return text.strip(_SPACES)


def to_slug(text: str) -> str:
    """Return a slug in lower case, without the spaces around it."""
    return trim(text).lower()


def to_domain(text: str) -> str:
    """Return the domain in a text such as `https://example.com./login` or `@example.com`."""
    match = _URL_AROUND_HOST.fullmatch(trim(text))
    return text if match is None else match[1].removesuffix(".")


def to_host(text: str) -> str:
    """Return a host name without a final dot and the spaces around it. A port stays, and is refused: it has its own field."""
    return trim(text).removesuffix(".")


def to_domains(text: str) -> str:
    """Return lines with a domain per line, as `to_domain` returns it. Empty lines are left out."""
    return "\n".join(to_domain(line) for line in map(trim, text.splitlines()) if line)


def to_certificate(text: str) -> str:
    """Return a certificate in PEM, also if its header, its line ends or its indentation are not as PEM requires."""
    match = _CERTIFICATE.fullmatch(trim(text))
    if match is None or not match[1].strip():
        return text
    content = "".join(match[1].split())
    lines = (content[start : start + _LINE] for start in range(0, len(content), _LINE))
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])


# A field name has the same kind on all pages. Fields with no kind here, such as passwords, are taken as they are.
READERS: Final[Mapping[str, Callable[[str], str]]] = {
    "certificate": to_certificate,
    "code": to_code,
    "domain": to_domain,
    "email": trim,
    "email_code": to_code,
    "from_email": trim,
    "host": to_host,
    "invited_domains": to_domains,
    "recipient": trim,
    "slo_certificate": to_certificate,
    "slug": to_slug,
}


def read_typed(fields: Mapping[str, str]) -> dict[str, str]:
    """Return a form's fields, every field as its reader returns it."""
    return {name: READERS[name](value) if name in READERS else value for name, value in fields.items()}


def link_token() -> str:
    """Return the token from the link that the browser opened, without what was copied with it. Empty if there is none."""
    return to_token(request.args.get("token", ""))


def to_token(text: str) -> str:
    """Return the token in a link's text."""
    return "".join(text.split()).strip(_AROUND_LINKS)


def as_api_reads(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values from a form that filters a list, as the API reads them.

    Texts are trimmed, and an empty value counts as missing. A day in `since` or `until` stands for its first moment (UTC).
    """
    trimmed = {name: trim(value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        name: f"{value}T00:00:00Z" if name in _DAY_PARAMETERS and isinstance(value, str) and _DAY.fullmatch(value) else value
        for name, value in trimmed.items()
        if value != ""
    }
