"""Interfaces to everything outside the core, and `Ports`, which gives a use case access to them."""

from dataclasses import dataclass

from core.kernel.policy import Policy
from ports.crypto import Certificates, ClientAssertions, DpopProofs, OneTimeCodes, Passkeys, Passwords, PipelineTokens, Tokens, Vault
from ports.observe import Clock, Installation, Metrics
from ports.outside import (
    Anonymizers,
    ClientDocuments,
    EmailTemplates,
    GeoIp,
    HttpSender,
    Images,
    MailTransport,
    OpenIdProviders,
    Payments,
    PublishedKeys,
    TxtRecords,
    UserAgentParser,
    WorkerThreads,
)
from ports.saml import SamlDocuments, SamlProviders
from ports.storage import Storage


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports that a use case can use."""

    storage: Storage
    vault: Vault
    passwords: Passwords
    codes: OneTimeCodes
    passkeys: Passkeys
    tokens: Tokens
    client_assertions: ClientAssertions
    pipeline_tokens: PipelineTokens
    dpop_proofs: DpopProofs
    certificates: Certificates
    saml: SamlDocuments
    saml_providers: SamlProviders
    email_templates: EmailTemplates
    mail: MailTransport
    dns: TxtRecords
    openid_providers: OpenIdProviders
    payments: Payments
    sender: HttpSender
    client_keys: PublishedKeys
    client_documents: ClientDocuments
    issuer_keys: PublishedKeys
    user_agents: UserAgentParser
    geoip: GeoIp
    anonymizers: Anonymizers
    clock: Clock
    metrics: Metrics
    threads: WorkerThreads
    images: Images
    installation: Installation
    policy: Policy
