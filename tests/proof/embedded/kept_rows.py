"""Rows that must survive when the embedded database restarts."""

import psycopg


def write(conninfo: str, number: int) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute("create table if not exists kept (n int)")
        connection.execute("insert into kept values (%s)", (number,))


def kept_numbers(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as connection:
        return [n for (n,) in connection.execute("select n from kept order by n")]
