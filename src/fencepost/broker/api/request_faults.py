"""Effects of a `FaultTable`'s rules on requests: refused, delayed, lost, or executed with the answer lost."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from fencepost.broker.api.error_responses import refusal, topics_named
from fencepost.broker.connection import Call
from fencepost.broker.faults.table import FaultAction, FaultTable, RequestFault
from fencepost.broker.parts import BROKER_ID
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

__all__ = ["RequestFaults"]

_log = logging.getLogger("fencepost.broker.faults")


class RequestFaults:
    """Applies the rules.

    The core calls it for every request while there are rules, and for the answer of a matched request.
    """

    def __init__(self, table: FaultTable) -> None:
        self.table = table

    def apply_to_request(self, call: Call, request: Any, frame: memoryview) -> bool:
        """Apply a matching rule to the request. Return true if the request must not be executed now."""
        connection, core = call.connection, call.core
        name_of = partial(core.topic_name, None)
        fault = self.table.for_request(call.api_key, call.client_id, lambda: frozenset(topics_named(request, name_of)))
        if fault is None:
            return False
        _log.info("API %s of %r from connection %s: %s", call.api_key, call.client_id, connection, fault.action.value)
        if fault.action is FaultAction.DROP_REQUEST:
            core.reset(connection)
        elif fault.action is FaultAction.DELAY:
            connection.hold(frame)
            core.after(fault.delay_ms, partial(core.release, connection, spared=True))
        elif fault.action is FaultAction.SWALLOW:
            connection.enter(call)
        elif fault.action is FaultAction.FAIL:
            connection.enter(call)
            self._fail(call, request, fault.code)
        else:
            call.fault = fault
            return False
        return True

    def apply_to_reply(self, call: Call, fault: RequestFault) -> None:
        """Lose or delay the encoded answer of a matched request."""
        call.fault = None
        if fault.action is FaultAction.DROP_REPLY:
            call.core.reset(call.connection)
            return
        answer, call.answer = call.answer, None
        call.after(fault.delay_ms, partial(self._deliver, call, answer))

    @staticmethod
    def _deliver(call: Call, answer: Any, _now_ms: int) -> None:
        call.answer = answer
        call.core.metrics.response_bytes[call.api_key] += call.connection.count_answer(answer)
        call.core.flush(call.connection)

    def _fail(self, call: Call, request: Any, code: int) -> None:
        if getattr(request, "acks", -1) == 0:
            # The client expects no answer, so only a closed connection can report a failure, as in Kafka.
            call.core.reset(call.connection)
            return
        response = refusal(request, code)
        if isinstance(response, MetadataResponse):
            host, port = call.core.address(call.connection)
            response.brokers = (MetadataResponseBroker(node_id=BROKER_ID, host=host, port=port),)
        call.core.answer(call, response)
