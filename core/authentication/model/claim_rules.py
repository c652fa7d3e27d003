"""The claims about a user in ID tokens, access tokens, userinfo and introspection, by the claims document of the application.

Sources: OpenID Connect Core sections 5.3 to 5.6, RFC 9068 section 2.2.3, RFC 7662 section 2.2.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.authentication.model import claim_document, openid
from core.authentication.model.claim_document import OMITTED

# Of the list claims and the application's own claims together, in an ID token or access token. Longer tokens than 8 KiB are
# refused (security J-7), and have no room in a cookie or a header.
MAX_BYTES: Final = 4096
MAX_GROUPS: Final = 200  # in an ID token or access token
_SOURCE: Final = "userinfo"  # the name of the source in `_claim_sources`
_NO_DOCUMENT: Final = claim_document.ClaimDocument()


@dataclass(frozen=True, slots=True)
class ClaimSelection:
    """The claims that an answer has.

    `names` are standard names, and `scopes` have mapped claims that it has, too. `agreed` are all scopes that the user agreed
    to: a value of another scope is left out.
    """

    names: frozenset[str]
    scopes: frozenset[openid.Scope]
    agreed: frozenset[openid.Scope]


def id_token_claims(facts: openid.UserFacts, grant: openid.OpenIdGrant, userinfo: str) -> dict[str, Any]:
    """Return the claims about the user in an ID token. `userinfo` is the URL where the client finds claims that are too large."""
    of_scopes = facts.scopes_in_id_token
    scopes = frozenset(grant.scope) if of_scopes else frozenset[openid.Scope]()
    selection = ClaimSelection(grant.id_token_claims(of_scopes=of_scopes), scopes, grant.consent_scopes)
    document = _document_of(facts)
    claims = _build(facts, document, selection)
    if facts.further is openid.NO_FURTHER_FACTS:
        return claims
    omitted = list(_too_large(claims, document).values())
    if omitted:
        claims = {name: value for name, value in claims.items() if name not in omitted}
        claims |= {"_claim_names": dict.fromkeys(omitted, _SOURCE), "_claim_sources": {_SOURCE: {"endpoint": userinfo}}}
    return claims


def with_source_token(claims: Mapping[str, Any], sign: Callable[[], str]) -> dict[str, Any]:
    """Return the claims of an ID token. If some were too large for it, the source has a token that reads them there."""
    sources = claims.get("_claim_sources")
    return {**claims, "_claim_sources": {_SOURCE: {**sources[_SOURCE], "access_token": sign()}}} if sources else {**claims}


def large_claims(facts: openid.UserFacts, grant: openid.OpenIdGrant) -> dict[str, Any]:
    """Return the claims that can be too large for an ID token, without a limit of their size."""
    document = _document_of(facts)
    names = {document.final_name(name) for name in (*claim_document.LIST_CLAIMS, *document.values)}
    return {name: value for name, value in _userinfo_claims(facts, document, grant).items() if name in names}


def userinfo_claims(facts: openid.UserFacts, grant: openid.OpenIdGrant) -> dict[str, Any]:
    """Return the claims about the user at the userinfo endpoint. Nothing is too large there."""
    return _userinfo_claims(facts, _document_of(facts), grant)


def _userinfo_claims(facts: openid.UserFacts, document: claim_document.ClaimDocument, grant: openid.OpenIdGrant) -> dict[str, Any]:
    return _build(facts, document, ClaimSelection(grant.userinfo_claims, frozenset(grant.scope), grant.consent_scopes))


def access_token_claims(facts: openid.UserFacts | None, grant: openid.OpenIdGrant) -> dict[str, Any]:
    """Return the user claims in an access token that the application has chosen and the granted scopes allow."""
    if facts is None or facts.further.document is None:
        return {}
    document = _document_of(facts)
    claims = _chosen_claims(facts, document, grant)
    for name, final_name in _too_large(claims, document).items():
        del claims[final_name]
        claims |= _mark_of(name)
    return claims


def introspection_claims(facts: openid.UserFacts | None, grant: openid.OpenIdGrant) -> dict[str, Any]:
    """Return the claims from `access_token_claims`, without a size limit."""
    return {} if facts is None or facts.further.document is None else _chosen_claims(facts, _document_of(facts), grant)


def _chosen_claims(facts: openid.UserFacts, document: claim_document.ClaimDocument, grant: openid.OpenIdGrant) -> dict[str, Any]:
    if openid.Scope.OPENID not in grant.scope:
        return {}
    selection = ClaimSelection(openid.claims_of(grant.scope), frozenset(grant.scope), grant.consent_scopes)
    chosen = {document.final_name(name) for name in document.access_token}
    return {name: value for name, value in _build(facts, document, selection).items() if name in chosen}


def value_of(source: str, facts: openid.UserFacts) -> Any:
    """Return the value of a source, or None. Addresses that are not verified count as none."""
    if source.startswith(claim_document.ATTRIBUTE):
        return facts.further.attributes.get(source.removeprefix(claim_document.ATTRIBUTE))
    if source.startswith(claim_document.DIRECTORY):
        return directory_value(facts.further.directory, source.removeprefix(claim_document.DIRECTORY))
    match source:
        case "id":
            return None if facts.user_id is None else str(facts.user_id)
        case "email":
            return str(facts.email) if facts.email_verified else None
        case "email_local_part":
            return facts.email.rpartition("@")[0] if facts.email_verified else None
    return facts.claims(frozenset({source})).get(source)


def directory_value(directory: Mapping[str, Any], name: str) -> Any:
    """Return a value that a directory sent about a user, as a text, or None if it sent no value."""
    match name:
        case "manager" | "managerName":
            manager = directory.get("manager") or {}
            return manager.get("value" if name == "manager" else "displayName")
        case "phoneNumber":
            numbers = directory.get("phoneNumbers") or [{}]
            return next((number for number in numbers if number.get("primary")), numbers[0]).get("value")
    return directory.get(name)


def group_texts(groups: Collection[openid.GroupFact], which: claim_document.WhichGroups, value: claim_document.GroupValue) -> list[str]:
    """Return the distinct texts that stand for these groups."""
    chosen = (group for group in groups if which is claim_document.WhichGroups.ALL or group.is_assigned)
    match value:
        case claim_document.GroupValue.ID:
            texts = [str(group.id) for group in chosen]
        case claim_document.GroupValue.EXTERNAL_ID:
            texts = [group.external_id for group in chosen if group.external_id is not None]
        case _:
            texts = [group.name for group in chosen]
    return list(dict.fromkeys(texts))


def list_of(name: str, facts: openid.UserFacts) -> list[str]:
    """Return a list claim's values, as the application's claims document asks for them."""
    values: list[str] = _of_list(name, facts.claims(frozenset({name}))[name], _document_of(facts), facts)
    return values


def _build(facts: openid.UserFacts, document: claim_document.ClaimDocument, selection: ClaimSelection) -> dict[str, Any]:
    if document is _NO_DOCUMENT:
        return facts.claims(selection.names)
    claims = dict[str, Any]()
    for name, value in facts.claims(selection.names).items():
        if name not in document.values:
            claims[document.final_name(name)] = _of_list(name, value, document, facts)
    for name, mapped in document.values.items():
        is_chosen = name in selection.names if name in claim_document.REPLACEABLE else mapped.scope in selection.scopes
        if is_chosen and (value := _first_value(mapped, facts, selection.agreed)) is not None:
            claims[document.final_name(name)] = value
    return {**document.fixed, **claims}


def _of_list(name: str, value: Any, document: claim_document.ClaimDocument, facts: openid.UserFacts) -> Any:
    if name not in claim_document.LIST_CLAIMS:
        return value
    if name == "groups":
        value = group_texts(facts.further.groups, document.which_groups, document.group_value)
    prefix = document.prefix.get(name, "")
    return [prefix + text for text in value]


def _first_value(mapped: claim_document.MappedClaim, facts: openid.UserFacts, agreed: frozenset[openid.Scope]) -> Any:
    for source in mapped.sources:
        scope = claim_document.scope_of(source)
        if (scope is None or scope in agreed) and (value := value_of(source, facts)) not in (None, "", []):
            return value
    return None


def _too_large(claims: Mapping[str, Any], document: claim_document.ClaimDocument) -> dict[str, str]:
    """Return the claims that a token leaves out, by standard name: the largest first, until the rest fits."""
    names = {name: document.final_name(name) for name in (*claim_document.LIST_CLAIMS, *document.values)}
    sizes = {name: _size({final_name: claims[final_name]}) for name, final_name in names.items() if final_name in claims}
    omitted = list[str]()
    if "groups" in sizes and len(claims[names["groups"]]) > MAX_GROUPS:
        omitted.append("groups")
        del sizes["groups"]
    left = MAX_BYTES - _size({name: value for name, value in claims.items() if name in document.fixed})
    while sizes and sum(sizes.values()) > left - sum(_size(_mark_of(name)) for name in omitted):
        largest = max(sizes, key=lambda name: sizes[name])
        omitted.append(largest)
        del sizes[largest]
    return {name: names[name] for name in omitted}


def _mark_of(name: str) -> dict[str, bool]:
    """Return the mark of a claim that an access token leaves out. That of an ID token is no longer."""
    return {f"{name}{OMITTED}": True}


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _document_of(facts: openid.UserFacts) -> claim_document.ClaimDocument:
    document = facts.further.document
    return _NO_DOCUMENT if document is None else claim_document.ClaimDocument.read(document)
