"""The port for TXT records: the fake, and the resolver against a name server."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from adapters.dns import DnsResolver
from core.tenancy.model.domains import DnsFailed
from ports.outside import TxtRecords
from tests.fakes.dns_server import DnsServer
from tests.fakes.outside import FakeTxtRecords

NAME = "_gatehouse-challenge.acme.example"


@dataclass(frozen=True, slots=True)
class Case:
    records: TxtRecords
    publish: Callable[[str, list[str]], object]  # a name's texts
    fail: Callable[[str], object]  # the name for which lookups fail


def fake() -> Iterator[Case]:
    records = FakeTxtRecords()
    yield Case(records, records.published.__setitem__, records.failing.add)


def resolver() -> Iterator[Case]:
    with DnsServer() as server:

        def publish(name: str, texts: list[str]) -> None:
            records = [text.encode() for text in texts]
            server.texts[name] = [[text[at : at + 255] for at in range(0, len(text), 255)] for text in records]

        yield Case(DnsResolver([server.address]), publish, lambda name: server.codes.update({name: "SERVFAIL"}))


@pytest.fixture(params=[fake, resolver])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from request.param()


async def test_published_texts_are_found(case: Case) -> None:
    case.publish(NAME, ["gatehouse-verification=abc", "v=spf1 -all"])
    assert sorted(await case.records.texts(NAME)) == ["gatehouse-verification=abc", "v=spf1 -all"]


async def test_texts_keep_their_case_and_names_ignore_it(case: Case) -> None:
    case.publish(NAME, ["Gatehouse-Verification=aBc "])
    assert list(await case.records.texts(NAME.upper())) == ["Gatehouse-Verification=aBc "]


async def test_a_change_is_visible_immediately(case: Case) -> None:
    case.publish(NAME, ["old"])
    assert list(await case.records.texts(NAME)) == ["old"]
    case.publish(NAME, ["new"])
    assert list(await case.records.texts(NAME)) == ["new"]


async def test_an_unknown_name_has_no_texts(case: Case) -> None:
    case.publish(f"other.{NAME}", ["a text"])
    case.publish("without.example", [])
    assert list(await case.records.texts(NAME)) == []
    assert list(await case.records.texts("without.example")) == []


async def test_a_long_text_is_complete(case: Case) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(400))
    case.publish(NAME, [text])
    assert list(await case.records.texts(NAME)) == [text]


async def test_many_texts_are_complete(case: Case) -> None:
    texts = [f"{number:03}" * 50 for number in range(100)]
    case.publish(NAME, texts)
    assert sorted(await case.records.texts(NAME)) == texts


async def test_a_failed_lookup_is_not_an_empty_answer(case: Case) -> None:
    case.publish(NAME, ["a text"])
    case.fail(NAME)
    with pytest.raises(DnsFailed):
        await case.records.texts(NAME)
