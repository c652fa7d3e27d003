"""An end user's details contain only data from the organization (decision 133; security T-2)."""

from datetime import timedelta

from core.kernel.values import new_id
from tests.applications.api.end_users.applications import Applications, format_time
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql, sign_in
from tests.support.refusals import MISSING, refused


async def test_the_details_contain_only_data_of_the_organization(apps: Applications, clock: FakeClock) -> None:
    user = await apps.person("ada")
    began = clock.now()
    first = await apps.session("ada", "shop")
    clock.advance(timedelta(minutes=1))
    await apps.session("ada", "shop")
    await apps.use("ada", "wiki", signed_in=False)
    clock.advance(timedelta(minutes=1))
    await apps.session("ada", "other")
    await sign_in(apps.acme.ports, user)
    await run_sql(apps.acme.pool, "update users set updated_at = %s where id = %s", clock.now(), user.id)
    for service, provider, subject in (
        (apps.services["wiki"], "websuite", "w-1"),
        (apps.services["other"], "codehost", "c-1"),
        (None, "codehost", "c-2"),
    ):
        await run_sql(
            apps.acme.pool,
            """
            insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
            values (gen_random_uuid(), %s, %s, %s, %s, 'ada@elsewhere.example', %s)""",
            user.id,
            service,
            provider,
            subject,
            began,
        )
    answer = await apps.show("ada")
    assert answer.status == 200
    assert answer.json == {
        "id": str(user.id),
        "email": "ada@people.example",
        "created_at": format_time(user.created_at),
        "last_login_at": format_time(began + timedelta(minutes=1)),
        "mfa_enabled": False,
        "protection": "protected",
        "factors": [],
        "email_verified": True,
        "updated_at": format_time(clock.now()),
        "linked_identities": [
            {"provider": "websuite", "provider_user_id": "w-1", "email": "ada@elsewhere.example", "linked_at": format_time(began)}
        ],
        "services": [
            {
                "id": str(apps.services["shop"]),
                "slug": "shop",
                "name": "Shop",
                "first_login_at": format_time(began),
                "last_login_at": format_time(began + timedelta(minutes=1)),
            },
            {"id": str(apps.services["wiki"]), "slug": "wiki", "name": "Wiki", "first_login_at": None, "last_login_at": None},
        ],
        "sessions": {"active_count": 2, "last_created_at": format_time(began + timedelta(minutes=1))},
        "blocked_at": None,
    }
    assert (await apps.acme.api.post("/api/auth/logout", token=first.access_token)).status == 200
    assert (await apps.show("ada")).json["sessions"]["active_count"] == 1
    clock.advance(timedelta(days=31))
    await apps.acme.sign_in("member")
    assert (await apps.show("ada")).json["sessions"] == {"active_count": 0, "last_created_at": None}


async def test_users_of_other_organizations_are_not_found(apps: Applications) -> None:
    await apps.person("eve", "other")
    await apps.person("stranger")
    apps.people["member"] = apps.acme.people["member"]
    answers = [
        *[await apps.show(name) for name in ("eve", "stranger", "member")],
        *[await apps.revoke(name) for name in ("eve", "stranger", "member")],
    ]
    for user in (str(new_id()), "x", str(apps.people["eve"].id).upper(), "00000000-0000-0000-0000-000000000000"):
        answers.append(await apps.acme.api.get(f"{apps.acme.path}/users/{user}", token=apps.acme.token("owner")))
        answers.append(await apps.acme.api.delete(f"{apps.acme.path}/users/{user}/sessions", token=apps.acme.token("owner")))
    assert {(refused(answer), answer.json["error"]) for answer in answers} == {(MISSING, answers[0].json["error"])}
    assert (await apps.show("eve", of=apps.other_tenant)).status == 200
