"""Test sign-in: what an application would receive for the signed-in user, by the rules of a real sign-in.

The authorization endpoint's rules and the SAML rules decide. Nothing is stored, signed or sent, so there is no code,
token or assertion that could leak, and no session starts.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from core.accounts.model.accounts import Account
from core.applications.model import users
from core.applications.model.services import ServiceNotFound
from core.authentication.admissions import judge_at_application
from core.authentication.model import claim_rules, sessions
from core.authentication.model.claim_document import Document
from core.authentication.tokens import issuing
from core.federation.model import sign_in
from core.federation.oauth import requests, target
from core.federation.oauth.model.authorization import (
    Authorization,
    AuthorizationRefused,
    PushedRequest,
    choose_redirect_uri,
    s256_challenge,
)
from core.federation.saml import assertions
from core.federation.saml import configuration as saml
from core.federation.saml.model import configuration
from core.kernel import callers, errors, values
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy.explanations import explain_verdict
from core.kernel.sign_in_policy.steps import Start, Step
from ports import Ports

_OUTCOMES: Final = {Step.SIGN_IN: sign_in.PreviewOutcome.SIGN_IN, Step.ENROLL: sign_in.PreviewOutcome.ENROLL}
DEFAULT_SCOPE = "openid profile email org roles"


async def preview(
    ports: Ports,
    base_url: str,
    caller: callers.Member,
    service_slug: str,
    scope: str = DEFAULT_SCOPE,
    redirect_uri: str | None = None,
    *,
    document: Document | None = None,
) -> sign_in.SignInPreview:
    """Return what the application would receive if the caller signed in to it now.

    `redirect_uri` is by default the first registered one, also if it is empty (RFC 6749 section 3.1). An
    application without redirect URIs has no preview of OpenID Connect, and one without an active SAML
    identity provider none of SAML. `document` is a valid claims document that counts in place of the stored one.

    Raises: ServiceNotFound, OrganizationNotActive, SessionEnded, RedirectUriNotRegistered.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        service, context = await read.services.client_by_slug(caller.acts_in.slug, service_slug) or errors.refuse(ServiceNotFound)
        if context.status is not callers.OrganizationStatus.ACTIVE:
            raise errors.OrganizationNotActive
        account = await read.accounts.by_id(caller.user_id) or errors.refuse(errors.SessionEnded)
        session = await read.session_sign_ins.load_factors(caller.session_id, caller.user_id) or errors.refuse(errors.SessionEnded)
        provider = await saml.provider_of(read, context, now)
    openid = None
    if uri := redirect_uri or next(iter(service.redirect_uris), None):
        request = PushedRequest(  # which every application may send
            client_id=service.client_name,
            response_type="code",
            scope=scope,
            redirect_uri=choose_redirect_uri(service, uri),
            code_challenge=s256_challenge(values.new_secret()),
            code_challenge_method="S256",
        )
        authorization = Authorization(request, service, context, request.redirect_uri)
        openid = await _preview_openid(ports, base_url, _visitor(caller, session), context, authorization, document)
    return sign_in.SignInPreview(
        openid, None if provider is None else await _preview_saml(ports, provider, account, _visitor(caller, session), now)
    )


def _visitor(caller: callers.Member, session: callers.BrowserSession) -> callers.Visitor:
    return callers.Visitor(
        user_id=caller.user_id,
        email=caller.email,
        email_verified=caller.email_verified,
        session_id=caller.session_id,
        service=None,
        address=caller.address,
        agent=caller.agent,
        browser=session,
    )


