"""The emails to a user about a trial that ends and a payment to complete."""

import itertools

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.billing.api.billing import CREATED, DAY, DELETED, PAYMENT_PAGE, UPDATED, Till
from tests.fakes.outside import FakeMailTransport
from tests.fakes.payments import event, invoice, subscription
from tests.support.builders import deliver, run_sql


async def test_no_mail_is_sent_about_a_trial_that_newer_events_ended(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    await till.deliver(UPDATED, till.subscription(), till.now + 10)
    await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 5)
    assert await run_sql(pool, "select 1 from mails") == []


async def test_no_mail_is_sent_about_a_trial_that_ended_before_the_event_arrives(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    for ends, mails in ((till.now - DAY, 0), (till.now, 0), (till.now + DAY, 1)):
        await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing", trial_end=ends), till.now - 3 * DAY)
        assert len(await run_sql(pool, "select 1 from mails")) == mails


async def test_the_user_gets_a_mail_before_a_trial_ends(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 1)
    await deliver(ports)
    [mail] = sent.emails
    assert (mail.to, "trial" in mail.subject) == (till.tenant.people["member"].email, True)
    for body in (mail.text, mail.html):
        assert "to the plan Gold of Shop at Acme" in body
        assert "unless the subscription is canceled" in body.replace("\n", " ")
        assert "the application's administrators" in body.replace("\n", " ")


async def test_the_user_gets_one_mail_about_a_payment_to_complete(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    assert [await till.send_for_status(one) for _ in range(3)] == [200] * 3
    await deliver(ports)
    [mail] = sent.emails
    assert (mail.to, "payment" in mail.subject) == (till.tenant.people["member"].email, True)
    assert "to the plan Gold of Shop at Acme" in mail.text
    assert await till.status() == "active"


async def test_the_mail_links_to_the_payment_page_if_it_is_safe(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    for url in (PAYMENT_PAGE, "http://invoice.provider.example/i/1"):
        await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=url), till.now + 1)
    await deliver(ports)
    with_link, without = sorted(sent.emails, key=lambda mail: PAYMENT_PAGE not in mail.text)
    assert PAYMENT_PAGE in with_link.text.splitlines()
    assert with_link.html.count(f'href="{PAYMENT_PAGE}"') == 2
    assert "://" not in without.text
    assert await run_sql(pool, "select distinct token from mails") == [(None,)], (
        "the link gives access to the invoice, so it is deleted after sending"
    )


async def test_an_open_payment_is_reported_when_the_user_becomes_known(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    """A payment that was completed before is not reported."""
    for number, paid in ((1, None), (2, till.now + 2)):
        id_ = f"sub_{number}"
        await till.deliver("invoice.payment_action_required", invoice(id_), till.now + 1)
        if paid is not None:
            await till.deliver("invoice.paid", invoice(id_), paid)
        name = ("member", "owner")[number - 1]
        await till.deliver(CREATED, till.subscription(id_, status="incomplete", metadata=till.metadata(user_id=till.tenant.id(name))))
    await deliver(ports)
    assert [mail.to for mail in sent.emails] == [till.tenant.people["member"].email]


async def stored_pages(pool: Pool) -> list[bytes]:
    return [page for (page,) in await run_sql(pool, "select action_page from billing_facts where action_page is not null")]


async def test_the_payment_page_is_stored_encrypted_until_the_user_is_known(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    for at, page in ((till.now + 2, PAYMENT_PAGE), (till.now + 1, f"{PAYMENT_PAGE}&old")):
        await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=page), at)
    await till.deliver("customer.subscription.updated", till.subscription(status="incomplete", metadata={}), till.now)
    [sealed] = await stored_pages(pool)
    assert b"provider" not in sealed
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [mail] = sent.emails
    assert PAYMENT_PAGE in mail.text.splitlines()
    assert await stored_pages(pool) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("ending_event", ["invoice.paid", DELETED])
async def test_the_payment_page_is_deleted_when_it_is_no_longer_needed(till: Till, pool: Pool, ending_event: str, order: int) -> None:
    subject = invoice("sub_1") if ending_event == "invoice.paid" else till.subscription(status="canceled", metadata={})
    payment_action = event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAYMENT_PAGE), till.now + 1)
    for one in [payment_action, event(ending_event, subject, till.now + 2)][::order]:
        assert await till.send_for_status(one) == 200
    assert await stored_pages(pool) == []


async def test_marking_a_subscription_ended_deletes_its_payment_page(till: Till, ports: Ports, pool: Pool) -> None:
    await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAYMENT_PAGE))
    assert len(await stored_pages(pool)) == 1
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.mark_ended("sub_1", till.clock.now())
    assert await stored_pages(pool) == []


async def test_an_undecryptable_payment_page_does_not_stop_the_mail(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAYMENT_PAGE))
    await run_sql(pool, "update billing_facts set action_page = 'broken'")
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [mail] = sent.emails
    assert "://" not in mail.text


async def test_no_mail_is_sent_about_a_settled_invoice(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    for status, order in itertools.product(("paid", "void", "uncollectible"), (1, -1)):
        await till.reset()
        action = event("invoice.payment_action_required", invoice("sub_1", status=status, hosted_invoice_url=PAYMENT_PAGE), till.now + 1)
        for each in [action, event(CREATED, till.subscription(status="incomplete"), till.now)][::order]:
            assert await till.send_for_status(each) == 200
        await deliver(ports)
        assert (sent.emails, await stored_pages(pool)) == ([], []), (status, order)


async def test_no_mail_is_sent_about_a_payment_from_before_the_subscription_became_active(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    for newest, order in itertools.product(("active", "incomplete"), itertools.permutations(range(3))):
        await till.reset()
        sent.emails.clear()
        facts = [
            event(CREATED, till.subscription(status="incomplete"), till.now - 50),
            event(UPDATED, till.subscription(status=newest), till.now - 10),
            event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAYMENT_PAGE), till.now - 40),
        ]
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        await deliver(ports)
        # If the event about the active status arrives last, the mail was already queued.
        assert len(sent.emails) == int(newest == "incomplete" or order[-1] == 1), (newest, order)
        assert await stored_pages(pool) == []


async def test_a_newer_payment_to_complete_does_not_reopen_an_older_one(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription(), till.now - 50)
    await till.deliver("invoice.paid", invoice("sub_1"), till.now - 30)
    for at in (-20, -40):
        await till.deliver("invoice.payment_action_required", invoice("sub_1"), till.now + at)
    await deliver(ports)
    assert len(sent.emails) == 1


async def test_no_mail_is_sent_about_ended_or_unknown_subscriptions(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED, till.subscription(status="canceled"))
    for subject in (till.subscription(status="canceled"), subscription("sub_2")):
        await till.deliver("customer.subscription.trial_will_end", subject, till.now + 1)
    for id_ in ("sub_1", "sub_2", None):
        await till.deliver("invoice.payment_action_required", invoice(id_), till.now + 1)
    await deliver(ports)
    assert sent.emails == []


async def test_a_queued_mail_is_dropped_if_the_subscription_has_ended(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 2)
    await deliver(ports)
    assert sent.emails == []
    assert await run_sql(pool, "select outcome from mails") == [("dropped",)]
