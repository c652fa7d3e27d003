"""Third-party SAML service providers behind a common interface: pysaml2, python3-saml and node-saml."""

import gc
import json
import shutil
import subprocess
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from lxml import etree

from core.federation.saml.model.configuration import NameIdFormat
from tests.support.saml import NS, SamlApplication, encode_base64

CLIENTS: Final = Path(__file__).parent / "node"
REDIRECT, POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect", "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
RSA_SHA256: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SHA256: Final = "http://www.w3.org/2001/04/xmlenc#sha256"


class Refused(Exception):
    """The service provider refuses a message."""


@dataclass(frozen=True, slots=True)
class AcceptedUser:
    """The user that the service provider accepts as signed in."""

    name_id: str
    session_index: str
    attributes: dict[str, list[str]]


class ServiceProvider(ABC):
    """A service provider configured with our metadata. It requires signed assertions and signed responses."""

    def __init__(self, application: SamlApplication, metadata: str) -> None:
        self.application = application
        self.metadata = metadata

    @abstractmethod
    def ask(self, relay_state: str) -> str:
        """Return the URL for its AuthnRequest with HTTP-Redirect."""

    @abstractmethod
    def ask_by_form(self, relay_state: str) -> dict[str, str]:
        """Return the form fields in its AuthnRequest with HTTP-POST."""

    @abstractmethod
    def take(self, document: bytes) -> AcceptedUser:
        """Return this response's user. Raises: Refused."""

    @abstractmethod
    def sign_out(self, arrived: AcceptedUser) -> str:
        """Return the URL for its LogoutRequest."""

    @abstractmethod
    def signed_out(self, address: str) -> None:
        """Accept the LogoutResponse in this URL. Raises: Refused."""

    def take_all(self, documents: list[bytes]) -> list[AcceptedUser | Refused]:
        """Return the user in every response, or the refusal."""
        outcomes: list[AcceptedUser | Refused] = []
        for document in documents:
            try:
                outcomes.append(self.take(document))
            except Refused as refused:
                outcomes.append(refused)
        return outcomes


class Pysaml2(ServiceProvider):
    """https://github.com/IdentityPython/pysaml2, which verifies signatures with Debian's xmlsec1."""

    def __init__(self, application: SamlApplication, metadata: str) -> None:
        super().__init__(application, metadata)
        from saml2.client import Saml2Client
        from saml2.config import SPConfig

        endpoints = {
            "assertion_consumer_service": [(application.acs_url, POST)],
            "single_logout_service": [(application.configuration.slo_url, REDIRECT)],
        }
        service = {
            "endpoints": endpoints,
            "want_assertions_signed": True,
            "want_response_signed": True,
            "authn_requests_signed": False,
            "logout_requests_signed": False,
        }
        config = {
            "entityid": application.entity_id,
            "xmlsec_binary": shutil.which("xmlsec1"),
            "service": {"sp": service},
            "metadata": {"inline": [metadata]},
            "allow_unknown_attributes": True,
        }
        self._client: Any = Saml2Client(config=SPConfig().load(config))
        self._request_ids: dict[str, str] = {}

    def ask(self, relay_state: str) -> str:
        id_, info = self._client.prepare_for_authenticate(self.application.issuer, relay_state=relay_state, binding=REDIRECT)
        self._request_ids[id_] = "/"
        return str(dict(info["headers"])["Location"])

    def ask_by_form(self, relay_state: str) -> dict[str, str]:
        id_, request = self._client.create_authn_request(f"{self.application.issuer}/sso")
        self._request_ids[id_] = "/"
        return {"SAMLRequest": encode_base64(str(request).encode()), "RelayState": relay_state}

    def take(self, document: bytes) -> AcceptedUser:
        [outcome] = self.take_all([document])
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def take_all(self, documents: list[bytes]) -> list[AcceptedUser | Refused]:
        # The library leaves temporary files open. The garbage collector would warn about them in a
        # later test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            outcomes = [self._take(document) for document in documents]
            gc.collect()
        return outcomes

    def _take(self, document: bytes) -> AcceptedUser | Refused:
        """Return the user, or the refusal."""
        try:
            response = self._client.parse_authn_request_response(encode_base64(document), POST, outstanding=dict(self._request_ids))
        except Exception as error:
            return Refused(repr(error))
        if response is None:
            return Refused("it says nothing")
        [statement] = response.assertion.authn_statement
        return AcceptedUser(response.get_subject().text, statement.session_index, response.ava)

    def sign_out(self, arrived: AcceptedUser) -> str:
        from saml2.saml import NameID

        name_id = NameID(format=NameIdFormat.EMAIL.value, text=arrived.name_id)
        id_, request = self._client.create_logout_request(
            f"{self.application.issuer}/slo", self.application.issuer, name_id=name_id, session_indexes=[arrived.session_index]
        )
        self._request_ids[id_] = "/"
        info = self._client.apply_binding(REDIRECT, str(request), f"{self.application.issuer}/slo", "bye")
        return str(dict(info["headers"])["Location"])

    def signed_out(self, address: str) -> None:
        from saml2.sigver import RSACrypto, verify_redirect_signature

        sent = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        [certificate] = self._client.metadata.certs(self.application.issuer, "idpsso", "signing")
        if not verify_redirect_signature(sent, RSACrypto(None), certificate[1]):
            raise Refused
        response = self._client.parse_logout_request_response(sent["SAMLResponse"], REDIRECT)
        if not response.status_ok():
            raise Refused


