"""What the core asks of the world, and the one value through which a use case reaches it."""

from dataclasses import dataclass

from core.kernel.policy import Policy
from ports.crypto import Certificates, OneTimeCodes, Passwords, Tokens
from ports.observe import Clock, Metrics
from ports.outside import EmailTemplates, GeoIp, HttpSender, IdentityProviders, MailTransport, Payments, TxtRecords, UserAgentParser
from ports.saml import SamlDocuments
from ports.storage import Storage
from ports.threads import WorkerThreads


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything a use case may reach."""

    storage: Storage
    passwords: Passwords
    codes: OneTimeCodes
    tokens: Tokens
    certificates: Certificates
    saml: SamlDocuments
    email_templates: EmailTemplates
    mail: MailTransport
    dns: TxtRecords
    providers: IdentityProviders
    payments: Payments
    sender: HttpSender
    user_agents: UserAgentParser
    geoip: GeoIp
    clock: Clock
    metrics: Metrics
    threads: WorkerThreads
    policy: Policy
