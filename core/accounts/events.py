"""Events about accounts."""

from collections.abc import Sequence
from uuid import UUID

from core.accounts.model.email_queue import EndedCredential
from core.accounts.model.passkeys import Passkey
from core.kernel.callers import ServiceContext
from core.kernel.connections import ConnectionSlug
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.proofs import FactorKind


def signed_up(user_id: UUID, org_id: UUID | None = None, service_id: UUID | None = None) -> Event:
    """An account was created.

    The organization of the service that created it, by an API key or a sign-up, receives the event,
    and so does the organization that a registration names. `service_id` is null if it names only
    the organization. A registration on the platform itself is reported to no organization.
    """
    data = {"service_id": None if service_id is None else str(service_id)}
    return Event(EVENT_KINDS["user.signup.success"], str(user_id), org_id=org_id, data={} if org_id is None else data)


def released(org_id: UUID, user_id: UUID) -> Event:
    """An account that the organization created is no longer its own: the user proved the mailbox, or the domain's owner took it over."""
    return Event(EVENT_KINDS["user.released"], str(user_id), org_id=org_id)


def email_change_requested(user_id: UUID) -> Event:
    """A user requested another email address, and has not proved it yet. Neither address is in the event."""
    return Event(EVENT_KINDS["security.email_change.requested"], str(user_id), of_person=user_id)


def email_change_undone(user_id: UUID) -> Event:
    """The link in the notice to the old address undid a change, pending or not."""
    return Event(EVENT_KINDS["security.email_change.undone"], str(user_id), of_person=user_id)


def credential_ended(credential: EndedCredential) -> Event:
    """A credential of a program ended, because the person who made it may no longer manage the program."""
    name = "service_account.credential.revoked" if credential.is_account else "api_resource.credential.revoked"
    details = {
        "name": credential.holder,
        "credential_id": str(credential.id),
        "credential_name": credential.name,
        "kind": credential.kind,
        "hint": credential.hint,
        "creator_lost_rights": True,
    }
    return Event(EVENT_KINDS[name], str(credential.client_id), org_id=credential.org_id, details=details)


def changes_undone(user_id: UUID, kinds: Sequence[str]) -> Event:
    """The link in an email undid changes to the security of an account. `kinds` are the kinds of emails that announced the changes."""
    return Event(EVENT_KINDS["security.changes.undone"], str(user_id), of_person=user_id, details={"kinds": list(kinds)})


def email_changed(user_id: UUID) -> Event:
    """A user's email address changed: they proved a new address, or an undo restored the old one. The event has neither address."""
    return Event(EVENT_KINDS["user.email_changed"], str(user_id), of_person=user_id)


def blocked_at_applications(org_id: UUID, user_id: UUID) -> Event:
    """A user of applications took an address, or removed a link, so that the required connection would no longer bind the user there."""
    return Event(EVENT_KINDS["user.blocked"], str(user_id), org_id=org_id)


def unblocked_at_applications(org_id: UUID, user_id: UUID) -> Event:
    """An undo gave a user of applications the address back. So the applications admit the user again."""
    return Event(EVENT_KINDS["user.unblocked"], str(user_id), org_id=org_id, details={"whole_account": False})


def profile_updated(user_id: UUID, changed: Sequence[str]) -> Event:
    """A user changed their profile. `changed` has the names of the fields, without values."""
    return Event(EVENT_KINDS["user.updated"], str(user_id), of_person=user_id, details={"changed": list(changed)})


def password_changed(user_id: UUID, method: str) -> Event:
    """A user set, changed, reset or removed their password.

    `method` is `set`, `change`, `reset` or `remove`.
    """
    return Event(EVENT_KINDS["security.password.changed"], str(user_id), of_person=user_id, details={"method": method})


def identity_linked(user_id: UUID, provider: ConnectionSlug) -> Event:
    """A user linked an account at an identity provider."""
    return Event(EVENT_KINDS["security.identity.linked"], str(user_id), of_person=user_id, details={"provider": provider})


def identity_unlinked(user_id: UUID, provider: ConnectionSlug, service: ServiceContext | None) -> Event:
    """A user unlinked an identity provider from the account, or from one service. Then only the service's organization gets the event."""
    details: dict[str, str] = {"provider": provider}
    if service is None:
        return Event(EVENT_KINDS["security.identity.unlinked"], str(user_id), of_person=user_id, details=details)
    details["service_slug"] = service.slug
    return Event(EVENT_KINDS["security.identity.unlinked"], str(user_id), org_id=service.org_id, details=details)


def passkey_added(passkey: Passkey) -> Event:
    """A user added a passkey, or an undo restored it. The event has no name that the user typed."""
    details = {
        "passkey_id": str(passkey.id),
        "kind": passkey.kind.value,
        "aaguid": str(passkey.aaguid),
        "backup_eligible": passkey.backup_eligible,
    }
    return Event(EVENT_KINDS["security.passkey.added"], str(passkey.user_id), of_person=passkey.user_id, details=details)


