"""Who has the token and asks this machine by its own name is answered, and nobody else."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from fabric.errors import UsageError
from fabric.report.view.serving import Resource, serving


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(
        lambda path, query: Resource(f"{path} {query.get('n')}".encode()) if path != "none" else None
    ) as found:
        yield found


def ask(address: str, path: str, host: str | None = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request("GET", path, headers={"Host": host or parts.netloc})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_with_the_token_a_path_is_answered(address: str) -> None:
    begin = urlsplit(address).path
    assert ask(address, f"{begin}data/x?n=3") == (200, b"data/x 3")
    assert ask(address, f"{begin}none")[0] == 404


@pytest.mark.parametrize("path", ["/", "/data/x", "/wrong-token-of-some-length/", "/wrong-token-of-some-length/data/x"])
def test_without_the_token_nothing_is(address: str, path: str) -> None:
    assert ask(address, path)[0] == 403


def test_a_page_of_another_name_that_leads_here_gets_nothing(address: str) -> None:
    assert ask(address, urlsplit(address).path, host="example.com:80")[0] == 403


def test_tokens_differ(address: str) -> None:
    with serving(lambda path, query: None) as other:
        assert urlsplit(other).path != urlsplit(address).path
        assert urlsplit(other).hostname == "127.0.0.1"


def test_a_port_that_is_taken_is_named(address: str) -> None:
    taken = urlsplit(address).port
    assert taken
    with pytest.raises(UsageError, match=f"--port {taken}: cannot be used"), serving(lambda path, query: None, taken):
        pass


def test_a_number_that_is_no_port_is_refused() -> None:
    with pytest.raises(UsageError, match="--port 99999: is not a port"), serving(lambda path, query: None, 99999):
        pass
