"""Write the documentation's generated parts, or check them: `python -m ops.docs.reference [--check]`.

A page has text written by hand and generated regions between two marker comments. Settings, errors, events, scopes, rate limits, commands
and connection products are read from the code, so that the pages cannot become stale. So is the API description's snapshot.
`entrypoints/settings.toml` says what every setting means; a setting without a meaning, or a meaning without a setting, is an error.
"""

import argparse
import importlib
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import click
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import core
from core.federation.connections.model.presets import PRESETS, Preset, PresetProtocol
from core.kernel.api_scopes import ApiScope
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import Invalid, Outage, Refusal
from core.kernel.event_catalog import EVENT_KINDS
from core.kernel.rate_limits import AUTH, Bucket
from core.kernel.roles import GRANTABLE
from entrypoints.cli import main as command_line
from entrypoints.http.app import build_routes
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.error_body import SENTENCES, code_of
from entrypoints.http.edge.errors import status_of
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK
from entrypoints.http.pages.curl import operations_of
from entrypoints.running_installation import read_meanings
from entrypoints.settings import Settings
from ops.docs.description import SNAPSHOT, shown, snapshot
from ops.docs.events import described_events, sentences

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "docs"

MEANINGS: Final[Mapping[str, str]] = {
    "BAD_REQUEST": "The request is malformed, a field is missing or invalid, or a rule refuses it now.",
    "INVITATION_EXPIRED": "The invitation has expired.",
    "TEAM_LIMIT_EXCEEDED": "The organization has as many members as its limit allows.",
    "SERVICE_LIMIT_EXCEEDED": "The organization has as many services as its limit allows.",
    "DEVICE_CODE_PENDING": "The user has not approved the device yet. Poll again after the interval.",
    "DEVICE_CODE_EXPIRED": "The device code has expired. Start again.",
    "UNAUTHORIZED": "A credential is missing, unknown or revoked.",
    "TOKEN_EXPIRED": "The access token has expired. Refresh it.",
    "JWT_ERROR": "The token is not valid: its form, signature or a claim is wrong.",
    "ROLE_IN_USE": "The role has holders. The response has their number, and the first of them. Confirm the change with `confirm=true`.",
    "FORBIDDEN": "The caller is authenticated, but not allowed to do this.",
    "ENROLMENT_REQUIRED": "A sign-in policy requires a factor that the account does not have. Set it up at `enrolment_url`.",
    "ORGANIZATION_NOT_ACTIVE": "The organization is pending, suspended or rejected.",
    "NOT_FOUND": "The object does not exist, or belongs to another tenant.",
    "METHOD_NOT_ALLOWED": "The path exists with other methods. `Allow` names them.",
    "REQUEST_TIMEOUT": "The request took too long to arrive.",
    "CONFLICT": "The request conflicts with an existing object, such as an email address that is already in use.",
    "PRECONDITION_FAILED": "The resource is no longer the version in `If-Match`. Load it again.",
    "PAYLOAD_TOO_LARGE": "The body is larger than the limit.",
    "REQUEST_ENTITY_TOO_LARGE": "The body is larger than the limit.",
    "UNSUPPORTED_MEDIA_TYPE": "The content type is missing or not accepted.",
    "RATE_LIMIT_EXCEEDED": "Too many requests. `Retry-After` has the seconds to wait.",
    "REQUEST_HEADER_FIELDS_TOO_LARGE": f"The headers are larger than {MAX_HEADER_BLOCK // 1024} KiB.",
    "INTERNAL_SERVER_ERROR": "An unexpected failure. The log has the request id.",
    "DATABASE_ERROR": "The database is down or did not answer. `Retry-After` is set.",
    "AUDIT_ERROR": "The audit entry or the cancellation could not be recorded. The message says whether the action was done.",
    "OAUTH_ERROR": "An identity provider failed.",
    "BILLING_ERROR": "The payment provider failed.",
    "NOT_IMPLEMENTED": "The operation is not supported.",
    "SERVICE_UNAVAILABLE": "The process is shutting down.",
    "HTTP_VERSION_NOT_SUPPORTED": "This version of HTTP is not supported.",
}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


# Settings


