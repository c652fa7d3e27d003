"""Labels: every enumeration that pages and emails show has labels, and a page survives a value that it does not know."""

import pkgutil
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module

from jinja2 import nodes

import core
from adapters.email.message import SECRET_TEXTS, SUBJECTS
from adapters.postgres.engine.pool import Pool
from core.accounts.model.email_queue import EmailKind, NoticedSecret
from core.applications.model.analytics import PendingTask
from core.kernel.api_scopes import ApiScope
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.display import to_words
from core.kernel.policy import PROVIDER_NAMES
from core.kernel.proofs import Method
from core.kernel.roles import GRANTABLE, ROLES
from entrypoints.http.base.rendering.labels import LABELS, WAYS
from entrypoints.http.base.rendering.templates import _environment
from entrypoints.http.pages.accounts.email_links import CHANGES
from entrypoints.http.pages.applications.overview import TASKS
from tests.support.browser import FakeBrowser
from tests.support.builders import run_sql
from tests.tables import table

# Further tables: a text per enumeration member.
TABLES: dict[str, tuple[object, object]] = {
    "subjects of emails": (SUBJECTS, EmailKind),
    "secrets in emails": (SECRET_TEXTS, NoticedSecret),
    # The overview shows the admins with a password alone instead: a passkey protects an account, too.
    "tasks": (TASKS, {*PendingTask} - {PendingTask.ADMINS_WITHOUT_MFA}),
    "scopes": ({scope: scope.description for scope in ApiScope}, ApiScope),
    "identity providers": (PROVIDER_NAMES, PLATFORM_CONNECTIONS),
    **{kind.__name__: (labels, kind) for kind, labels in LABELS.items()},
}


def enumerations() -> Iterator[type[StrEnum]]:
    for module in pkgutil.walk_packages(core.__path__, "core."):
        if not module.name.endswith("__main__"):
            found = vars(import_module(module.name)).values()
            yield from (each for each in found if isinstance(each, type) and issubclass(each, StrEnum) and each.__module__ == module.name)


def test_each_table_has_a_text_for_each_member() -> None:
    assert {name: set(kind) ^ set(table) for name, (table, kind) in TABLES.items() if set(kind) != set(table)} == {}  # type: ignore[call-overload]
    assert set(CHANGES) <= set(EmailKind)
    assert all([*GRANTABLE.values(), *CHANGES.values()])


def test_the_labels_of_each_enumeration_are_readable_and_differ() -> None:
    found = list(enumerations())
    assert {Method, *LABELS} <= set(found)
    for kind in found:
        labels = [LABELS.get(kind, {}).get(value) or to_words(value) for value in kind]
        assert len(set(labels)) == len(labels), kind
        assert all(label and "_" not in label and label[0] == label[0].upper() for label in labels), (kind, labels)


def test_each_role_has_a_label_and_a_phrase() -> None:
    assert [role.label for role in ROLES.values()] == [to_words(name) for name in ROLES]
    phrases = [role.phrase for role in ROLES.values()]
    assert all(phrases)
    assert len({*phrases}) == len(phrases)


@table(
    ("value", "words"),
    [("carrier_pigeon", "Carrier pigeon"), ("user.mfa.lost", "User mfa lost"), ("SAML", "SAML"), ("read:users", "Read users")],
)
def test_an_unknown_value_becomes_words(value: str, words: str) -> None:
    assert to_words(value) == words


# What a form shows: its own fields, which the handler has filled in.
FIELDS = {"typed", "values", "labels"}
TEXTS = {"setting", "kwargs"}  # their `value` is a text


def test_no_template_looks_a_value_up_or_words_it_itself() -> None:
    environment = _environment()
    wrong = []
    for name in environment.list_templates():
        tree = environment.parse(environment.loader.get_source(environment, name)[0])  # type: ignore[union-attr]
        for lookup in tree.find_all(nodes.Getitem):
            is_field = isinstance(lookup.node, nodes.Name) and lookup.node.name in FIELDS
            if not isinstance(lookup.arg, nodes.Const | nodes.Slice) and not is_field:
                wrong.append(f"{name}:{lookup.lineno}: a lookup by a value")
        for output in tree.find_all(nodes.Output):
            shown = [each.node if isinstance(each, nodes.Filter) else each for each in output.nodes]
            raw = (each.node for each in shown if isinstance(each, nodes.Getattr) and each.attr == "value")
            wrong += [f"{name}:{node.lineno}: a raw value" for node in raw if getattr(node, "name", None) not in TEXTS]
        for filter_ in tree.find_all(nodes.Filter):
            underscores = filter_.name == "replace" and isinstance(filter_.args[0], nodes.Const) and filter_.args[0].value == "_"
            if (underscores and name != "ui.html") or filter_.name in ("capitalize", "title"):
                wrong.append(f"{name}:{filter_.lineno}: use the filter `label`")
    assert not wrong, "\n".join(wrong)


SEEN = {
    **{method.value: WAYS.get(method) or to_words(method) for method in Method},
    **{"saml": "SAML", "password": "Password", "owner_recovery": "Link from the server", "carrier_pigeon": "Carrier pigeon"},
}


async def test_the_analytics_page_survives_every_way_to_sign_in(owner_browser: FakeBrowser, pool: Pool) -> None:
    for provider, label in SEEN.items():
        await run_sql(
            pool,
            "update audit_log set details = details || jsonb_build_object('provider', %s::text) where action = 'user.login.success'",
            provider,
        )
        page = await owner_browser.open("/app/organizations/acme/analytics")
        assert (page.status, f">{label}<" in page.text) == (200, True), provider


async def test_the_log_survives_an_unknown_event(owner_browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update audit_log set action = 'user.carrier.pigeon', target_type = 'pigeon_loft'")
    page = await owner_browser.open("/app/organizations/acme/audit-log")
    assert (page.status, ">User carrier pigeon<" in page.text, ">Pigeon loft<" in page.text) == (200, True, True)
    ((entry, *_), *_) = await run_sql(pool, "select id from audit_log where org_id is not null")
    page = await owner_browser.open(f"/app/organizations/acme/audit-log/{entry}")
    assert (page.status, "User carrier pigeon" in page.text) == (200, True)
