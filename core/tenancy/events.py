"""Events about organizations, members, invitations, domains, branding and mail servers.

Every function returns one event.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from core.kernel.event_catalog import EVENT_KINDS, Event, Target, field_changes
from core.kernel.roles import RoleName
from core.kernel.sign_in_policy.explanations import BREAK_GLASS
from core.kernel.values import Domain, rfc3339
from core.tenancy.model.attributes import Attribute, AttributeWriter
from core.tenancy.model.domains import DomainClaim
from core.tenancy.model.groups import Group, GroupMapping
from core.tenancy.model.invitations import Invitation
from core.tenancy.model.organizations import Organization
from core.tenancy.model.roles import OrganizationRole, in_catalog_order
from core.tenancy.model.settings import BrandingSettings, SmtpSettings


def user_invited(invitation: Invitation) -> Event:
    """An email address was invited. The target is the invitation, as in the events about its answer.

    The target is not a user: inviting an address must not reveal whether it has an account.
    """
    return Event(EVENT_KINDS["user.invited"], str(invitation.id), org_id=invitation.org_id, details=_invitation_details(invitation))


def user_joined(org_id: UUID, user_id: UUID, role: RoleName, *, invitation_id: UUID | None = None) -> Event:
    """A user became a member. `invitation_id` names the invitation, if there was one."""
    details = {"role": role} | ({} if invitation_id is None else {"invitation_id": str(invitation_id)})
    return Event(EVENT_KINDS["user.joined"], str(user_id), org_id=org_id, details=details)


def user_role_updated(org_id: UUID, user_id: UUID, old: RoleName, new: RoleName) -> Event:
    """A member's role was changed."""
    details = {"old_role": old, "new_role": new}
    return Event(EVENT_KINDS["user.role_updated"], str(user_id), org_id=org_id, details=details)


def break_glass_used(org_id: UUID, user_id: UUID, connection: str) -> Event:
    """A user listed for break glass came without the required connection: the first time in this session."""
    return Event(EVENT_KINDS["break_glass.used"], str(user_id), org_id=org_id, details={"connection": connection})


def role_created(role: OrganizationRole) -> Event:
    """An organization created a role."""
    return Event(EVENT_KINDS["role.created"], str(role.id), org_id=role.org_id, details={"slug": role.slug, **_role_fields(role)})


def role_updated(old: OrganizationRole, new: OrganizationRole) -> Event:
    """An organization changed a role. For every changed field, the event contains the old and new value."""
    before, after = _role_fields(old), _role_fields(new)
    changes = {name: {"old": before[name], "new": value} for name, value in after.items() if before[name] != value}
    details = {"slug": new.slug, "name": new.name, "changes": changes}
    return Event(EVENT_KINDS["role.updated"], str(new.id), org_id=new.org_id, details=details)


def role_deleted(role: OrganizationRole, replacement: RoleName | None, holders: Mapping[str, int]) -> Event:
    """An organization deleted a role. The role's `holders`, by their kind, have the role `replacement` now."""
    details = {"slug": role.slug, **_role_fields(role)}
    further = {} if replacement is None else {"replacement": replacement, "holders": dict(holders)}
    return Event(EVENT_KINDS["role.deleted"], str(role.id), org_id=role.org_id, details={**details, **further})


def _role_fields(role: OrganizationRole) -> dict[str, object]:
    capabilities = [capability.value for capability in in_catalog_order(role.capabilities)]
    return {"name": role.name, "description": role.description, "capabilities": capabilities}


def user_removed(org_id: UUID, user_id: UUID, role: RoleName) -> Event:
    """A member with this role was removed."""
    return Event(EVENT_KINDS["user.removed"], str(user_id), org_id=org_id, details={"role": role})


def password_reset_sent(org_id: UUID, user_id: UUID) -> Event:
    """An admin sent a member an email with a link to set a new password."""
    return Event(EVENT_KINDS["security.password.reset_sent"], str(user_id), org_id=org_id)


def organization_created(organization: Organization) -> Event:
    """An organization was created."""
    details = {"slug": organization.slug, "name": organization.name, "status": organization.status.value}
    return Event(EVENT_KINDS["organization.created"], str(organization.id), org_id=organization.id, details=details)


