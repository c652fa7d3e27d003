"""The API description (OpenAPI 3.1): quart-schema's output, completed.

quart-schema describes a route's models. This module adds unique operation ids, path parameters, responses without a
model, and a shared component for every model and usual error. A route's error responses and security entry follow from
its access decorator, so they cannot disagree with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from inspect import getdoc
from typing import Any, Final

from quart import Quart
from quart_schema import Info, OpenAPIProvider, QuartSchema, Tag
from werkzeug.routing.rules import Rule

from core.kernel import images
from core.kernel.display import PRODUCT
from core.kernel.page_paths import HOME_PATH
from core.kernel.policy import Policy
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge import error_body, openapi
from entrypoints.http.edge.access import declaration
from entrypoints.http.edge.openapi import security
from entrypoints.http.edge.openapi.components import ERROR_SCHEMAS, form_or_json_body, json_body, share_errors, share_models
from entrypoints.http.edge.queries import repeatable_parameters
from entrypoints.http.edge.rate_limits import RateLimits
from entrypoints.version import VERSION

IMAGE_BODY: Final = {"type": "string", "format": "binary", "minLength": 1, "maxLength": images.MAX_IMAGE_BYTES}
ETAG: Final = {"description": "The version of the resource, for `If-Match`.", "schema": {"type": "string"}}
IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The `ETag` of the version that the change is based on. Without it, the present version is replaced.",
    "schema": {"type": "string"},
}
_PAGE_CONTENT: Final = {openapi.PAGE: {"schema": {"type": "string"}}}

ABOUT = """A self-hosted, multi-tenant single sign-on and identity platform.

Sign in with `POST /api/auth/login`, then send `Authorization: Bearer <access_token>`. Errors have one format outside of SCIM: `error` is a
message for people, `error_code` is a stable code for programs.

