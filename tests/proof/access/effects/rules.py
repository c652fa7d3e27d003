"""The rules for the rows that requests leave changed: the route's effect and the caller must allow all changes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from uuid import UUID

from entrypoints.http.edge.access.declaration import Access, Credentials
from entrypoints.http.edge.access.effects import Effect, EffectRow
from tests.proof.access.calls import without_variant
from tests.proof.access.effects.rows import MINE, Kind, kind_of
from tests.proof.access.state import Changes, Row, State
from tests.proof.access.world import Caller

# A caller's credentials. Any caller can send the secrets in a request.
OF_CALLERS: Final = (Credentials.ACCESS_TOKEN, Credentials.ACCESS_TOKEN_OR_COOKIE, Credentials.COOKIE)
# The changes that a route may leave besides its effect, with the reason.
BESIDES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        ("POST /api/auth/register", "POST /app/sign-up", "POST /app/flow/<flow_id>/sign-up"), ("+users", "a new account harms no user")
    ),
    **dict.fromkeys(
        ("POST /api/auth/reset-password", "POST /auth/reset-password"),
        ("users.password_hash email_changes.cancelled_at", "the token came to the mailbox of the account"),
    ),
    "POST /auth/undo": (
        "-mfa -passkeys email_changes.cancelled_at email_changes.undone_at",
        "the token came to the mailbox of the account",
    ),
    "GET /auth/verify-email": ("users.email_verified_at", "the token came to the mailbox of the account"),
    **dict.fromkeys(
        ("POST /app/invitations/accept", "POST /app/invitations/decline"),
        ("+memberships invitations.ended_at invitations.status", "the token came to the mailbox of the account"),
    ),
    **dict.fromkeys(
        ("POST /api/auth/login", "POST /app/sign-in", "POST /app/flow/<flow_id>/sign-in", "POST /auth/recover-owner"),
        ("+sign_in_policies", "the first sign-in of a platform owner stores the policy that is in force without it"),
    ),
    "POST /auth/register": ("+services +plans registration_tokens.uses_left", "an admin made the registration token"),
    "POST /setup": (
        "setup_links.browser_hash setup_links.expires_at setup_links.opened_address setup_links.opened_agent setup_links.opened_at",
        "the link is opened once",
    ),
    "POST /setup/steps/finish": ("setup_links.ended_at setup_links.ended_by", "the link ends itself"),
    "PATCH /api/user": ("+email_changes", "another address needs a fresh sign-in inside (sessions/test_old_sessions.py)"),
    **dict.fromkeys(
        ("POST /api/organizations/<org_slug>/leave", "POST /app/account/organizations/<org_slug>/leave"),
        ("service_accounts.ends_at service_accounts.kept_rights", "the user's service accounts go on for 72 hours, with these rights"),
    ),
    **dict.fromkeys(
        ("DELETE /api/user", "DELETE /api/privacy/forget/<user_id>", "POST /app/account/delete"),
        (
            "groups.mapping_stopped_at invitations.email invitations.ended_at invitations.status"
            " service_accounts.ends_at service_accounts.kept_rights",
            "nothing waits for an account that ends, and its service accounts go on for a while",
        ),
    ),
}
# A checkout belongs to its buyer, and ends at the payment provider.
OF_CHECKOUT: Final = frozenset({"+billing_checkouts", "+billing_customers"})
# Routes with an effect that no row shows, with the reason.
SHOWN_ELSEWHERE: Final = {
    **{
        f"POST {path}/password-reset": "a mail brings the way into the account"
        for path in (
            "/api/organizations/<org_slug>/members/<user_id>",
            "/api/organizations/<org_slug>/users/<user_id>",
            "/api/platform/users/<user_id>",
            "/app/organizations/<org_slug>/members/<user_id>",
            "/app/organizations/<org_slug>/selected-people",
            "/app/organizations/<org_slug>/users/<user_id>",
            "/app/platform/people/<user_id>",
        )
    },
    "DELETE /api/user/personal-tokens/<personal_token_id>": "the session that ends is a program's",
    "POST /app/account/personal-tokens/<personal_token_id>/revoke": "the session that ends is a program's",
    "POST /app/account/email/verification": "a mail goes to the user",
    "POST /api/user/passkeys/options": "the browser's answer adds the passkey",
    "POST /api/user/identities/<provider>/link": "the answer of the provider links it",
    "POST /app/account/identities/<provider:provider>/link": "the answer of the provider links it",
    "POST /app/account/passkeys/second-factor": "the operation of the API shows it; here its session would need the second factor at once",
    "POST /app/account/export": "the caller keeps the response",
    "POST /app/platform/people/<user_id>/export": "the caller keeps the response",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/authorization/document/preview": "a preview needs the right to save",
    "PUT /api/organizations/<org_slug>/groups/<group_id>/members/<user_id>": "the user is a member of the group already",
    "PATCH /api/organizations/<org_slug>/scim-tokens/<token_id>": "the token manages groups already, and only admins may change that",
    "POST /app/organizations/<org_slug>/directory/tokens/<token_id>/groups": "the token manages groups already",
    "POST /setup/steps/connection": "the next page asks for the values",
}

Keys = Mapping[str, tuple[str, ...]]  # the primary key columns, per table


@dataclass(frozen=True, slots=True)
class Change:
    """A new row, a deleted row, or a changed value in a row."""

    name: str  # as in rows.py
    kind: Kind
    user: str | None  # the id of the row's user
    email: str | None  # the address in the row

    def is_of(self, caller: Caller) -> bool:
        """Return whether the row belongs to the caller's own account."""
        return caller.account is not None and (str(caller.account.id) == self.user or caller.account.email == self.email)