def organization_updated(old: Organization, new: Organization) -> Event:
    """An organization's settings were changed.

    For every changed field, the details have the old and new value.
    """
    details = field_changes(old, new, "name", "device_trust_days", "personal_tokens", "members_see_end_users")
    return Event(EVENT_KINDS["organization.updated"], str(new.id), org_id=new.id, details=details)


def group_created(group: Group) -> Event:
    """A group was created, without members."""
    details = {"group_name": group.name, "description": group.description, "external_id": group.external_id}
    return _group_event("group.created", group, details)


def group_updated(old: Group, new: Group) -> Event:
    """A group's name, description or external id was changed."""
    changes = field_changes(old, new, "name", "description", "external_id")
    return _group_event("group.updated", new, {"group_name": new.name, "changes": changes})


def group_deleted(group: Group) -> Event:
    """A group was deleted, with its memberships. `count` says how many members it had."""
    return _group_event("group.deleted", group, {"group_name": group.name, "count": group.member_count})


def group_members_added(group: Group, user_ids: Sequence[UUID]) -> Event:
    """Users were added to a group. If many users are added, there are several events."""
    return _group_event("group.member_added", group, _group_members(group, user_ids))


def group_members_removed(group: Group, user_ids: Sequence[UUID]) -> Event:
    """Users were removed from a group. When a membership in the organization ends, this event is not recorded."""
    return _group_event("group.member_removed", group, _group_members(group, user_ids))


def group_attributes_changed(group: Group, names: Sequence[str]) -> Event:
    """A group's attributes changed, so its users have other attributes, too. The event has the attribute names, and no value."""
    return _group_event("group.attributes_updated", group, {"group_name": group.name, "attributes": list(names)})


def group_role_mapped(old: Group, new: Group) -> Event:
    """A group gives its members an organization role now, or gives it again after it had stopped. `old_role` is the earlier role."""
    further = {} if old.role in (None, new.role) else {"old_role": old.role}
    return _group_event("group.role_mapped", new, {"group_name": new.name, "role": new.role, **further})


def group_role_unmapped(group: Group) -> Event:
    """A group gives this role no longer. An admin ended the mapping."""
    return _group_event("group.role_unmapped", group, {"group_name": group.name, "role": group.role})


def group_mapping_stopped(org_id: UUID, mapping: GroupMapping) -> Event:
    """A group gives this role no longer, because the member who gave it to the group may no longer give it."""
    details = {"group_name": mapping.group_name, "role": mapping.role}
    return Event(EVENT_KINDS["group.mapping_stopped"], str(mapping.group_id), org_id=org_id, details=details)


def _group_members(group: Group, user_ids: Sequence[UUID]) -> Mapping[str, object]:
    details = {"group_name": group.name, "count": len(user_ids), "user_ids": list(map(str, user_ids))}
    return details | ({"user_id": str(user_ids[0])} if len(user_ids) == 1 else {})


def _group_event(name: str, group: Group, details: Mapping[str, object]) -> Event:
    return Event(EVENT_KINDS[name], str(group.id), org_id=group.org_id, details=details)


def sign_in_policy_updated(org_id: UUID | None, service_id: UUID | None, changes: Mapping[str, Mapping[str, object]]) -> Event:
    """The sign-in policy for an organization, an application or the platform was changed.

    For every part of its document that changed, `changes` has the old and the new value.
    """
    details = {"changes": changes}
    if org_id is None:
        return Event(EVENT_KINDS["platform.sign_in_policy.updated"], Target.PLATFORM.value, details=details)
    if service_id is None:
        return Event(EVENT_KINDS["organization.sign_in_policy.updated"], str(org_id), org_id=org_id, details=details)
    return Event(EVENT_KINDS["service.sign_in_policy.updated"], str(service_id), org_id=org_id, details=details)


def break_glass_users_changed(org_id: UUID, old: Collection[UUID], new: Collection[UUID]) -> Event:
    """The break-glass list, which belongs to the organization's sign-in policy, was changed."""
    users = {"old": sorted(map(str, old)), "new": sorted(map(str, new))}
    return sign_in_policy_updated(org_id, None, {BREAK_GLASS: users})


