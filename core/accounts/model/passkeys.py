"""An account's passkeys, their ceremonies (WebAuthn Level 3), and the refusals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.security_notices import UNDO_TTL
from core.kernel import errors, proofs

MAX_PASSKEYS: Final = 20  # per account, with its security keys
CHALLENGE_TTL: Final = timedelta(minutes=10)
OFFER_PAUSE: Final = timedelta(days=30)
WAIT: Final = timedelta(hours=24)  # before a user can remove lost passkeys
# COSE algorithms in the order of preference: EdDSA with Ed25519, ES256, RS256.
ALGORITHMS: Final = (-8, -7, -257)
HANDLE_BYTES: Final = 64  # of `user.id`
MIN_CREDENTIAL_ID: Final = 16  # bytes (WebAuthn section 4, credential id)
MAX_CREDENTIAL_ID: Final = 1023  # bytes (WebAuthn section 7.1, step 26)
NO_AAGUID: Final = UUID(int=0)
# WebAuthn section 5.8.4. Clients may report further transports, which are not stored.
TRANSPORTS: Final = frozenset({"usb", "nfc", "ble", "smart-card", "hybrid", "internal"})

# The parts of a ceremony, as the W3C's JSON has them (PublicKeyCredentialCreationOptionsJSON and the like).
Json = Mapping[str, Any]


class PasskeyKind(StrEnum):
    """A passkey signs in alone, because it verifies its user. A security key counts only beside a first factor."""

    PASSKEY = "passkey"
    SECURITY_KEY = "security_key"


def name_kinds(kinds: Iterable[PasskeyKind]) -> str:
    """Return what users call keys of these kinds, such as "passkey or security key"."""
    names = {PasskeyKind.PASSKEY: "passkey", PasskeyKind.SECURITY_KEY: "security key"}
    present = frozenset(kinds)
    return " or ".join(name for kind, name in names.items() if kind in present)


class Ceremony(StrEnum):
    """The purpose of a ceremony. A challenge works for a single purpose."""

    REGISTER = "register"
    SIGN_IN = "sign_in"
    SECOND_FACTOR = "second_factor"
    REAUTHENTICATE = "reauthenticate"
    RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class ChallengeBinding:
    """The ceremony and the client that a challenge is for, so that no other client can use it."""

    ceremony: Ceremony
    # The id of the session or the recovery, or the flow's id for a second factor. In a sign-in, the hash of the device id, if there is any.
    holder: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """Gatehouse's side in a ceremony. `id` is the RP ID, which is a host."""

    id: str
    origins: frozenset[str]  # as browsers write them