def counted(changes: Changes, keys: Keys, world: State) -> list[Change]:
    old, new = _by_key(changes.lost, keys), _by_key(changes.got, keys)
    sessions = {**users_of_sessions(world), **{row["id"]: row["user_id"] for (table, *_), row in new.items() if table == "sessions"}}
    found = []
    for key in sorted(old.keys() | new.keys()):
        table, before, after = key[0], old.get(key), new.get(key)
        row = after or before or {}
        user = row["id"] if table == "users" else row.get("user_id") or sessions.get(row.get("session_id", ""))
        if before is None or after is None:
            names = [f"{'+' if before is None else '-'}{table}"]
        else:
            names = [f"{table}.{column}" for column in after if after[column] != before[column]]
        found += [Change(name, kind, user, row.get("email")) for name in names if (kind := kind_of(name)) is not Kind.NOT_COUNTED]
    return found


def _by_key(rows: Iterable[Row], keys: Keys) -> dict[tuple[str, ...], dict[str, Any]]:
    contents = ((table, json.loads(row)) for table, row in rows if kind_of(f"+{table}") is not Kind.NOT_COUNTED)
    return {(table, *(str(row[column]) for column in keys[table])): row for table, row in contents}


@cache
def users_of_sessions(rows: State) -> Mapping[str, str]:
    sessions = (json.loads(row) for table, row in rows if table == "sessions")
    return {row["id"]: row["user_id"] for row in sessions}


@cache
def people_of(rows: State, org_id: UUID) -> frozenset[str]:
    """Return an organization's members and end users."""
    people = (json.loads(row) for table, row in rows if table in ("memberships", "end_users"))
    return frozenset(row["user_id"] for row in people if row["org_id"] == str(org_id))


@dataclass(frozen=True, slots=True)
class HeldEffect:
    """A route's effect, compared with the changes that its successful requests left."""

    route: str
    access: Access
    keys: Keys
    world: State
    wrong: dict[str, list[str]] = field(default_factory=dict)  # the callers by finding
    shown: set[bool] = field(default_factory=set)  # whether a request's changes show the effect

    @property
    def row(self) -> EffectRow:
        return self.access.row(self.route.partition(" ")[0])

    def hold(self, caller: Caller, changes: Changes, *, is_old: bool = False) -> list[Change]:
        """Compare the effect with a request's changes, and return the changes that count. `is_old`: the session began hours ago."""
        found = counted(changes, self.keys, self.world)
        self.shown.add(any(self.shows(change) for change in found))
        self._note("it changed", caller, (change for change in found if not self.allows(change, caller)))
        if self.access.credentials in OF_CALLERS and (is_old or is_excluded(caller)):
            left = (change for change in found if not self.may_leave(change, caller, is_old=is_old))
            self._note("a caller that may leave no lasting effect changed", caller, left)
        return found

    def _note(self, finding: str, caller: Caller, changes: Iterable[Change]) -> None:
        if names := sorted({change.name for change in changes}):
            self.wrong.setdefault(f"{finding} {', '.join(names)}", []).append(caller.name)

    def wrong_findings(self) -> Iterator[str]:
        """Yield the wrong changes, with the callers."""
        for finding, callers in self.wrong.items():
            yield f"{self.route}: the effect is {self.row.effect.name}, and {finding} (as {', '.join(callers)})"

    def findings(self) -> Iterator[str]:
        """Yield the findings after all requests to the route: wrong changes, or no change at all."""
        yield from self.wrong_findings()
        effect = self.row.effect
        if not self.shown or self.route.startswith("GET") or effect in (Effect.SHOWS, Effect.PROTOCOL):
            return
        is_listed = self.route in SHOWN_ELSEWHERE
        if (True in self.shown) == is_listed:
            yield f"{self.route}: the effect is {effect.name}, and {'a' if is_listed else 'no'} request showed it by a change"

    def shows(self, change: Change) -> bool:
        """Return whether a change shows that the effect is not overstated."""
        match self.row.effect:
            case Effect.GIVES:
                return change.kind is not Kind.PLAIN
            case Effect.ACTS_ON_ME:
                return change.name not in MINE
        return True

    def allows(self, change: Change, caller: Caller) -> bool:
        """Return whether the effect allows a change."""
        if change.name in BESIDES.get(without_variant(self.route), ("", ""))[0].split():
            return True
        match self.row.effect:
            case Effect.SHOWS:
                return False
            case Effect.PROTOCOL:
                is_own = change.is_of(caller) or self.access.credentials not in OF_CALLERS
                return is_own and change.kind in (Kind.SESSION, Kind.PROTOCOL)
            case Effect.ENDS:
                return change.kind is Kind.SESSION and change.user in people_of(self.world, caller.at.organization.id)
            case Effect.MINE:
                is_own = change.is_of(caller) or self.access.credentials is Credentials.OPTIONAL_ACCESS_TOKEN  # an invitation has a token
                return is_own and change.name in MINE
            case Effect.ACTS_ON_ME:
                return change.is_of(caller)
            case Effect.CHANGES:
                return change.kind is Kind.PLAIN
            case Effect.GIVES:
                return True

    def may_leave(self, change: Change, caller: Caller, *, is_old: bool) -> bool:
        """Return whether a caller that may leave no lasting effect may leave this change."""
        if change.kind is Kind.SESSION or (self.row.effect is Effect.PROTOCOL and change.kind is Kind.PROTOCOL):
            return True
        if change.name in OF_CHECKOUT:
            return caller.robot is None
        return is_old and change.name in MINE and change.is_of(caller)


def is_excluded(caller: Caller) -> bool:
    """Return whether the caller may leave no lasting effect: an impersonator, or a service account without grants."""
    return caller.impersonated or (caller.robot is not None and not caller.robot.granted)
