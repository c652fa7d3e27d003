"""What the core asks of the world, and the one value through which a use case reaches it."""

from dataclasses import dataclass

from core.kernel.policy import Policy
from ports.crypto import Certificates, OneTimeCodes, Passwords, Tokens
from ports.observe import Clock, Metrics
from ports.outside import Agents, HttpSender, IdentityProviders, Letters, MailTransport, Payments, Places, TxtRecords
from ports.saml import SamlDocuments
from ports.storage import Storage


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything a use case may reach."""

    storage: Storage
    passwords: Passwords
    codes: OneTimeCodes
    tokens: Tokens
    certificates: Certificates
    saml: SamlDocuments
    letters: Letters
    mail: MailTransport
    dns: TxtRecords
    providers: IdentityProviders
    payments: Payments
    sender: HttpSender
    agents: Agents
    places: Places
    clock: Clock
    metrics: Metrics
    policy: Policy
