"""JSON responses from views: status, headers, and only the model's declared fields."""

from typing import Any, cast

import pytest
from pydantic import ValidationError
from quart_trio import QuartTrio

from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.bodies import Message, ResponseModel, fields_of
from entrypoints.http.edge.signatures import returns
from tests.support.direct import ask


class Detailed(Message):
    """A message with a field that the response model does not have."""

    secret: str = "internal"


RESULTS: dict[str, Any] = {
    "model": Message(message="é"),
    "status": (Message(message="created"), 202),
    "headers": (Message(message="counted"), 200, {"X-Total-Count": "7"}),
    "subclass": Detailed(message="detailed"),
    "another-model": ResponseModel(),
    "nothing": None,
}


def add_routes(app: QuartTrio) -> None:
    @anyone
    @returns(201, 202)
    async def single(name: str) -> Message:
        return cast("Message", RESULTS[name])

    @anyone
    async def several() -> list[Message]:
        return [Message(message="a"), Detailed(message="b")]

    app.add_url_rule("/api/test/results/<name>", "test_single", single)
    app.add_url_rule("/api/test/results", "test_several", several)


async def test_a_model_is_sent_as_json_with_the_first_status(app: QuartTrio) -> None:
    response = await ask(app, "GET", "/api/test/results/model")
    assert (response.status, response.headers["content-type"], response.json) == (201, "application/json", {"message": "é"})


async def test_a_view_can_set_the_status_and_headers(app: QuartTrio) -> None:
    assert (await ask(app, "GET", "/api/test/results/status")).status == 202
    response = await ask(app, "GET", "/api/test/results/headers")
    assert (response.status, response.headers["x-total-count"]) == (200, "7")


async def test_only_declared_fields_are_sent(app: QuartTrio) -> None:
    assert (await ask(app, "GET", "/api/test/results/subclass")).json == {"message": "detailed"}
    assert (await ask(app, "GET", "/api/test/results")).json == [{"message": "a"}, {"message": "b"}]


async def test_a_result_of_another_model_is_an_internal_error(app: QuartTrio) -> None:
    for name in ("another-model", "nothing"):
        response = await ask(app, "GET", f"/api/test/results/{name}")
        assert (name, response.status, response.json["error_code"]) == (name, 500, "INTERNAL_SERVER_ERROR")


class Listed(ResponseModel):
    """A message list."""

    items: list[Message]


def test_collected_fields_are_validated_with_their_list() -> None:
    message = fields_of(Message)
    assert Listed(items=[message(message="a")]).items == [Message(message="a")]
    for fields in ({}, {"message": None}, {"message": 7}):
        with pytest.raises(ValidationError):
            Listed(items=[message(**fields)])