Programs use service accounts or personal access tokens. Their tokens need the scope that an operation lists. The access token of a user's
own session has no scopes, and needs none."""


ERRORS = {
    400: "The request is not valid.",
    401: "Credentials are missing, expired or not valid.",
    403: "The caller is not allowed to do this.",
    404: "The resource does not exist, or the caller cannot see it.",
    409: "The request conflicts with something that already exists.",
    412: "The version in `If-Match` is not the current one. Load the resource again.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    431: "The headers are too large. The connection is closed.",
    429: "Too many requests. `Retry-After` is the number of seconds to wait.",
    500: "The server failed. A change that was requested may or may not have been made.",
    501: "This is not supported.",
}

# Browsers without a session are redirected.
SIGN_IN_REDIRECT = {303: {"description": "The browser is not signed in, and is redirected to the sign-in page."}}

PATH_PARAMETERS = {
    "recovery_id": "The id of the recovery.",
    "flow_id": "The id of a sign-in in progress.",
    "org_slug": "The slug of the organization.",
    "attribute_name": "The name of the attribute.",
    "service_slug": "The slug of the service.",
    "role_name": "The slug of the role: `owner`, `admin`, `member`, or one of the organization's.",
    "provider": "The identity provider: `codehost`, `websuite` or `officesuite`.",
    "org_id": "The id of the organization.",
    "passkey_id": "The id of the passkey.",
    "user_id": "The id of the user.",
    "device_id": "The id of the device.",
    "personal_token_id": "The id of the personal access token.",
    "session_id": "The id of the session.",
    "service_id": "The id of the service.",
    "group": "The group of settings.",
    "plan_id": "The id of the plan.",
    "role_slug": "The slug of the role of the service.",
    "permission_name": "The name of the permission.",
    "key_id": "The id of the API key.",
    "token_id": "The id of the SCIM token.",
    "registration_token_id": "The id of the registration token.",
    "connection_slug": "The slug of the connection.",
    "connection_id": "The id of the connection.",
    "mapping_id": "The id of the mapping of a group.",
    "setup_link_id": "The id of the set-up link.",
    "setup_part": "The part of the set-up link.",
    "fingerprint": "The SHA-256 fingerprint of the certificate in hexadecimal.",
    "domain": "The domain, such as `example.com`.",
    "entry_id": "The id of the entry.",
    "group_id": "The id of the group. In SCIM, the organization and its applications are groups with their own ids.",
    "invitation_id": "The id of the invitation.",
    "webhook_id": "The id of the webhook.",
    "delivery_id": "The id of the delivery.",
    "api_key_id": "The id of the API key.",
    "resource_id": "The id of the API resource.",
    "client_id": "The client id of the application.",
    "account_id": "The id of the service account.",
    "credential_id": "The id of the credential.",
    "resource_type": "The resource type: `User` or `Group`.",
    "schema_id": "The URN of the schema.",
    "subscription_id": "The id of the subscription.",
    "name": "The name of the file.",
    "image_key": "The part of the address that cannot be guessed.",
    "size": "The longer side in pixels: `64` or `256`.",
    "page": "The path of the page, such as `guides/saml`.",
}

FORM_FIELDS = {
    "group": "The group of settings that the form has: `sign-in`, `consent`, `security`, `keys` or `lifetimes`.",
    "overlap": "How long the old client secret still works: `1 hour`, `1 day`, `7 days`, or an empty text.",
    "form_token": "The form token of the page, which proves that the page is ours.",
    "asked": "Present if the form asked which sign-in methods to keep: `keep:` with the id of each. The others are removed.",
    "step": "`address` of a form that asks for the address alone, or `password` if the user wants to use a password.",
    "start": "The id of the first change to undo.",
    "answer": "`continue`, `select` or `refuse`.",
    "question": "What the page asks, as it says itself: the answer counts for nothing else.",
    "code": "The 6-digit code of the authenticator app, or a backup code. On the page of a set-up link, the code from the email.",
    "credential": "The result of the ceremony in the browser, as JSON. The script of the page fills it in.",
    "domain": "The domain, such as `example.com`.",
    "preset": "The product, such as `okta`, or an empty text for another one.",
    "protocol": "`oidc` or `saml`.",
    "issuer": "The issuer of the identity provider.",
    "client_id": "The client id.",
    "client_secret": "The client secret. Empty: the earlier one.",
    "entity_id": "The entity ID of the identity provider.",
    "metadata": "The SAML metadata of the identity provider.",
    "metadata_url": "The address of this metadata.",
    "sso_url": "The address that takes sign-in requests.",
    "certificate": "The certificate of the identity provider in PEM.",
    "enabled": "`yes` or `no`.",
    "email": "The email address.",
    "image": "The file: PNG, JPEG or WebP, at most 200 KB and 4,000,000 pixels.",
    "name": "The new name.",
    "new_password": "The new password.",
    "password": "The password.",
    "token": "The one-time token of the link in the email.",
    "SAMLRequest": "The SAML request, encoded in Base64.",
    "SAMLResponse": "The SAML response, encoded in Base64.",
    "user_code": "The code that the device shows.",
    "action": "`approve` or `deny`.",
}

# The description documents the default limits, even where an operator has changed them.
DOCUMENTED_LIMITS = RateLimits(1.0, 1.0)


def operation_id(rule: Rule) -> str:
    """Return the operation id: the blueprint's and the handler's name."""
    endpoint: str = rule.endpoint
    return endpoint.replace(".", "_")


class Provider(OpenAPIProvider):
    """The quart-schema generator, with the gaps filled."""

    def generate_rules(self) -> Iterable[Rule]:
        """Leave out the pages below `/app`: programs call the operations that the pages name."""
        return (rule for rule in super().generate_rules() if not f"{rule.rule}/".startswith(f"{HOME_PATH}/"))

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        tags = {tag for path in schema["paths"].values() for operation in path.values() for tag in operation["tags"]}
        schema["tags"] = [tag for tag in schema["tags"] if tag["name"] in tags]
        schema["components"]["securitySchemes"] = security.SECURITY_SCHEMES
        schema["components"]["schemas"] |= ERROR_SCHEMAS
        schema["components"]["schemas"] = dict(sorted(schema["components"]["schemas"].items()))
        schema["paths"] = dict(sorted(schema["paths"].items()))
        share_models(schema)
        share_errors(schema, ERRORS)
        return schema

    def build_paths(self, rule: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
        paths, components = super().build_paths(rule)
        for path, operations in paths.items():
            paths[path] = dict(sorted(operations.items()))  # a rule's methods have no order
            for method, operation in paths[path].items():
                self._complete_operation(rule, method, operation)
                if len(operations) > 1:  # a single function for several methods
                    operation["operationId"] += f"_{method}"
        return paths, components

    def _complete_operation(self, rule: Rule, method: str, operation: dict[str, Any]) -> None:
        view = self._app.view_functions[rule.endpoint]
        docs, access = openapi.docs_of(view), declaration.access_of(view)
        operation["tags"] = [rule.endpoint.partition(".")[0]]
        operation["operationId"] = operation_id(rule)
        operation["parameters"] = [*_with_descriptions(operation["parameters"]), *_parameters(docs, repeatable_parameters(view))]
        if docs.takes_version:
            operation["parameters"].append(IF_MATCH)
        has_query = any(parameter["in"] == "query" for parameter in operation["parameters"])
        _complete_body(operation, docs)
        if docs.security or access.credentials is not declaration.Credentials.NONE:
            operation["security"] = list(docs.security) or security.alternatives_of(access, method.upper())
        if access.is_of_api and (text := SIGN_IN_AGES.get(access.row(method.upper()).age)):
            operation["description"] = "\n\n".join(filter(None, (operation.get("description"), text)))
        statuses = _error_statuses(rule, method, docs, access, has_body="requestBody" in operation)
        errors = _errors(rule, statuses | {400} if has_query else statuses, docs)
        operation["responses"] = _responses(operation["responses"], errors, docs, access)


def _sign_in_age(age: SignInAge) -> str:
    minutes = int(age.limit(Policy()).total_seconds() // 60)
    return (
        f"A user must have signed in at most {minutes} minutes ago, with all factors of the account. Otherwise the answer is 401 with "
        "`insufficient_user_authentication`: call `POST /api/auth/reauthenticate`, and repeat the request."
    )


# What an operation's description says about the sign-in that it needs, with the default ages.
SIGN_IN_AGES: Final[Mapping[SignInAge, str]] = {age: _sign_in_age(age) for age in SignInAge if age is not SignInAge.ANY}


def _with_descriptions(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Describe path parameters by name, and move the query parameters' descriptions out of their schemas."""
    for parameter in parameters:
        if parameter["in"] == "path":
            parameter["description"] = PATH_PARAMETERS[parameter["name"]]
        elif "description" in parameter["schema"]:
            parameter["description"] = parameter["schema"].pop("description")
    return parameters


