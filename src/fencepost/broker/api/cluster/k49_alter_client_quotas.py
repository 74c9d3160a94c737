"""AlterClientQuotas, v0-1 (KIP-546): set and remove quotas.

Each entity has its own result, sent once it is on disk.

Byte rates take effect at once, including open connections. Other quotas are only stored and described, and a warning
says that they have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import itemgetter

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.settings.client_quotas import UNENFORCED, Entity, InvalidQuota, check_entity, check_value
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntityData,
    ResponseEntryData,
)

__all__ = ["HANDLER"]

_log = logging.getLogger("fencepost.broker.quotas")


def _handle(call: Call, now_ms: int, request: AlterClientQuotasRequest) -> None:
    """Change the valid entries."""
    call.change(request, _altered(call, request))


def _altered(call: Call, request: AlterClientQuotasRequest) -> Change[AlterClientQuotasResponse]:
    changed: dict[Entity, Mapping[str, float]] = {}
    answers: dict[Entity, ResponseEntryData] = {}
    for entry in request.entries:  # of an entity named twice, the first entry counts, and the answer is an error
        named = tuple(sorted({part.entity_type: part.entity_name for part in entry.entity}.items(), key=itemgetter(0)))
        answers[named] = _answer(call, entry, changed, is_known=named in answers)
    if changed and not request.validate_only:
        yield from call.core.settings.set_quotas(changed)
        for entity, values in changed.items():
            unenforced = sorted(UNENFORCED & values.keys())
            if unenforced:
                _log.warning(
                    "quotas of %s are kept, but not enforced by this broker: %s", entity, ", ".join(unenforced)
                )
    return AlterClientQuotasResponse(entries=[*answers.values()])


def _answer(
    call: Call, entry: EntryData, changed: dict[Entity, Mapping[str, float]], *, is_known: bool
) -> ResponseEntryData:
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    code, message = ErrorCode.NONE, None
    try:
        entity = check_entity(parts)
        if is_known:
            raise InvalidQuota(f"The request names entity {dict(entity)} twice")
        if len({op.key for op in entry.ops}) < len(entry.ops):
            raise InvalidQuota(f"The request names a quota of entity {dict(entity)} twice")
        values = dict(call.core.settings.quotas.get(entity, {}))
        for op in entry.ops:
            if op.remove:
                values.pop(op.key, None)
            else:
                check_value(entity, op.key, op.value)
                values[op.key] = op.value
        changed[entity] = values
    except InvalidQuota as error:
        code, message = ErrorCode.INVALID_REQUEST, str(error)
    return ResponseEntryData(
        error_code=code,
        error_message=message,
        entity=[ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in dict(parts).items()],
    )


HANDLER = Handler(_handle)
