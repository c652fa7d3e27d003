"""Personal access tokens, and the keys that sign access tokens."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from core.kernel import callers, errors, scannable_secrets
from core.kernel.api_scopes import ApiScope
from core.kernel.values import Email

DEFAULT_DAYS: Final = 30
MAX_DAYS: Final = 366
MAX_LIVE_TOKENS: Final = 50  # per user

START: Final = "gatehouse_pat_"
# Published for scanners (docs/guides/personal-access-tokens.md), so it never changes.
PATTERN: Final = "gatehouse_pat_(?:live_|test_)?[a-z2-7]{6}_[0-9A-Za-z]{49}"
_COMPILED: Final = re.compile(PATTERN, re.ASCII)
_LABEL_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_LABEL_LENGTH: Final = 6


class PersonalTokenInvalid(errors.Unauthenticated):
    """This personal access token is not valid: it is incomplete, has expired, or was revoked. Create a new one in your account."""

    token_sent = True


class PersonalTokenNotFound(errors.NotFound):
    """This personal access token does not exist, or it has ended."""


class PersonalTokensOff(errors.Forbidden):
    """This organization does not allow personal access tokens. Ask an admin of the organization."""


class PersonalTokenWithoutScope(errors.Invalid):
    """A personal access token needs at least one scope. List the scopes that it needs."""


class PersonalTokenScopeRefused(errors.Invalid):
    """The token cannot have this scope. Choose scopes that your role in the organization can use."""

    oauth_error = "invalid_scope"

    def __init__(self, refused: tuple[ApiScope, ...], allowed: tuple[ApiScope, ...]) -> None:
        super().__init__(f"The token cannot have {', '.join(refused)}. Choose from: {', '.join(allowed)}.")


class TooManyPersonalTokens(errors.Invalid):
    """You already have the maximum number of personal access tokens. Revoke one that you no longer need."""

    def __init__(self) -> None:
        super().__init__(f"You already have {MAX_LIVE_TOKENS} personal access tokens. Revoke one that you no longer need.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalToken:
    """A personal access token, without its secret, which is not stored. It has the id of the session that backs it. Times are UTC."""

    id: UUID
    user_id: UUID
    name: str
    prefix: str
    scopes: tuple[ApiScope, ...]
    org_id: UUID | None  # the only organization that it acts in; None if it acts on the user's own account
    org_slug: str | None
    org_name: str | None
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class MemberPersonalToken:
    """A token that acts in an organization, with the user it acts for."""

    token: PersonalToken
    email: Email
    user_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPersonalToken:
    """The choices of the user who creates a token."""

    name: str
    scopes: tuple[str, ...]
    org_slug: str | None = None  # None: the token acts on the user's own account
    expires_in_days: int = DEFAULT_DAYS


@dataclass(frozen=True, slots=True)
class PersonalTokenRecord:
    """A live token with its user, as loaded to authenticate a request."""

    token: callers.PersonalTokenContext
    token_hash: bytes = field(repr=False)
    last_used_at: datetime | None
    session: callers.SessionContext
    is_allowed: bool  # by the organization in `session.acts_in`


def new_personal_token(environment: str | None) -> tuple[str, str]:
    """Return the secret of a new token, and its prefix, which lists show.

    The prefix contains the environment (`live` or `test`), if it is set.
    """
    label = "".join(secrets.choice(_LABEL_ALPHABET) for _ in range(_LABEL_LENGTH))
    prefix = f"{START}{'' if environment is None else f'{environment}_'}{label}"
    return scannable_secrets.generate(prefix), prefix


def is_well_formed(text: str) -> bool:
    """Return whether the text has the format of a token and the right checksum. This needs no database query."""
    return _COMPILED.fullmatch(text) is not None and scannable_secrets.has_valid_checksum(text)


class UnknownKey(errors.TokenInvalid):
    """The access token is signed with a key that is not in use. Sign in again."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA key pair. All keys verify until they retire, and `choose_signing_key` chooses the key that signs. Times are UTC."""

    kid: str
    private_key: bytes = field(repr=False)  # PKCS #8 in PEM
    created_at: datetime
    retires_at: datetime | None
    signs_at: datetime | None = None  # None: since its creation

    @property
    def starts_at(self) -> datetime:
        """The time from which the key signs."""
        return self.signs_at or self.created_at


@dataclass(frozen=True, slots=True)
class Rotation:
    """The newest signing key after a rotation, and whether the rotation created it."""

    kid: str
    signs_at: datetime | None  # None: it signs already
    is_new: bool


def choose_signing_key(keys: Sequence[SigningKey], now: datetime) -> SigningKey | None:
    """Return the key that signs at this time, or None if no key is without a retirement time.

    Every process applies this rule to its own clock. Before the newest key starts, the previous key signs. If the clock
    is behind every key's start, the first key signs.
    """
    newest = newest_key(keys)
    if newest is None or newest.starts_at <= now:
        return newest
    started = [key for key in keys if key.starts_at <= now]
    return max(started, key=_start) if started else min(keys, key=_start)


def newest_key(keys: Sequence[SigningKey]) -> SigningKey | None:
    """Return the key without a retirement time, which signs now or next, or None."""
    return max((key for key in keys if key.retires_at is None), key=_start, default=None)


def _start(key: SigningKey) -> datetime:
    return key.starts_at
