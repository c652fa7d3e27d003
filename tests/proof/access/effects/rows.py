"""The database's tables and columns, by how they change.

How changes are named: `+table` is a new row, `-table` a deleted row, `table.column` a changed value. A table in these lists stands for all
its changes, unless a longer name says otherwise. A new column in a powerful table has power, until it is listed as plain.
"""

from collections.abc import Mapping
from enum import Enum, auto
from itertools import chain
from typing import Final


class Kind(Enum):
    """The kind of a change. A route's effect says which kinds it may leave."""

    NOT_COUNTED = auto()
    SESSION = auto()  # a session ended
    PROTOCOL = auto()  # the state of a sign-in, or of a token protocol
    PLAIN = auto()  # powerless data about an organization, an account or the platform
    POWER = auto()  # access, secrets, connections, token contents, blocks, and ways into an account


Names = Mapping[str, str]  # change names by the reason for their kind


def names_of(lists: Names) -> list[str]:
    return list(chain.from_iterable(names.split() for names in lists.values()))


NOT_COUNTED: Final[Names] = {
    "the audit log, the log of sign-ins, and other records of the past": """
        audit_log audit_totals blankings events former_members login_events login_totals member_login_totals mfa_events privacy_log
        scim_requests""",
    "figures": "end_user_totals figure_progress population_figures sign_in_figures traffic_figures user_figures",
    "limits": "guesses rates sign_in_charges",
    "passes": "break_glass_uses policy_passes",
    "flows, which need their secret": """
        authorization_codes device_codes kept_forms one_time_tokens pushed_requests reauthentications saml_logouts sent_forms
        sign_in_flows""",
    "used values, which do not work again": "client_assertions dpop_proofs used_passkey_challenges used_provider_messages",
    "queues, deliveries and mails": """
        billing_cancellations billing_deleted_customers billing_events billing_facts billing_payment_methods connection_health
        deleted_organizations deleted_services deleted_webhooks logout_notices mails removed_siem_configurations saml_logout_requests
        security_notices siem_queue webhook_deliveries""",
    "the service itself": "dpop_nonce_keys issuer leases schema_migrations signing_keys",
}
# Columns, in all tables that have them.
NOT_COUNTED_COLUMNS: Final[Names] = {
    "last use": "announced backed_up first_login_at last_login_at last_step last_used_at passkey_offered_at policy_reminded_at sign_count",
    "times of changes": "changed_at email_changed_at members_changed_at password_changed_at profile_changed_at updated_at",
    "follows from other columns and rows": """
        authorization_version canonical_name canonical_slug claims_version deactivated maps_groups member_count name_key owner_id
        passkey_count security_key_count sign_in_policy_version subscription_count user_count version""",
}
OF_SESSIONS: Final[Names] = {"the end of a session": "sessions.ended_at"}
OF_PROTOCOLS: Final[Names] = {
    "the session, and its protocol state": """
        connection_logins devices impersonated_organizations refresh_tokens saml_name_ids saml_sessions sessions""",
    "the first sign-in to an application, which its access policy allowed": "+end_users +service_users",
    "a backup code is used up": "backup_codes.used_at",
}
PLAIN: Final[Names] = {
    "names, texts and pictures": """
        api_keys.name api_resources.name api_resources.scope_descriptions branding connections.name devices.name groups.description
        images organization_attributes.label organization_attributes.position organization_roles.description organization_roles.name
        organizations.name passkeys.name scim_tokens.name service_accounts.name service_permissions.description
        service_roles.description service_roles.name services.client_uri services.logo_url services.name users.locale users.name
        users.picture users.profile_details users.zoneinfo webhooks.name""",
    "proposals, which an admin applies": "setup_proposals",
    "prices and purchases": "billing_checkouts billing_customers plans",
    "limits of an organization": "organizations.max_services organizations.max_users organizations.tier_id tiers",
}
POWER: Final[Names] = {
    "accounts and ways into them": """
        account_recoveries backup_codes connection_identities email_changes former_addresses former_mfa former_passkeys identities mfa
        passkeys users""",
    "members, end users, groups and their rights": """
        api_resource_assignments api_resource_groups_assigned connection_group_members connection_groups end_users group_members groups
        invitations memberships organization_roles scim_users service_groups_assigned service_permissions service_role_groups
        service_role_users service_roles service_users subscriptions""",
    "blocks": "directory_blocks end_user_blocks",
    "applications, programs and their secrets": """
        api_consents api_keys api_resource_clients api_resource_service_accounts api_resources consents credentials personal_tokens
        registration_tokens saml_certificates saml_configurations scim_tokens service_accounts service_connections
        services""",
    "connections and outbound targets of the organization": """
        connection_certificates connection_keys connections domains former_webhook_secrets home_realm_routes setup_links
        siem_configurations smtp_settings webhooks""",
    "rules of an organization": "break_glass_users organizations sign_in_policies",
    "contents of tokens": "attribute_values group_attribute_values organization_attributes service_claims",
}
LISTS: Final = {
    Kind.NOT_COUNTED: NOT_COUNTED,
    Kind.SESSION: OF_SESSIONS,
    Kind.PROTOCOL: OF_PROTOCOLS,
    Kind.PLAIN: PLAIN,
    Kind.POWER: POWER,
}
# Own data without power, by the user's action.
OWN: Final[Names] = {
    "changes a profile, and values that users may write": """
        +attribute_values +images -images attribute_values.attributes images.key images.large images.small users.locale users.name
        users.picture users.profile_details users.zoneinfo""",
    "names and removes devices, and ends sessions": """
        devices.mfa_at devices.name devices.revoked_at devices.trust_expires_at devices.trust_hash sessions.ended_at""",
    "withdraws consents, and keeps the address": "-api_consents -consents email_changes.cancelled_at",
    "answers invitations": "+memberships invitations.ended_at invitations.status memberships.confirmed_at",
}
MINE: Final = frozenset(names_of(OWN))

_KINDS: Final = {name: kind for kind, lists in LISTS.items() for name in names_of(lists)}
_NOT_COUNTED_COLUMNS: Final = frozenset(names_of(NOT_COUNTED_COLUMNS))


def table_of(name: str) -> str:
    return name.lstrip("+-").partition(".")[0]


def kind_of(name: str) -> Kind:
    if name in _KINDS:
        return _KINDS[name]
    return Kind.NOT_COUNTED if name.partition(".")[2] in _NOT_COUNTED_COLUMNS else _KINDS[table_of(name)]