def owner_changed(org_id: UUID, old_owner_id: UUID, new_owner_id: UUID, reason: str | None = None) -> Event:
    """An organization's ownership was transferred to another member."""
    details = {"old_owner_id": str(old_owner_id), "new_owner_id": str(new_owner_id)} | ({} if reason is None else {"reason": reason})
    return Event(EVENT_KINDS["organization.owner.changed"], str(org_id), org_id=org_id, details=details)


def organization_approved(org_id: UUID, tier: str) -> Event:
    """A pending organization was approved. `tier` is its tier's name."""
    return Event(EVENT_KINDS["organization.approved"], str(org_id), org_id=org_id, details={"tier": tier})


def organization_rejected(org_id: UUID) -> Event:
    """A pending organization was rejected."""
    return Event(EVENT_KINDS["organization.rejected"], str(org_id), org_id=org_id)


def organization_suspended(org_id: UUID) -> Event:
    """An active organization was suspended."""
    return Event(EVENT_KINDS["organization.suspended"], str(org_id), org_id=org_id)


def organization_activated(org_id: UUID) -> Event:
    """A suspended organization was activated."""
    return Event(EVENT_KINDS["organization.activated"], str(org_id), org_id=org_id)


def organization_tier_updated(org_id: UUID, old: Mapping[str, object], new: Mapping[str, object]) -> Event:
    """An organization's tier or its own limits were changed.

    `old` and `new` have the tier and all limits.
    """
    return Event(EVENT_KINDS["organization.tier.updated"], str(org_id), org_id=org_id, details={"old": old, "new": new})


def organization_deleted(organization: Organization) -> Event:
    """An organization was deleted.

    The event goes to the platform's log, because the organization's log is deleted, too.
    """
    return Event(EVENT_KINDS["organization.deleted"], str(organization.id), details={"slug": organization.slug, "name": organization.name})


def smtp_configured(settings: SmtpSettings) -> Event:
    """An organization set up a mail server. The details have neither username nor password."""
    details = {
        "host": settings.host,
        "port": settings.port,
        "from_email": settings.from_email,
        "from_name": settings.from_name,
        "tls": settings.tls,
        "has_password": settings.has_password,
    }
    return Event(EVENT_KINDS["organization.smtp.configured"], str(settings.org_id), org_id=settings.org_id, details=details)


def smtp_removed(settings: SmtpSettings) -> Event:
    """An organization removed its mail server, and uses the platform's server again."""
    details = {"host": settings.host, "port": settings.port}
    return Event(EVENT_KINDS["organization.smtp.removed"], str(settings.org_id), org_id=settings.org_id, details=details)


def invitation_accepted(invitation: Invitation, user_id: UUID) -> Event:
    """An invitation was accepted, and this user became a member."""
    details = _invitation_details(invitation) | {"user_id": str(user_id)}
    return Event(EVENT_KINDS["invitation.accepted"], str(invitation.id), org_id=invitation.org_id, details=details)


def invitation_declined(invitation: Invitation) -> Event:
    """An invitation was declined."""
    return Event(EVENT_KINDS["invitation.declined"], str(invitation.id), org_id=invitation.org_id, details=_invitation_details(invitation))


def invitation_revoked(invitation: Invitation) -> Event:
    """An invitation was canceled.

    A member canceled it, or the inviter may no longer give this role (security R-4). The system
    also cancels invitations to users who are removed, deactivated or anonymized.
    """
    return Event(EVENT_KINDS["invitation.revoked"], str(invitation.id), org_id=invitation.org_id, details=_invitation_details(invitation))


def invitation_expired(invitation: Invitation) -> Event:
    """An invitation expired without an answer."""
    return Event(
        EVENT_KINDS["invitation.expired"],
        str(invitation.id),
        org_id=invitation.org_id,
        details=_invitation_details(invitation),
        by_time=True,
    )


def _invitation_details(invitation: Invitation) -> dict[str, str]:
    return {"invited_email": invitation.email, "role": invitation.role}


