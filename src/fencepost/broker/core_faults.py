"""What the rules of a `FaultTable` do to requests: refused, late, lost, or executed and the answer lost."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.broker.faults import Action, FaultTable, RequestFault
from fencepost.broker.refusal import refusal, topics_named
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

if TYPE_CHECKING:
    from fencepost.broker.connection import Call, Connection
    from fencepost.broker.core import BrokerCore

__all__ = ["RequestFaults"]

_log = logging.getLogger("fencepost.broker.faults")


class RequestFaults:
    """Asked by the core for every request while there are rules, and for the answer of a request that one hit."""

    def __init__(self, core: BrokerCore, table: FaultTable) -> None:
        self._core = core
        self.table = table

    def strike(self, call: Call, request: Any, frame: memoryview) -> bool:
        """Do to the request what a rule wants; True when it must not be executed now."""
        connection = call.connection
        fault = self.table.for_request(
            call.api_key, call.client_id, lambda: frozenset(topics_named(request, self._name_of))
        )
        if fault is None:
            return False
        _log.info("API %s of %r from connection %s: %s", call.api_key, call.client_id, connection, fault.action.value)
        if fault.action is Action.DROP_REQUEST:
            self._core.reset(connection)
        elif fault.action is Action.DELAY:
            connection.held = deque((frame,))
            self._core.after(fault.delay_ms, partial(self._release, connection))
        elif fault.action is Action.SWALLOW:
            connection.calls.append(call)
        elif fault.action is Action.FAIL:
            connection.calls.append(call)
            self._fail(call, request, fault.code)
        else:
            call.fault = fault
            return False
        return True

    def divert(self, call: Call, fault: RequestFault) -> None:
        """The answer of a call that a rule hit is encoded: lose it or keep it back."""
        call.fault = None
        if fault.action is Action.DROP_REPLY:
            self._core.reset(call.connection)
            return
        answer, call.answer = call.answer, None
        self._core.after(fault.delay_ms, partial(self._deliver, call, answer))

    def _deliver(self, call: Call, answer: Any) -> None:
        if not call.connection.closed:
            call.answer = answer
            self._core.flush(call.connection)

    def _release(self, connection: Connection) -> None:
        held = connection.release()
        spared = True
        while held and not connection.closed:
            self._core.take(connection, held.popleft(), spared=spared)
            spared = False
            if connection.held is not None:  # a later one is to be late as well
                connection.held.extend(held)
                return

    def _fail(self, call: Call, request: Any, code: int) -> None:
        if getattr(request, "acks", -1) == 0:
            # Nothing is answered, so a failure can only be told by closing the connection, as Kafka does.
            self._core.reset(call.connection)
            return
        response = refusal(request, code)
        if isinstance(response, MetadataResponse):
            host, port = self._core.address(call.connection)
            response.brokers = (MetadataResponseBroker(node_id=self._core.broker_id, host=host, port=port),)
        self._core.answer(call, response)

    def _name_of(self, topic_id: UUID | None) -> str | None:
        topic = self._core.topics.by_id(topic_id)
        return None if topic is None else topic.name
