"""What can go wrong in the sink beyond `fencepost.errors`.

    ApplicationRecoverableError
    |-- SupersededError          a newer run of the sink took over; nothing was touched, a restart heals
    |-- DecisionRefusedError     the decision was refused; nothing was touched, a restart heals
    `-- DecisionUnknownError     no answer says whether the decision took effect; a restart finds out
    FatalError
    |-- CorruptDecisionError     a decision record cannot be read
    |-- SinkContradictionError   what Spark or the broker says cannot be true by the protocol
    `-- ConfigurationError
        `-- LevelUnavailableError  the brokers do not offer the guarantee level that was required

`PreparedTransactionLostError` (fencepost.errors) is the loud one: a decided transaction is not there any more.
"""

from __future__ import annotations

from fencepost.errors import ApplicationRecoverableError, ConfigurationError, FatalError

__all__ = [
    "CorruptDecisionError",
    "DecisionRefusedError",
    "DecisionUnknownError",
    "LevelUnavailableError",
    "SinkContradictionError",
    "SupersededError",
]


class SupersededError(ApplicationRecoverableError):
    """A newer run claimed this sink. This one stops and leaves everything to it."""


class DecisionRefusedError(ApplicationRecoverableError):
    """The broker refused the decision (the claim's transaction timed out, say). The batch is not decided."""


class DecisionUnknownError(ApplicationRecoverableError):
    """No answer says whether the batch's decision took effect. Nothing was aborted; the next run finds out."""


class CorruptDecisionError(FatalError):
    """A decision record's bytes are not what this or an older version writes."""


class SinkContradictionError(FatalError):
    """Messages or records that the protocol excludes (a mixed batch, two claims, another sink's transaction)."""


class LevelUnavailableError(ConfigurationError):
    """The brokers do not offer the guarantee level that `require.level` asks for, or no safe level at all."""
