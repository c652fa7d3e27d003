"""The sentences for the audit log, one per event kind.

A field in braces is `actor`, `target`, or a path in the details, such as `tier` or `new.tier`. A field that names a user or an application
by id, such as `new_owner_id`, becomes its name. The first sentence applies whose condition is true and whose fields all have a value. A
condition is a path in the details, or `self` if the actor is the target, or the invited user. The last sentence has no condition and only
the fields `actor` and `target`, so every entry has a sentence.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Sentence = str | tuple[str, str]  # a sentence, or a condition and a sentence

_CHANGED_RESOURCE: Final = "{actor} changed the API resource {target}"

SENTENCES: Final[Mapping[str, tuple[Sentence, ...]]] = MappingProxyType(
    {
        # Sign-ins and accounts
        "user.login.success": ("{target} signed in",),
        "user.reauthenticated": ("{target} confirmed that it is them",),
        "user.created": ("{actor} created the account {target} for the application {service_slug}", "{actor} created the account {target}"),
        "user.updated": (
            ("self", "{actor} changed their profile: {changed}"),
            "{actor} changed the profile of {target}: {changed}",
            "{actor} changed the profile of {target}",
        ),
        "user.email_changed": (("self", "{actor} changed their email address"), "{actor} changed the email address of {target}"),
        "user.deactivated": (
            ("by_user", "{target} deleted their account"),
            ("by_platform", "{actor} deactivated the account of {target}"),
            ("whole_account", "{actor} closed the account of {target}"),
            "{actor} deactivated {target}",
        ),
        "user.reactivated": (
            ("by_user", "{target} undid the deletion of their account"),
            ("by_platform", "{actor} reactivated the account of {target}"),
            ("whole_account", "{actor} opened the account of {target} again"),
            "{actor} reactivated {target}",
        ),
        "user.blocked": ("{actor} blocked {target}",),
        "user.unblocked": ("{actor} unblocked {target}",),
        "user.released": ("The account of {target} is no longer managed here",),
        "user.taken_over": ("{actor} took over the account of {target}",),
        "user.anonymized": (("self", "{target} anonymized their account"), "{actor} anonymized {target}"),
        "user.impersonated": ("{actor} started to act as {target} in {service_slug}", "{actor} started to act as {target}"),
        "impersonation.request": ("{actor} sent {method} {route}", "{actor} sent a request"),
        "user.sessions_revoked": (
            ("by_platform", "{actor} signed {target} out of all sessions"),
            "{actor} ended {sessions_revoked} of the sessions of {target}",
            "{actor} ended the sessions of {target}",
        ),
        # Members and invitations
        "user.invited": ("{actor} invited {target} as {role}", "{actor} invited {target}"),
        "user.joined": (("self", "{target} joined as {role}"), "{actor} added {target} as {role}", "{target} joined"),
        "user.removed": (
            ("permanently", "{actor} deleted the account of {target}"),
            "{actor} removed {target} from the application {service_slug}",
            ("self", "{target} left the organization"),
            "{actor} removed {target}",
        ),
        "user.role_updated": ("{actor} changed {target} from {old_role} to {new_role}", "{actor} changed the role of {target}"),
        "role.created": ("{actor} created the role {target}",),
        "role.updated": ("{actor} changed the role {target}",),
        "role.deleted": (
            "{actor} deleted the role {target}, and gave its holders the role {replacement}",
            "{actor} deleted the role {target}",
        ),
        "invitation.accepted": (
            ("self", "{target} accepted the invitation as {role}"),
            "{actor} accepted the invitation of {target} as {role}",
            "{actor} accepted the invitation of {target}",
        ),
        "invitation.declined": ("{target} declined the invitation as {role}", "{target} declined an invitation"),
        "invitation.expired": ("The invitation of {target} expired",),
        "invitation.revoked": ("{actor} canceled the invitation of {target}",),
        # Groups
        "group.created": ("{actor} created the group {target}",),
        "group.updated": ("{actor} changed the group {target}",),
        "group.deleted": ("{actor} deleted the group {target}",),
        "group.member_added": (
            "{actor} added {user_id} to the group {target}",
            "{actor} added {count} users to the group {target}",
            "{actor} added users to the group {target}",
        ),
        "group.member_removed": (
            "{actor} removed {user_id} from the group {target}",
            "{actor} removed {count} users from the group {target}",
            "{actor} removed users from the group {target}",
        ),
        "group.attributes_updated": ("{actor} changed attributes of the group {target}",),
        "group.role_mapped": (
            "{actor} gave the members of the group {target} the role {role}",
            "{actor} gave the members of the group {target} a role",
        ),
        "group.role_unmapped": (
            "{actor} took the role {role} from the members of the group {target}",
            "{actor} took a role from the members of the group {target}",
        ),
        "group.mapping_stopped": ("The group {target} no longer gives the role {role}", "The group {target} no longer gives a role"),
        # Account security
        "security.mfa.enabled": (
            ("self", "{actor} turned on two-factor authentication"),
            "{actor} turned on two-factor authentication for {target}",
        ),
        "security.mfa.disabled": (
            ("forced", "{actor} removed the second factor of {target}"),
            ("self", "{actor} turned off two-factor authentication"),
            "{actor} turned off two-factor authentication for {target}",
        ),
        "security.mfa.failed": ("A wrong second factor was used for {target}",),
        "security.passkey.added": ("{target} added a passkey",),
        "security.passkey.removed": ("A passkey of {target} was deleted",),
        "security.passkey_wait.started": ("{target} reported all passkeys as lost",),
        "security.passkey_wait.over": ("The wait for lost passkeys of {target} is over",),
        "security.passkey_wait.ended": ("The wait for lost passkeys of {target} ended",),
        "security.passkey.refused": ("A passkey of {target} was refused, because it may be a copy",),
        "security.password.changed": (("self", "{actor} changed their password"), "The password of {target} was changed"),
        "security.password.reset_sent": ("{actor} sent {target} a link to set a new password",),
        "security.identity.linked": ("{target} linked an account at {provider}", "{target} linked an account"),
        "security.identity.unlinked": (
            "{target} unlinked {provider} from the application {service_slug}",
            "{target} unlinked their account at {provider}",
            "{target} unlinked an account",
        ),
        "security.email_change.requested": ("{target} asked to change their email address",),
        "security.email_change.undone": ("The change of the email address of {target} was undone",),
        "break_glass.used": ("{target} signed in by break glass, without the connection {connection}", "{target} signed in by break glass"),
        "security.recovery.issued": ("{target} can recover the account until {expires_at}", "{target} can recover the account"),
        "security.recovery.canceled": ("The recovery of {target} was canceled",),
        "security.recovery.used": ("{target} recovered the account with a new {factor}", "{target} recovered the account"),
        "security.recovery.failed": ("A wrong recovery code was sent for {target}",),
        "security.changes.undone": ("Changes to the security of {target} were undone",),
        "access.refused": ("{actor} was refused: {error}", "{actor} was refused a change"),
        # The platform
        "platform.owner.promoted": ("{actor} made {target} a platform owner",),
        "platform.owner.demoted": ("{actor} removed {target} from the platform owners",),
        "platform.owner.recovery_created": (
            "{operator} created a sign-in link for {target} on the server",
            "{actor} created a sign-in link for {target}",
        ),
        "platform.owner.recovered": ("{target} used a sign-in link from the server",),
        "platform.sign_in_policy.updated": ("{actor} changed the sign-in policy of the platform",),
        "signing_key.rotated": ("{operator} published the signing key {target}", "{actor} published the signing key {target}"),
        "signing_key.compromised": (
            "{operator} replaced all signing keys by {target}",
            "{actor} replaced all signing keys by {target}",
        ),
        # Organizations and their settings
        "organization.created": ("{actor} created the organization {target}",),
        "organization.updated": ("{actor} changed the settings of {target}",),
        "organization.attribute.created": ("{actor} declared the attribute {attribute}", "{actor} declared an attribute of users"),
        "organization.attribute.updated": ("{actor} changed the attribute {attribute}", "{actor} changed an attribute of users"),
        "organization.attribute.deleted": ("{actor} deleted the attribute {attribute}", "{actor} deleted an attribute of users"),
        "user.attributes_updated": ("{actor} changed attributes of {target}",),
        "organization.sign_in_policy.updated": ("{actor} changed the sign-in policy",),
        "organization.deleted": ("{actor} deleted the organization {target}",),
        "organization.owner.changed": (
            "{actor} transferred {target} from {old_owner_id} to {new_owner_id}",
            "{actor} transferred {target} to another owner",
        ),
        "organization.approved": ("{actor} approved {target} with the tier {tier}", "{actor} approved {target}"),
        "organization.rejected": ("{actor} rejected {target}",),
        "organization.suspended": ("{actor} suspended {target}",),
        "organization.activated": ("{actor} activated {target}",),
        "organization.tier.updated": ("{actor} changed the tier or the limits of {target}",),
        "organization.smtp.configured": ("{actor} set up the mail server {host}", "{actor} set up a mail server"),
        "organization.smtp.removed": ("{actor} removed the mail server {host}", "{actor} removed the mail server"),
        "domain.set": ("{actor} added the domain {domain}", "{actor} added a domain"),
        "domain.verified": ("{actor} verified the domain {domain}", "{actor} verified a domain"),
        "domain.deleted": ("{actor} removed the domain {domain}", "{actor} removed a domain"),
        "branding.updated": ("{actor} changed the branding",),
        "connection.created": ("{actor} created the connection {name}", "{actor} created a connection"),
        # The platform's connections have no name here.
        "connection.updated": ("{actor} changed the connection {name}", "{actor} changed the logo of the identity provider {target}"),
        "connection.deleted": ("{actor} removed the connection {name}", "{actor} removed a connection"),
        "connection.activated": ("{actor} activated the connection {name}", "{actor} activated a connection"),
        "connection.deactivated": ("{actor} deactivated the connection {name}", "{actor} deactivated a connection"),
        "connection.client_secret.set": ("{actor} set the client secret of {name}", "{actor} set the client secret of a connection"),
        "connection.group.mapped": ("{actor} mapped a group in {name}", "{actor} mapped a group in a connection"),
        "connection.group.unmapped": ("{actor} removed a mapped group from {name}", "{actor} removed a mapped group from a connection"),
        "connection.person.linked": ("{target} was linked with a connection",),
        "connection.person.unlinked": ("{actor} unlinked {target} from a connection",),
        "connection.key.created": ("{actor} created a key for the connection {name}", "{actor} created a key for a connection"),
        "connection.key.activated": ("{actor} activated the next key of {name}", "{actor} activated the next key of a connection"),
        "connection.certificate.added": ("{actor} added a certificate to {name}", "{actor} added a certificate to a connection"),
        "connection.certificate.expires": (
            "A certificate of {name} expires on {valid_until}",
            "A certificate of a connection expires soon",
        ),
        "connection.certificate.removed": ("{actor} removed a certificate from {name}", "{actor} removed a certificate from a connection"),
        "connection.failing": ("Users can't sign in through {name}", "Users can't sign in through a connection"),
        "connection.recovered": ("Users can sign in through {name} again", "Users can sign in through a connection again"),
        "hrd.updated": ("{actor} changed the sign-in routing",),
        # Applications, plans and subscriptions
        "service.created": ("{actor} created the application {target}",),
        "service.updated": ("{actor} changed the application {target}",),
        "service.deleted": ("{actor} deleted the application {target}",),
        "service.access.updated": ("{actor} changed who can use the application {target}",),
        "service.authorization.updated": ("{actor} changed the permissions of {target}",),
        "service.role.created": ("{actor} created the role {role} of {target}", "{actor} created a role of {target}"),
        "service.role.updated": ("{actor} changed the role {role} of {target}", "{actor} changed a role of {target}"),
        "service.role.deleted": ("{actor} deleted the role {role} of {target}", "{actor} deleted a role of {target}"),
        "service.role.assigned": (
            "{actor} gave {target} the role {role} of {service_name}",
            "{actor} gave {target} a role of an application",
        ),
        "service.role.unassigned": (
            "{actor} took the role {role} of {service_name} from {target}",
            "{actor} took a role of an application from {target}",
        ),
        "service.role.group_assigned": (
            "{actor} gave the group {target} the role {role} of {service_name}",
            "{actor} gave the group {target} a role of an application",
        ),
        "service.role.group_unassigned": (
            "{actor} took the role {role} of {service_name} from the group {target}",
            "{actor} took a role of an application from the group {target}",
        ),
        "service.claims.updated": ("{actor} changed the claims of the application {target}",),
        "service.sign_in_policy.updated": ("{actor} changed the sign-in policy of {target}",),
        "service.backchannel_logout.failed": ("The application {target} did not accept a logout notice",),
        "service.user.assigned": ("{actor} assigned {target} to {service_name}", "{actor} assigned {target} to an application"),
        "service.group.assigned": (
            "{actor} assigned the group {target} to {service_name}",
            "{actor} assigned the group {target} to an application",
        ),
        "service.group.unassigned": (
            "{actor} ended the assignment of the group {target} to {service_name}",
            "{actor} ended the assignment of the group {target} to an application",
        ),
        "service.user.unassigned": (
            "{actor} ended the assignment of {target} to {service_name}",
            "{actor} ended the assignment of {target} to an application",
        ),
        "service.oauth_credentials.updated": (
            "{actor} changed the client of the application {target} at {provider}",
            "{actor} changed a client of the application {target}",
        ),
        "service.client_secret.rotated": ("{actor} replaced the client secret of {target}",),
        "consent.granted": (
            "{target} consented to {client}",  # an external client chooses its own name
            "{target} consented to {service_name}",
            "{target} consented to an application",
        ),
        "consent.withdrawn": (
            "{target} withdrew the consent to {client}",
            "{target} withdrew the consent to {service_name}",
            "{target} withdrew the consent to an application",
        ),
        "plan.created": ("{actor} created the plan {target}",),
        "plan.updated": ("{actor} changed the plan {target}",),
        "plan.deleted": ("{actor} deleted the plan {target}",),
        "subscription.created": ("{actor} subscribed {user_id} to {plan_name}", "{actor} created a subscription"),
        "subscription.updated": (
            "The subscription of {user_id} changed from {status.old} to {status.new}",
            "{actor} changed the subscription of {user_id}",
            "{actor} changed a subscription",
        ),
        "subscription.canceled": (
            ("at_provider", "{actor} canceled a subscription at the payment provider"),
            "{actor} canceled the subscription of {user_id} to {plan_name}",
            "{actor} canceled a subscription",
        ),
        # Programs and their credentials
        "api_resource.created": ("{actor} created the API resource {target}",),
        "api_resource.updated": (_CHANGED_RESOURCE,),
        "api_resource.deleted": ("{actor} deleted the API resource {target}",),
        "api_resource.access.updated": ("{actor} changed who can use the API resource {target}",),
        "api_resource.external_clients.updated": ("{actor} changed which external clients can use the API resource {target}",),
        "external_client.added": (
            "{actor} was the first to give {client} access to {target}",
            "{actor} was the first to give an external client access to {target}",
        ),
        "external_client.updated": ("The metadata of {client} changed", "The metadata of an external client changed"),
        "external_client.removed": ("{client} was removed after a long time without use", "An unused external client was removed"),
        "api_resource.client.updated": ("{actor} changed the access of {service_name} to {target}", _CHANGED_RESOURCE),
        "api_resource.client.removed": ("{actor} ended the access of {service_name} to {target}", _CHANGED_RESOURCE),
        "api_resource.service_account.updated": ("{actor} changed the access of {service_account_name} to {target}", _CHANGED_RESOURCE),
        "api_resource.credential.created": (
            "{actor} created the credential {credential_name} of {target}",
            "{actor} created a credential of {target}",
        ),
        "api_resource.credential.revoked": (
            "{actor} revoked the credential {credential_name} of {target}",
            "{actor} revoked a credential of {target}",
        ),
        "api_resource.user.assigned": (
            "{actor} assigned {target} to the API resource {name}",
            "{actor} assigned {target} to an API resource",
        ),
        "api_resource.user.unassigned": (
            "{actor} ended the assignment of {target} to the API resource {name}",
            "{actor} ended the assignment of {target} to an API resource",
        ),
        "api_resource.grant.ended": (
            "{actor} ended the access of {client} to the API resource {name} for {target}",
            "{actor} ended the access of an external client for {target}",
        ),
        "api_resource.group.assigned": (
            "{actor} assigned the group {target} to the API resource {name}",
            "{actor} assigned the group {target} to an API resource",
        ),
        "api_resource.group.unassigned": (
            "{actor} ended the assignment of the group {target} to the API resource {name}",
            "{actor} ended the assignment of the group {target} to an API resource",
        ),
        "service_account.created": ("{actor} created the service account {target}",),
        "service_account.updated": ("{actor} changed the service account {target}",),
        "service_account.deleted": ("{actor} deleted the service account {target}",),
        "service_account.ending": (
            "{actor} has left, and the service account {target} goes on until {ends_at}",
            "{actor} has left, and the service account {target} goes on for a while",
        ),
        "service_account.ended": ("{actor} ended the service account {target}, after its owner had left",),
        "service_account.credential.created": (
            "{actor} created the credential {credential_name} of {target}",
            "{actor} created a credential of {target}",
        ),
        "service_account.credential.revoked": (
            "{actor} revoked the credential {credential_name} of {target}",
            "{actor} revoked a credential of {target}",
        ),
        "api_key.created": ("{actor} created the API key {target} of {service_slug}", "{actor} created the API key {target}"),
        "api_key.deleted": ("{actor} deleted the API key {target} of {service_slug}", "{actor} deleted the API key {target}"),
        "personal_token.created": ("{actor} created the personal access token {target}",),
        "personal_token.revoked": ("{actor} revoked the personal access token {target}",),
        "registration_token.created": ("{actor} created the registration token {name}", "{actor} created a registration token"),
        "registration_token.deleted": ("{actor} deleted the registration token {name}", "{actor} deleted a registration token"),
        "scim_token.created": ("{actor} created the SCIM token {name}", "{actor} created a SCIM token"),
        "scim_token.updated": ("{actor} changed the SCIM token {name}", "{actor} changed a SCIM token"),
        "scim_token.revoked": ("{actor} revoked the SCIM token {name}", "{actor} revoked a SCIM token"),
        "setup_link.created": ("{actor} created the set-up link {name}", "{actor} created a set-up link"),
        "setup_link.opened": ("{actor} opened the set-up link {name}", "{actor} opened a set-up link"),
        "setup_link.part.changed": ("{actor} prepared a part of the set-up link {name}", "{actor} prepared a part of a set-up link"),
        "setup_link.part.applied": ("{actor} applied a part of the set-up link {name}", "{actor} applied a part of a set-up link"),
        "setup_link.ended": ("{actor} ended the set-up link {name}", "{actor} ended a set-up link"),
        # Integrations
        "saml.configured": ("{actor} changed the SAML settings of {target}",),
        "saml.disabled": ("{actor} turned off SAML for {target}",),
        "saml.certificate.created": ("{actor} created the SAML certificate of {target}",),
        "saml.certificate.next_created": ("{actor} created the next SAML certificate of {target}",),
        "saml.certificate.next_deleted": ("{actor} deleted the next SAML certificate of {target}",),
        "saml.certificate.activated": ("{actor} activated the next SAML certificate of {target}",),
        "saml.certificate.activation_undone": ("{actor} activated the previous SAML certificate of {target} again",),
        "webhook.created": ("{actor} created the webhook {webhook_name}", "{actor} created a webhook"),
        "webhook.updated": ("{actor} changed the webhook {webhook_name}", "{actor} changed a webhook"),
        "webhook.deleted": ("{actor} deleted the webhook {webhook_name}", "{actor} deleted a webhook"),
        "webhook.secret.rotated": (
            "{actor} replaced the secret of the webhook {webhook_name}",
            "{actor} replaced the secret of a webhook",
        ),
        "siem.configured": ("{actor} set up forwarding to {endpoint_url}", "{actor} set up forwarding to a SIEM"),
        "siem.removed": ("{actor} removed the forwarding to {endpoint_url}", "{actor} removed the forwarding to a SIEM"),
    }
)