def settings() -> str:
    """Return the settings table, grouped as in settings.toml."""
    groups = read_meanings()
    described = [name for group in groups.values() for name in group]
    if problems := sorted(set(described) ^ set(Settings.model_fields)):
        raise SystemExit(f"entrypoints/settings.toml and entrypoints/settings.py differ in: {', '.join(problems)}")
    parts = []
    for title, group in groups.items():
        rows = [(f"`SSO_{name.upper()}`", _default(name), _kind(Settings.model_fields[name]), meaning) for name, meaning in group.items()]
        parts.append(f"## {title}\n\n{table(('variable', 'default', 'values', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _default(name: str) -> str:
    value = Settings.model_fields[name].default
    match value:
        case None | "" | ():
            return "unset"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{','.join(str(each) for each in value)}`"
        case _ if value is PydanticUndefined:
            return "required"
        case _:
            return f"`{value}`"


def _kind(setting: FieldInfo) -> str:
    """Return a setting's type in words, with its bounds."""
    types = {setting.annotation, *get_args(setting.annotation)}
    choices = [choice for each in types for choice in get_args(each) if isinstance(choice, str)]  # in a Literal
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if bool in types:
        return "`true`, `false`"
    if types & {int, float}:
        return _range(setting)
    if SecretStr in types:
        return "secret text"
    return "path" if Path in types else "text"


def _range(setting: FieldInfo) -> str:
    bounds = {name: getattr(each, name) for each in setting.metadata for name in ("ge", "gt", "le", "lt") if hasattr(each, name)}
    low = f"more than {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}"
    return f"{low} to {bounds['le']:,}" if "le" in bounds else f"{low}, less than {bounds['lt']:,.0f}"


# Errors


def _subclasses(kind: type[Exception]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _load_core() -> None:
    for module in pkgutil.walk_packages(core.__path__, "core."):
        importlib.import_module(module.name)


def error_codes() -> str:
    """Return the error code table with status and meaning."""
    _load_core()
    kinds: list[type[Refusal] | type[Outage]] = [*_subclasses(Refusal), *_subclasses(Outage)]
    # Without `__init__`, because some refusals take arguments.
    found = {(kind.code, status_of(kind.__new__(kind))) for kind in kinds}
    found |= {(code_of(status), status) for status in SENTENCES} | {("INTERNAL_SERVER_ERROR", 500)}
    if missing := sorted({code for code, _ in found} - MEANINGS.keys()):
        raise SystemExit(f"MEANINGS in ops/docs/reference.py has no entry for: {', '.join(missing)}")
    return table(
        ("error_code", "status", "meaning"),
        [(f"`{code}`", str(status), MEANINGS[code]) for code, status in sorted(found, key=lambda each: each[::-1])],
    )


BAD_REQUEST: Final = "BAD_REQUEST"


def error_messages(*, of_bad_requests: bool) -> str:
    """Return a message table per error code: for BAD_REQUEST, which has by far the most, or for all other codes."""
    _load_core()
    by_code: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for each in sorted({*_subclasses(Refusal), *_subclasses(Outage)}, key=lambda kind: kind.__name__):
        if not each.__module__.startswith("core.") or each is Invalid:
            continue
        status = next(status_of(base.__new__(base)) for base in each.__mro__ if issubclass(base, (Refusal, Outage)))
        extra = [f"SCIM `{each.scim_type}`"] if getattr(each, "scim_type", None) and "scim_type" in vars(each) else []
        extra += [f"OAuth `{each.oauth_error}`"] if "oauth_error" in vars(each) else []
        by_code[status, each.code][sentences(each.__doc__)] = ", ".join(extra)
    parts = []
    for (status, code), messages in sorted(by_code.items()):
        if (code == BAD_REQUEST) is not of_bad_requests:
            continue
        rows = [[f"{message} ({extra})" if extra else message] for message, extra in sorted(messages.items())]
        parts.append(f"### {code} ({status})\n\n{table(['message'], rows)}")
    return "\n\n".join(parts)


# Events


def events() -> str:
    """Return an event table per category, with the fields in their data."""
    described = described_events()
    if missing := sorted(EVENT_KINDS.keys() - described.keys()):
        raise SystemExit(f"no function in core/*/events.py makes the events: {', '.join(missing)}")
    parts = []
    for category in dict.fromkeys(kind.category for kind in EVENT_KINDS.values()):
        rows = []
        for kind in EVENT_KINDS.values():
            if kind.category != category:
                continue
            texts, fields = described[kind.name]
            where = "platform's log" if kind.platform_only else "webhook, audit log" if kind.audited else "webhook"
            where += ", if chosen" if kind.by_choice else ""
            rows.append((f"`{kind.name}`", kind.target.value, where, "<br>or: ".join(texts), ", ".join(fields)))
        parts.append(f"## {category}\n\n{table(('event', 'target', 'where', 'when', 'fields of data'), rows)}")
    return "\n\n".join(parts)


# Command line


def commands() -> str:
    """Return a section per command with its options and an example."""
    parts: list[str] = []

    def add(command: click.Command, path: str) -> None:
        if command.hidden:
            return
        if not isinstance(command, click.Group) or command.invoke_without_command:
            describe(command, path)
        if isinstance(command, click.Group):
            for name in sorted(command.commands):
                add(command.commands[name], f"{path} {name}")

    def describe(command: click.Command, path: str) -> None:
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        text = "\n\n".join(" ".join(each.split()) for each in (command.help or "").split("\n\n"))
        options = [record for each in command.params if (record := each.get_help_record(context)) and record[1]]
        rows = [(f"`{name}`", help_text) for name, help_text in options]
        example = re.sub(r"^Example: ", "", command.epilog or "")
        parts.append(
            f"## {path}\n\n{text}\n\n```sh\n{usage}\n```\n"
            + (f"\n{table(('option', 'meaning'), rows)}\n" if rows else "")
            + (f"\nExample: `{example}`\n" if example else "")
        )

    add(command_line, "gatehouse")
    return "\n".join(parts).rstrip()


# Scopes


def scopes() -> str:
    """Return our own API's scopes."""
    return table(["scope", "allows"], [[f"`{scope}`", scope.description.rstrip(".")] for scope in ApiScope])


def capabilities_by_name() -> str:
    """Return the capabilities that owners grant to service accounts by name."""
    return table(["capability", "allows"], [[f"`{capability}`", allows.rstrip(".")] for capability, allows in GRANTABLE.items()])


# Rate limits


def rate_limits() -> str:
    """Return the limits per client address, with their routes. Routes that choose their limit themselves are left out."""
    of_bucket: defaultdict[Bucket, list[str]] = defaultdict(list)
    for operation, view in sorted(operations_of(build_routes()), key=lambda each: each[0].split()[::-1]):
        access = access_of(view)
        for bucket in access.limits if not operation.startswith(("HEAD", "OPTIONS")) else ():
            of_bucket[bucket].append(f"`{shown(operation)}`")
    rows = [[", ".join(routes), _rate(bucket), str(bucket.burst)] for bucket, routes in of_bucket.items()]
    shared = ["all routes below `/auth/` and `/api/auth/` together, except those of the next table", _rate(AUTH), str(AUTH.burst)]
    return table(["routes", "rate", "burst"], [shared, *sorted(rows)])


def _rate(bucket: Bucket) -> str:
    if bucket.period > 60:
        return f"1 per {bucket.period:g} seconds"
    return "1 per second" if bucket.period == 1 else f"{round(60 / bucket.period)} per minute"


# Connection products


def product(preset: Preset) -> str:
    """Return a section per protocol for a product: its steps, and the values at Gatehouse."""
    names = {ConnectionProtocol.OIDC: "OpenID Connect", ConnectionProtocol.SAML: "SAML"}
    return "\n\n".join(_steps(names[protocol], protocol, values) for protocol, values in preset.protocols.items())


def _steps(name: str, protocol: ConnectionProtocol, values: PresetProtocol) -> str:
    is_oidc = protocol is ConnectionProtocol.OIDC
    rows = [["Issuer" if is_oidc else "Entity ID", f"such as `{values.identifier}`"]]
    if is_oidc:
        rows.append(["Scopes", " ".join(f"`{scope}`" for scope in values.scopes)])
    else:
        rows.append(["Sign-in URL", f"such as `{values.sso_url}`"])
        rows.append(
            [
                "Users are known by",
                f"the attribute `{values.subject}`" if values.subject else f"the NameID, {values.name_id_format.name.lower()}",
            ]
        )
    rows += [[field.replace("_", " "), f"`{claim}`"] for field, claim in values.mapping.document.items() if claim]
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(values.steps, 1))
    return f"## With {name}\n\n{numbered}\n\n{table(('at Gatehouse', 'value'), rows)}"


# Pages

REGIONS: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "reference/settings.md": {"settings": settings},
    "reference/errors.md": {"error codes": error_codes, "error messages": partial(error_messages, of_bad_requests=False)},
    "reference/bad-requests.md": {"error messages": partial(error_messages, of_bad_requests=True)},
    "reference/events.md": {"events": events},
    "reference/command-line.md": {"commands": commands},
    "reference/limits.md": {"rate limits": rate_limits},
    "reference/scopes.md": {"scopes": scopes, "capabilities": capabilities_by_name},
    **{f"guides/identity-providers/{name}.md": {"steps": partial(product, preset)} for name, preset in PRESETS.items()},
}


def rendered(page: str, text: str) -> str:
    """Return the page with new generated regions. Raises SystemExit if a region has no markers."""
    for name, generate in REGIONS[page].items():
        begin, end = f"<!-- begin generated: {name} -->", f"<!-- end generated: {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"docs/{page} has no region {name!r}")
        text = f"{before}{begin}\n\n{generate()}\n\n{end}{after}"
    return text


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every file with a generated part, with its new text."""
    yield SNAPSHOT, snapshot()
    for name in REGIONS:
        yield PAGES / name, rendered(name, (PAGES / name).read_text("utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files. With `--check`, write nothing and return 1 if a file is stale."""
    parser = argparse.ArgumentParser(prog="python -m ops.docs.reference", description="Write the generated parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file is stale")
    options = parser.parse_args(arguments)
    stale = 0
    for file, new in generated():
        name = file.relative_to(ROOT)
        if file.read_text("utf-8") == new:
            continue
        if options.check:
            stale += 1
            print(f"{name} is stale: run python -m ops.docs.reference")
        else:
            file.write_text(new, "utf-8")
            print(f"wrote {name}")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