class Python3Saml(ServiceProvider):
    """https://github.com/SAML-Toolkits/python3-saml."""

    def __init__(self, application: SamlApplication, metadata: str) -> None:
        super().__init__(application, metadata)
        from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

        own = {
            "strict": True,
            "sp": {
                "entityId": application.entity_id,
                "assertionConsumerService": {"url": application.acs_url, "binding": POST},
                "singleLogoutService": {"url": application.configuration.slo_url, "binding": REDIRECT},
                "NameIDFormat": NameIdFormat.EMAIL.value,
            },
            "security": {
                "wantAssertionsSigned": True,
                "wantMessagesSigned": True,
                "wantNameId": True,
                "rejectDeprecatedAlgorithm": True,
                "rejectUnsolicitedResponsesWithInResponseTo": True,
            },
        }
        parsed = OneLogin_Saml2_IdPMetadataParser.parse(metadata)
        self._settings = OneLogin_Saml2_IdPMetadataParser.merge_settings(parsed, own)
        self._request_id: str | None = None
        self._bye: str | None = None

    def _auth(self, path: str, *, get: dict[str, str] | None = None, post: dict[str, str] | None = None, query: str = "") -> Any:
        from onelogin.saml2.auth import OneLogin_Saml2_Auth

        request = {
            "https": "on" if self.application.acs_url.startswith("https:") else "off",
            "http_host": urlsplit(self.application.acs_url).netloc,
            "script_name": path,
            "get_data": get or {},
            "post_data": post or {},
            "query_string": query,
        }
        return OneLogin_Saml2_Auth(request, self._settings)

    def ask(self, relay_state: str, name_id: str | None = None) -> str:
        auth = self._auth("/")
        address = auth.login(return_to=relay_state, name_id_value_req=name_id)
        self._request_id = auth.get_last_request_id()
        return str(address)

    def ask_by_form(self, relay_state: str) -> dict[str, str]:
        auth = self._auth("/")
        auth.login(return_to=relay_state)
        self._request_id = auth.get_last_request_id()
        return {"SAMLRequest": encode_base64(auth.get_last_request_xml().encode()), "RelayState": relay_state}

    def take(self, document: bytes) -> AcceptedUser:
        auth = self._auth("/acs", post={"SAMLResponse": encode_base64(document)})
        try:
            auth.process_response(request_id=self._request_id)
        except Exception as error:
            raise Refused(repr(error)) from error
        if auth.get_errors() or not auth.is_authenticated():
            raise Refused(auth.get_last_error_reason())
        return AcceptedUser(auth.get_nameid(), auth.get_session_index(), auth.get_attributes())

    def sign_out(self, arrived: AcceptedUser) -> str:
        auth = self._auth("/")
        address = auth.logout(
            return_to="bye", name_id=arrived.name_id, session_index=arrived.session_index, name_id_format=NameIdFormat.EMAIL.value
        )
        self._bye = auth.get_last_request_id()
        return str(address)

    def say_signed_out(self, address: str) -> str:
        """Return the URL for its LogoutResponse to the LogoutRequest in this URL."""
        query = urlsplit(address).query
        auth = self._auth("/slo", get=dict(parse_qsl(query)), query=query)
        onward = auth.process_slo(keep_local_session=True)
        assert not auth.get_errors(), auth.get_last_error_reason()
        return str(onward)

    def signed_out(self, address: str) -> None:
        query = urlsplit(address).query
        auth = self._auth("/slo", get=dict(parse_qsl(query)), query=query)
        auth.process_slo(keep_local_session=True, request_id=self._bye)
        if auth.get_errors():
            raise Refused(auth.get_last_error_reason())


