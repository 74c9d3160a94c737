"""Classification of exceptions of Python's HTTP clients: a refusal, or a temporary outage of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_MAY_PASS: Final = (408, 425, 429)  # timeout, too early, too many requests
_DEEPEST: Final = 8


def is_refusal(status: int) -> bool:
    """Return true if the server refuses the request, so that a retry would get the same answer."""
    return 400 <= status < 500 and status not in _MAY_PASS


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an exception or one of its causes, or None.

    Known attributes: `code` (urllib), `status` (aiohttp), `response.status_code` (requests, httpx), `http_status_code`
    (confluent-kafka's registry client), and botocore's `response`.
    """
    for raised in _causes(error):
        response = getattr(raised, "response", None)
        candidates = [
            getattr(response, "status_code", None),
            getattr(raised, "status", None),
            getattr(raised, "http_status_code", None),
        ]
        if isinstance(response, dict):
            candidates.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
        if isinstance(raised, OSError):
            candidates.append(getattr(raised, "code", None))
        for candidate in candidates:
            if isinstance(candidate, int) and 100 <= candidate <= 599:
                return int(candidate)
    return None


def is_outage(error: BaseException) -> bool:
    """Return true if the server was unreachable, did not answer in time, or reported a failure of its own."""
    status = http_status(error)
    if status is not None:
        return status >= 500 or status in _MAY_PASS
    return any(
        isinstance(raised, (ConnectionError, TimeoutError))
        or any(kind.__name__ in ("gaierror", "TransportError") for kind in type(raised).__mro__)  # socket, httpx
        for raised in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    raised: BaseException | None = error
    for _ in range(_DEEPEST):
        if raised is None:
            return
        yield raised
        raised = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