def domain_set(claim: DomainClaim) -> Event:
    """An organization added a domain, which is not verified yet."""
    return Event(EVENT_KINDS["domain.set"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def domain_verified(claim: DomainClaim) -> Event:
    """An organization verified a domain."""
    return Event(EVENT_KINDS["domain.verified"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def domain_deleted(claim: DomainClaim) -> Event:
    """An organization removed a domain."""
    return Event(EVENT_KINDS["domain.deleted"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def sessions_revoked(org_id: UUID, user_id: UUID, count: int) -> Event:
    """A member, or an application's signed LogoutRequest, ended a user's sessions in the organization. `sessions_revoked` counts them."""
    return Event(EVENT_KINDS["user.sessions_revoked"], str(user_id), org_id=org_id, details={"sessions_revoked": count})


def connection_person_unlinked(org_id: UUID, connection_id: UUID, user_id: UUID) -> Event:
    """A connection no longer knows an account."""
    details = {"connection_id": str(connection_id)}
    return Event(EVENT_KINDS["connection.person.unlinked"], str(user_id), org_id=org_id, details=details)


def attribute_created(attribute: Attribute) -> Event:
    """An organization declared a user attribute."""
    return _attribute_event("organization.attribute.created", attribute, {"kind": attribute.kind.value})


def attribute_updated(old: Attribute, new: Attribute) -> Event:
    """An attribute was changed. For every changed field, the event contains the old and new value."""
    changes = field_changes(old, new, "label", "writers", "merge", "position")
    return _attribute_event("organization.attribute.updated", new, {"changes": changes})


def attribute_deleted(attribute: Attribute) -> Event:
    """An attribute was deleted with all its values."""
    return _attribute_event("organization.attribute.deleted", attribute, {})


def _attribute_event(kind: str, attribute: Attribute, details: Mapping[str, object]) -> Event:
    org_id = attribute.org_id
    return Event(EVENT_KINDS[kind], str(org_id), org_id=org_id, details={"attribute": attribute.name, **details})


def attributes_changed(org_id: UUID, user_id: UUID, names: Sequence[str], writer: AttributeWriter) -> Event:
    """A user's attributes changed. The event has the attribute names, and no value: it may be the user's secret."""
    details = {"attributes": list(names), "writer": writer.value}
    return Event(EVENT_KINDS["user.attributes_updated"], str(user_id), org_id=org_id, details=details)


def branding_updated(org_id: UUID, old: BrandingSettings, new: BrandingSettings) -> Event:
    """An organization's branding was changed.

    For every changed field, the details have the old and new value.
    """
    details = field_changes(old, new, "logo_url", "primary_color", "product_name")
    return Event(EVENT_KINDS["branding.updated"], str(org_id), org_id=org_id, details=details)


def service_account_ends(org_id: UUID, account_id: UUID, name: str, ends_at: datetime) -> Event:
    """A service account's owner has left or deleted their account. The service account ends later, unless a member takes it over."""
    details = {"name": name, "ends_at": rfc3339(ends_at)}
    return Event(EVENT_KINDS["service_account.ending"], str(account_id), org_id=org_id, details=details)


def service_account_ended(org_id: UUID, account_id: UUID, name: str) -> Event:
    """A service account ended, some time after its owner had left."""
    return Event(EVENT_KINDS["service_account.ended"], str(account_id), org_id=org_id, details={"name": name})


def setup_link_ended(org_id: UUID, link_id: UUID, name: str, *, by: str | None) -> Event:
    """A set-up link ended before its expiry: its reader finished, an admin ended it, or its maker lost the right to create it.

    Too many wrong codes end a link, too.
    """
    details = {"setup_link_id": str(link_id), "name": name, "ended_by": by}
    return Event(EVENT_KINDS["setup_link.ended"], str(org_id), org_id=org_id, details=details)


def hrd_updated(org_id: UUID, old: Mapping[Domain, str], new: Mapping[Domain, str]) -> Event:
    """An organization's home realm routes were changed.

    For every changed domain, the details have the slugs of the old and the new identity provider.
    """
    changed = sorted(domain for domain in {*old, *new} if old.get(domain) != new.get(domain))
    domains = {domain: {"old": old.get(domain), "new": new.get(domain)} for domain in changed}
    return Event(EVENT_KINDS["hrd.updated"], str(org_id), org_id=org_id, details={"domains": domains})