class NodeSaml(ServiceProvider):
    """https://github.com/node-saml/node-saml. It reads no metadata, so it gets the values. It signs its HTTP-POST requests."""

    def __init__(self, application: SamlApplication, metadata: str) -> None:
        super().__init__(application, metadata)
        certificates = etree.fromstring(metadata.encode()).iter(f"{{{NS['ds']}}}X509Certificate")
        key = rsa.generate_private_key(65537, 2048)
        self._options = {
            "entryPoint": f"{application.issuer}/sso",
            "logoutUrl": f"{application.issuer}/slo",
            "issuer": application.entity_id,
            "callbackUrl": application.acs_url,
            "logoutCallbackUrl": application.configuration.slo_url,
            "audience": application.entity_id,
            "idpIssuer": application.issuer,
            "idpCert": [certificate.text for certificate in certificates],
            "privateKey": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "signatureAlgorithm": "sha256",
            "digestAlgorithm": "sha256",
            "wantAssertionsSigned": True,
            "wantAuthnResponseSigned": True,
            "acceptedClockSkewMs": 0,
        }
        self._request_ids: dict[str, str] = {}

    def _call(self, *calls: list[Any]) -> list[Any]:
        job = json.dumps({"options": {**self._options, "requests": self._request_ids}, "calls": calls})
        process = subprocess.run(["node", "node_saml.mjs"], cwd=CLIENTS, input=job, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        result = json.loads(process.stdout)
        answers: list[Any] = result["answers"]
        return answers

    def ask(self, relay_state: str) -> str:
        [answer] = self._call(["getAuthorizeUrlAsync", relay_state, None, {}])
        return str(answer["ok"])

    def ask_by_form(self, relay_state: str) -> dict[str, str]:
        self._options["authnRequestBinding"] = "HTTP-POST"
        [answer] = self._call(["getAuthorizeMessageAsync", relay_state, None, {}])
        return {name: value for name, value in answer["ok"].items() if name in ("SAMLRequest", "RelayState")}

    def take(self, document: bytes) -> AcceptedUser:
        [outcome] = self.take_all([document])
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def take_all(self, documents: list[bytes]) -> list[AcceptedUser | Refused]:
        answers = self._call(*[["validatePostResponseAsync", {"SAMLResponse": encode_base64(document)}] for document in documents])
        return [self._outcome(answer) for answer in answers]

    def _outcome(self, answer: Any) -> AcceptedUser | Refused:
        if "error" in answer:
            return Refused(answer["error"])
        profile = answer["ok"]["profile"]
        return AcceptedUser(profile["nameID"], profile["sessionIndex"], {name: [value] for name, value in profile["attributes"].items()})

    def sign_out(self, arrived: AcceptedUser) -> str:
        user = {"nameID": arrived.name_id, "nameIDFormat": NameIdFormat.EMAIL.value, "sessionIndex": arrived.session_index}
        [answer] = self._call(["getLogoutUrlAsync", user, "bye", {}])
        return str(answer["ok"])

    def signed_out(self, address: str) -> None:
        query = urlsplit(address).query
        [answer] = self._call(["validateRedirectAsync", dict(parse_qsl(query)), query])
        if "error" in answer or answer["ok"]["loggedOut"] is not True:
            raise Refused(answer.get("error"))