def _parameters(docs: openapi.RouteDocs, listed: Collection[str]) -> list[dict[str, Any]]:
    text: dict[str, Any] = {"type": "string"}
    return [
        {
            "name": name,
            "in": "query",
            "required": name in docs.query,
            "description": description,
            "schema": {"type": "array", "items": text} if name in listed else text,
        }
        for name, description in {**docs.query, **docs.optional}.items()
    ]


def _complete_body(operation: dict[str, Any], docs: openapi.RouteDocs) -> None:
    """Add the request body for a route without a model, and declare whether the body is required."""
    if docs.form:
        operation["requestBody"] = _form(docs.form)
    if docs.request_schema is not None:
        operation["requestBody"] = json_body(
            docs.request_schema, *([error_body.SCIM_JSON] if docs.content_type == error_body.SCIM_JSON else [])
        )
    if docs.takes_image:
        operation["requestBody"] = {"content": {each.value: {"schema": IMAGE_BODY} for each in images.ImageType}}
    if docs.form_or_json is not None:
        operation["requestBody"] = form_or_json_body(docs.form_or_json)
    if "requestBody" in operation:
        content = next(iter(operation["requestBody"]["content"].values()))
        operation["requestBody"]["required"] = not {"required", "minProperties", "minLength"}.isdisjoint(content["schema"])