SECURITY_KEY_MARK: Final = "security_key:"
# For passkeys of unknown products
DEFAULT_NAMES: Final = MappingProxyType({PasskeyKind.PASSKEY: "Passkey", PasskeyKind.SECURITY_KEY: "Security key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    """A passkey or security key of an account. Times are UTC."""

    id: UUID
    user_id: UUID
    kind: PasskeyKind
    name: str
    credential_id: bytes = field(repr=False)
    public_key: bytes = field(repr=False)  # a COSE key in canonical CBOR
    algorithm: int  # COSE
    rp_id: str  # the RP ID that it was made for
    sign_count: int
    aaguid: UUID
    backup_eligible: bool  # it can sync to further devices; this never changes
    backed_up: bool  # as of the last ceremony
    user_verified: bool  # whether the authenticator verified its user in any ceremony
    transports: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None = None
    refused_at: datetime | None = None  # the last impossible change: `check_use`

    @property
    def product(self) -> str | None:
        """The name of the password manager or device that made it, or None if its AAGUID is not known."""
        return PRODUCTS.get(str(self.aaguid))

    @property
    def description(self) -> str | None:
        """The kind, if it is a security key, and the product, for emails. It contains no text from the user."""
        return f"{SECURITY_KEY_MARK}{self.product or ''}" if self.kind is PasskeyKind.SECURITY_KEY else self.product


@dataclass(frozen=True, slots=True)
class KeyHosts:
    """The RP IDs of an account's passkeys and security keys: an RP ID per key."""

    passkeys: Sequence[str] = ()
    security_keys: Sequence[str] = ()
    stored: str | None = None  # the stored RP ID of the installation; not needed without keys


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPasskey:
    """The verified result of a registration."""

    credential_id: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    algorithm: int
    sign_count: int
    aaguid: UUID
    backup_eligible: bool
    backed_up: bool
    user_verified: bool
    transports: tuple[str, ...]
    challenge: "UsedChallenge"


@dataclass(frozen=True, slots=True)
class KnownPasskey:
    """A passkey as it is before a sign-in."""

    passkey: Passkey
    handle: bytes | None = field(repr=False)  # `user.id` of the account


@dataclass(frozen=True, slots=True)
class PresentedAssertion:
    """An authenticator's answer to a sign-in, which is not verified yet."""

    credential_id: bytes = field(repr=False)
    client_data: bytes = field(repr=False)
    authenticator_data: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    user_handle: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAssertion:
    """An authenticator's verified answer."""

    sign_count: int
    backup_eligible: bool
    backed_up: bool
    user_verified: bool
    challenge: "UsedChallenge"


@dataclass(frozen=True, slots=True)
class RedeemedPasskey:
    """The result of a sign-in with a passkey.

    The account is locked. Unless `is_used` and `is_first` are true, the sign-in must be rolled back.
    """

    account: Account
    is_used: bool  # False if the passkey is gone, or another sign-in counted as far
    is_first: bool  # False if the challenge was used before


@dataclass(frozen=True, slots=True)
class PasskeyWait:
    """The wait after which a user can remove lost passkeys. Times are UTC."""

    started_at: datetime

    @classmethod
    def of(cls, account: Account, now: datetime) -> "PasskeyWait | None":
        """Return the wait of an account. None: the account has no wait, or its user did not use the wait in time."""
        started_at = account.passkey_wait_at
        return None if started_at is None or now >= started_at + UNDO_TTL else cls(started_at)

    @property
    def over_at(self) -> datetime:
        """When the user can remove the passkeys."""
        return self.started_at + WAIT

    @property
    def until(self) -> datetime:
        """Until when the user can remove the passkeys. The undo link in the first email works as long."""
        return self.started_at + UNDO_TTL


@dataclass(frozen=True, slots=True)
class UsedChallenge:
    """The challenge of a verified ceremony. The transaction that it serves uses it up."""

    hash: bytes = field(repr=False)  # SHA-256
    expires_at: datetime  # UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPasskeys:
    """An account's passkeys and security keys, oldest first."""

    account: Account
    passkeys: Sequence[Passkey]
    rp_id: str | None  # the RP ID of new passkeys; None if the host is an IP address
    handle: bytes | None = field(repr=False)  # what authenticators know about the user; None if the account has never had any
    restorable: Sequence[bytes] = field(repr=False)  # credential ids that an undo can restore, last deleted first

    def find(self, passkey_id: UUID) -> Passkey:
        """Return the passkey with this id."""
        return next((passkey for passkey in self.passkeys if passkey.id == passkey_id), None) or errors.refuse(PasskeyNotFound)

    @property
    def usable(self) -> list[Passkey]:
        """The passkeys that work at this host."""
        return [passkey for passkey in self.passkeys if passkey.rp_id == self.rp_id]


class PasskeyReason(StrEnum):
    """Why a ceremony was refused. Operators see it in a metric, and clients do not."""

    MALFORMED = "malformed"
    TYPE = "type"
    CHALLENGE = "challenge"
    EXPIRED = "expired"
    ORIGIN = "origin"
    TOP_ORIGIN = "top_origin"
    CROSS_ORIGIN = "cross_origin"
    RP_ID = "rp_id"
    PRESENCE = "presence"
    VERIFICATION = "verification"
    FORMAT = "format"
    ALGORITHM = "algorithm"
    KEY = "key"
    SIGNATURE = "signature"
    BACKUP = "backup"
    CREDENTIAL = "credential"  # not known here
    ACCOUNT = "account"  # of another user
    KIND = "kind"  # a security key in place of a passkey
    USER_HANDLE = "user_handle"
    COUNTER = "counter"


class CeremonyRefused(Exception):
    """The response of an authenticator was refused. A use case turns this into a refusal for its caller."""

    def __init__(self, reason: PasskeyReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class PasskeyRefused(errors.Unauthenticated):
    """This passkey could not be used here. Try again, or use another way."""


class PasskeyUnknown(PasskeyRefused):
    """This passkey is not known here. Delete it from your device or password manager, and use another way."""


class PasskeyDeleted(PasskeyRefused):
    """This passkey was deleted here. If that wasn't you, open the link in our email about it. Otherwise use another way."""


class PasskeyChanged(PasskeyRefused):
    """This passkey was refused, because it may be a copy. We've emailed you what to do."""


def proof_of(passkey: Passkey, *, user_verified: bool, at: datetime) -> proofs.Proof:
    """Return the proof of a ceremony. A security key's proof counts only beside a first factor, even if the key verified its user."""
    is_complete = user_verified and passkey.kind is PasskeyKind.PASSKEY
    is_hardware = not passkey.backup_eligible
    return proofs.Proof(
        proofs.Method.PASSKEY, at, user_verified=is_complete, phishing_resistant=True, hardware=is_hardware, passkey=passkey.id
    )


def check_use(known: Passkey, seen: VerifiedAssertion) -> None:
    """Refuse impossible changes: whether the passkey can be synced, or, if it cannot, a counter that goes back (WebAuthn section 7.2).

    Raises: CeremonyRefused.
    """
    if seen.backup_eligible != known.backup_eligible:
        raise CeremonyRefused(PasskeyReason.BACKUP)
    counts = seen.sign_count > 0 or known.sign_count > 0
    if not known.backup_eligible and counts and seen.sign_count <= known.sign_count:
        raise CeremonyRefused(PasskeyReason.COUNTER)


class PasskeyNotAdded(errors.Invalid):
    """This passkey could not be added. Start again, and finish within 10 minutes on the same page."""


class PasskeyTaken(errors.Invalid):
    """This passkey is already in use here. Create a new one."""


class NoPasskey(errors.Invalid):
    """Your account has no passkey that works here. Use another way to confirm that it's you."""


class PasswordMissing(errors.Invalid):
    """Your account has no password. Set one by email first, with "Forgot your password?"."""


class RecoveryReplacesPasskey(errors.Invalid):
    """Only a recovery replaces your passkey, because your account asks, or asked lately, for more than a password. Ask an admin."""

    def __init__(self, sources: Sequence[str] = ()) -> None:
        """`sources` are the names of the organizations and applications whose sign-in policies ask for more, if they do."""
        reason = f"because sign-in policies ask for more than a password: {', '.join(sources)}"
        who = "Ask an admin of your organization, or the operator of this site, to start one."
        super().__init__(f"Only a recovery replaces your passkey, {reason}. {who}" if sources else None)


class NoPasskeyWait(errors.NotFound):
    """No wait for lost passkeys is running. It may have ended: by a sign-in with a passkey, by an undo, or because its time is over."""


class PasskeyWaitNotOver(errors.Invalid):
    """The wait for your lost passkeys has already started. You can remove them 24 hours after its start."""


class TooManyPasskeyWaits(errors.Limited):
    """You have reported your passkeys as lost too often. Retry-After says when you can do it again."""


class PasskeyNotFound(errors.NotFound):
    """This passkey does not exist, or has been deleted."""


class OnlySignInMethod(errors.Invalid):
    """This is your only way to sign in. Set a password, or add another passkey, before you delete it."""


class NoSecondKey(errors.Invalid):
    """Your account has no passkey or security key that works here. Add one first."""


class TooManyPasskeys(errors.Invalid):
    """An account can have at most 20 passkeys and security keys. Delete one that you no longer use."""


class NoNativeApps(errors.NotFound):
    """This installation lets no native applications of this kind use passkeys. Its operator lists them in SSO_NATIVE_APPS."""


class NoPasskeysHere(errors.Invalid):
    """Passkeys need a host name, and this installation has an address of numbers. Ask its operator to set SSO_BASE_URL to a host name."""


# By AAGUID, picked from github.com/passkeydeveloper/passkey-authenticator-aaguids.
PRODUCTS: Final = MappingProxyType(
    {
        "ea9b8d66-4d01-1d21-3ce4-b6b48cb575d4": "Google Password Manager",
        "adce0002-35bc-c60a-648b-0b25f1f05503": "Chrome on Mac",
        "b5397666-4885-aa6b-cebf-e52262a439a2": "Chromium",
        "08987058-cadc-4b81-b6e1-30de50dcbe96": "Windows Hello",
        "9ddd1817-af5a-4672-a2b9-3e3dd95000a9": "Windows Hello",
        "6028b017-b1d4-4c02-b4b3-afcdafc96bb2": "Windows Hello",
        "dd4ec289-e01d-41c9-bb89-70fa845d4bf2": "iCloud Keychain",
        "fbfc3007-154e-4ecc-8c0b-6e020557d7bd": "Apple Passwords",
        "531126d6-e717-415c-9320-3d9aa6981239": "Dashlane",
        "bada5566-a7aa-401f-bd96-45619a55120d": "1Password",
        "b84e4048-15dc-4dd0-8640-f4f60813c8af": "NordPass",
        "0ea242b4-43c4-4a1b-8b17-dd6d0b6baec6": "Keeper",
        "891494da-2c90-4d31-a9cd-4eab0aed1309": "Sésame",
        "f3809540-7f14-49c1-a8b3-8f813b225541": "Enpass",
        "d548826e-79b4-db40-a3d8-11116f7e8349": "Bitwarden",
        "53414d53-554e-4700-0000-000000000000": "Samsung Pass",
        "50726f74-6f6e-5061-7373-50726f746f6e": "Proton Pass",
        "fdb141b2-5d84-443e-8a35-4698c205a502": "KeePassXC",
        "eaecdef2-1c31-5634-8639-f1cbd9c00a08": "KeePassDX",
        "b78a0a55-6ef8-d246-a042-ba0f6d55050c": "LastPass",
        "de503f9c-21a4-4f76-b4b7-558eb55c6f89": "Devolutions",
        "a11a5faa-9f32-4b8c-8c5d-2f7d13e8c942": "AliasVault",
        "771b48fd-d3d4-4f74-9232-fc157ab0507a": "Edge on Mac",
        "d3452668-01fd-4c12-926c-83a4204853aa": "Microsoft Password Manager",
        "b35a26b2-8f6e-4697-ab1d-d44db4da28c6": "Zoho Vault",
        "a10c6dd9-465e-4226-8198-c7c44b91c555": "Kaspersky Password Manager",
        "fa37f553-f9b6-4adb-ac53-8bbb57ebdf0d": "Norton Password Manager",
        "a4a2d88e-9796-4356-9164-e2a5a8bd019c": "Avast Password Manager",
        "9addb28c-b46f-4402-808f-019651441ff3": "KeePassPasskey",
        "39a5647e-1853-446c-a1f6-a79bae9f5bc7": "IDmelon",
    }
)