def passkey_refused(user_id: UUID, passkey_id: UUID, reason: str) -> Event:
    """A passkey was refused after an impossible change, so it may be a copy. `reason` is `backup` or `counter`."""
    details = {"passkey_id": str(passkey_id), "reason": str(reason)}
    return Event(EVENT_KINDS["security.passkey.refused"], str(user_id), of_person=user_id, details=details, success=False)


def passkey_removed(user_id: UUID, passkey_id: UUID) -> Event:
    """A passkey of a user was deleted."""
    return Event(EVENT_KINDS["security.passkey.removed"], str(user_id), of_person=user_id, details={"passkey_id": str(passkey_id)})


def passkey_wait_started(user_id: UUID) -> Event:
    """A user reported their passkeys as lost. They can remove them after 24 hours."""
    return Event(EVENT_KINDS["security.passkey_wait.started"], str(user_id), of_person=user_id)


def passkey_wait_over(user_id: UUID) -> Event:
    """The 24 hours after a report of lost passkeys are over: the user can now remove the passkeys without showing a passkey."""
    return Event(EVENT_KINDS["security.passkey_wait.over"], str(user_id), of_person=user_id)


def passkey_wait_ended(user_id: UUID, by: str) -> Event:
    """The wait for lost passkeys ended. `by` is `removal`, `passkey`, `undo`, `recovery`, `mailbox`, `cancel` or `expiry`."""
    return Event(EVENT_KINDS["security.passkey_wait.ended"], str(user_id), of_person=user_id, details={"by": by})


def mfa_enabled(user_id: UUID, factor: FactorKind) -> tuple[Event, ...]:
    """A user turned on a second factor: `totp` is an authenticator app, `passkey` their passkeys and security keys.

    The first event is for webhooks, the second for the audit logs.
    """
    names, details = ("user.mfa.enabled", "security.mfa.enabled"), {"factor": factor.value}
    return tuple(Event(EVENT_KINDS[name], str(user_id), of_person=user_id, details=details) for name in names)


def mfa_disabled(user_id: UUID, factor: FactorKind, *, forced: bool = False) -> tuple[Event, ...]:
    """A user turned off a second factor, or a platform owner removed it. `factor` is as in `mfa_enabled`."""
    names, details = ("user.mfa.disabled", "security.mfa.disabled"), {"forced": forced, "factor": factor.value}
    return tuple(Event(EVENT_KINDS[name], str(user_id), of_person=user_id, details=details) for name in names)


def mfa_failed(user_id: UUID, during: str) -> Event:
    """A wrong code or passkey was sent for the account. `during` is `sign_in`, after the first factor, or `setup`.

    The attempt limit also limits how many events there are (security M-2).
    """
    return Event(EVENT_KINDS["security.mfa.failed"], str(user_id), of_person=user_id, details={"during": during}, success=False)


def account_deactivated(user_id: UUID) -> Event:
    """A platform owner deactivated the account of a user."""
    details = {"whole_account": True, "by_platform": True}
    return Event(EVENT_KINDS["user.deactivated"], str(user_id), of_person=user_id, details=details)


def account_closed(user_id: UUID, *, by_user: bool) -> Event:
    """An account was deleted, and is closed until it is erased. The owner of an organization deleted it, unless it was `by_user`."""
    return Event(EVENT_KINDS["user.deactivated"], str(user_id), of_person=user_id, details={"whole_account": True, "by_user": by_user})


def account_reopened(user_id: UUID) -> Event:
    """A user undid the deletion of their account."""
    return Event(EVENT_KINDS["user.reactivated"], str(user_id), of_person=user_id, details={"whole_account": True, "by_user": True})


def account_reactivated(user_id: UUID, *, whole_account: bool) -> Event:
    """A platform owner reactivated the account of a user.

    `whole_account` is false if a directory has deactivated the account, too, so that it stays closed.
    """
    details = {"whole_account": whole_account, "by_platform": True}
    return Event(EVENT_KINDS["user.reactivated"], str(user_id), of_person=user_id, details=details)


def anonymized(org_id: UUID | None, user_id: UUID) -> Event:
    """A user was anonymized. All organizations that they belong to receive the event, or without an organization the platform's log."""
    return Event(EVENT_KINDS["user.anonymized"], str(user_id), org_id=org_id)


def platform_owner_promoted(user_id: UUID, reason: str | None = None) -> Event:
    """A user became a platform owner."""
    return Event(EVENT_KINDS["platform.owner.promoted"], str(user_id), details=_with_reason(reason))


def platform_owner_demoted(user_id: UUID, reason: str | None = None) -> Event:
    """A platform owner lost their platform rights."""
    return Event(EVENT_KINDS["platform.owner.demoted"], str(user_id), details=_with_reason(reason))


def _with_reason(reason: str | None) -> dict[str, str]:
    return {} if reason is None else {"reason": reason}