async def _preview_openid(
    ports: Ports,
    base_url: str,
    visitor: callers.Visitor,
    service: callers.ServiceContext,
    authorization: Authorization,
    document: Document | None,
) -> sign_in.OpenIdPreview:
    redirect_uri = authorization.request.redirect_uri or ""
    try:
        waiting = requests.check_parameters(ports, authorization, base_url)
        found = await target.find_step(ports, visitor, waiting, path=PolicyPath.PREVIEW)
    except AuthorizationRefused as refusal:
        return sign_in.OpenIdPreview(sign_in.PreviewOutcome.REFUSED, redirect_uri, error=refusal.oauth_error, message=refusal.message)
    if found.step in (Step.SIGN_IN, Step.ENROLL):
        verdict = found.admission.verdict
        message = None if isinstance(verdict, Start) else explain_verdict(verdict)
        return sign_in.OpenIdPreview(_OUTCOMES[found.step], redirect_uri, message=message)
    grant, outcome = (
        found.grant,
        sign_in.PreviewOutcome.CONSENT if found.step in (Step.CONFIRM, Step.CONSENT) else sign_in.PreviewOutcome.SIGNED_IN,
    )
    if grant is None:  # without the scope openid
        return sign_in.OpenIdPreview(outcome, redirect_uri)
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        facts = await read.openid_facts.load_all(visitor.user_id, service.id, now) or errors.refuse(errors.SessionEnded)
        facts = facts.seen_by(visitor.restricted_to)
    if document is not None:
        facts = replace(facts, further=replace(facts.further, document=document))
    return sign_in.OpenIdPreview(
        outcome,
        redirect_uri,
        scope=grant.scope,
        id_token=_id_token(ports, visitor, service, sessions.OpenIdSubject(grant, facts), now),
        userinfo={"sub": str(visitor.user_id), **claim_rules.userinfo_claims(facts, grant)},
        access_token=claim_rules.access_token_claims(facts, grant),
    )


def _id_token(
    ports: Ports, visitor: callers.Visitor, service: callers.ServiceContext, openid: sessions.OpenIdSubject, now: datetime
) -> dict[str, object]:
    """Return the claims of the ID token."""
    subject = sessions.TokenSubject(
        session_id=values.new_id(),
        user_id=visitor.user_id,
        email=visitor.email,
        email_verified=visitor.email_verified,
        ends_at=now + ports.policy.session_absolute_ttl,
        service=service,
        proofs=visitor.browser.proofs,
    )
    return ports.tokens.id_token_claims(issuing.new_id_token(ports, subject, openid, None, now))


async def _preview_saml(
    ports: Ports, provider: configuration.SamlIdentityProvider, account: Account, visitor: callers.Visitor, now: datetime
) -> sign_in.SamlPreview:
    service, name_format, name = provider.service, provider.name_id_format, None
    async with ports.storage.reading() as read:
        is_admitted = await read.end_users.may_sign_on(service.org_id, service.id, account.id, now)
        if name_format is configuration.NameIdFormat.PERSISTENT:
            name = await read.saml_sign_ons.known_persistent_name_id(service.org_id, service.id, account.id)
    try:
        if not is_admitted:
            raise users.NoAccessToService
        assertions.require_sign_on_factors(provider, account, callers.proofs_at(service, visitor.browser.proofs, now))
    except users.SecondFactorRequired as refusal:
        return sign_in.SamlPreview(sign_in.PreviewOutcome.SIGN_IN, provider.entity_id, name_format, message=refusal.message)
    except errors.Forbidden as refusal:
        return sign_in.SamlPreview(
            sign_in.PreviewOutcome.REFUSED, provider.entity_id, name_format, error=refusal.code, message=refusal.message
        )
    admission = await judge_at_application(ports, PolicyPath.PREVIEW, service, visitor)
    if not isinstance(admission.verdict, Start):
        outcome = sign_in.PreviewOutcome.REFUSED if admission.step is None else _OUTCOMES[admission.step]
        return sign_in.SamlPreview(outcome, provider.entity_id, name_format, message=explain_verdict(admission.verdict))
    if name_format in (configuration.NameIdFormat.EMAIL, configuration.NameIdFormat.UNSPECIFIED):
        name = str(account.email if name_format is configuration.NameIdFormat.EMAIL else account.id)
    async with ports.storage.reading() as read:
        facts = await assertions.load_facts(read, provider, account.id, now)
    facts = None if facts is None else facts.seen_by(visitor.restricted_to)
    try:
        attributes = assertions.build_attributes(provider, account, facts)
    except (configuration.TooManySamlValues, configuration.SamlValuesNotJoinable) as refusal:
        return sign_in.SamlPreview(
            sign_in.PreviewOutcome.REFUSED, provider.entity_id, name_format, error=refusal.code, message=refusal.message
        )
    return sign_in.SamlPreview(sign_in.PreviewOutcome.SIGNED_IN, provider.entity_id, name_format, name_id=name, attributes=attributes)