def _form(names: Sequence[str] | Mapping[str, str]) -> dict[str, Any]:
    optional = names if isinstance(names, Mapping) else {}
    fields = {name: {"type": "string", "description": optional.get(name) or FORM_FIELDS[name]} for name in names}
    required = {} if optional else {"required": list(names)}
    return {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object", **required, "properties": fields}}}}


def _error_statuses(rule: Rule, method: str, docs: openapi.RouteDocs, access: declaration.Access, *, has_body: bool) -> set[int]:
    statuses = {431, 500, *docs.errors, *([412] if docs.takes_version else [])}
    if has_body:
        statuses |= {400, 413, 415}
    elif method in ("post", "put", "patch"):
        statuses.add(413)  # the middleware limits every body, even if the route reads none
    if access.credentials is not declaration.Credentials.NONE and not docs.is_page:  # pages redirect to the sign-in page instead
        statuses |= {401, 403}
    if access.is_of_platform or access.name in ("member_page", "page_session"):
        statuses.add(403)
    if access.credentials is declaration.Credentials.SCIM_TOKEN or (
        access.limit is not None and DOCUMENTED_LIMITS.of(rule.rule, access.limits)
    ):
        statuses.add(429)
    if rule.arguments:
        statuses.add(404)
    return statuses


def _errors(rule: Rule, statuses: Iterable[int], docs: openapi.RouteDocs) -> dict[int, Any]:
    body = "ScimError" if error_body.speaks_scim(rule.rule) else "OAuthError" if docs.for_oauth else "Error"
    content_type = error_body.SCIM_JSON if error_body.speaks_scim(rule.rule) else "application/json"
    content: dict[str, Any] = {content_type: {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    if docs.is_page:
        content = {**_PAGE_CONTENT, **content}  # JSON for clients that do not accept HTML
    return {status: {"description": ERRORS[status], "content": content} for status in statuses}


def _responses(
    described: Mapping[Any, Any], errors: Mapping[int, Any], docs: openapi.RouteDocs, access: declaration.Access
) -> dict[str, Any]:
    """Return all responses, ordered by status. `described` are the responses with models, from quart-schema."""
    redirect = SIGN_IN_REDIRECT if access.credentials is declaration.Credentials.COOKIE else {}
    by_status = {**redirect, **errors, **described, **_responses_without_model(docs)}
    responses = {str(status): response for status, response in sorted(by_status.items())}
    for status, response in responses.items():
        _add_page(status, response, docs)
        if docs.has_version and status == "200":
            response["headers"] = {"ETag": ETAG}
        if response["description"] == getdoc(list):  # quart-schema takes a list's description from Python
            response["description"] = "The list."
    return responses


def _responses_without_model(docs: openapi.RouteDocs) -> dict[int, Any]:
    def content(status: int) -> dict[str, Any]:
        if docs.content_type is None or status in (204, 301, 302, 303):
            return {}
        schema = docs.response_schema or {"type": "object" if "json" in docs.content_type else "string"}
        contents = {content_type: {"schema": dict(schema)} for content_type in (docs.content_type, *docs.other_content_types)}
        if docs.program_response is not None:
            model = docs.program_response.__name__ if status < 400 else "Error"
            contents["application/json"] = {"schema": {"$ref": f"#/components/schemas/{model}"}}
        return {"content": contents}

    return {status: {"description": text, **content(status)} for status, text in docs.responses.items()}


def _add_page(status: str, response: dict[str, Any], docs: openapi.RouteDocs) -> None:
    """Add the page for a route that also answers with JSON. The default format comes first."""
    if docs.succeeds_with_page and status == "200":
        response["content"] = {**_PAGE_CONTENT, **response["content"]}
    if docs.for_both and "content" in response:
        response["content"] = {**response["content"], **_PAGE_CONTENT}


def describe_interface(app: Quart, tags: Mapping[str, str]) -> None:
    """Let quart-schema read the routes. Its own pages stay off, because they load assets from other hosts."""
    QuartSchema(
        app,
        openapi_path=None,
        redoc_ui_path=None,
        scalar_ui_path=None,
        swagger_ui_path=None,
        info=Info(title=PRODUCT, version=VERSION, description=ABOUT),
        servers=[{"url": "/"}],  # relative, so that the page calls the host it was loaded from
        tags=[Tag(name=name, description=description) for name, description in tags.items()],
        conversion_preference="pydantic",
        openapi_provider_class=Provider,
    )


def interface_description(app: Quart) -> dict[str, Any]:
    """Return the API description."""
    document: dict[str, Any] = app.extensions["QUART_SCHEMA"].openapi_provider.schema()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    duplicates = {name for name in ids if ids.count(name) > 1}
    if duplicates:
        raise ValueError(f"operation ids used twice: {sorted(duplicates)}")
    return document
