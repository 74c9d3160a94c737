"""`complete_transaction` after a restart: what was committed is told from what is lost."""

from __future__ import annotations

import pytest

import fencepost
from fencepost.errors import PreparedTransactionLostError


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("end", ["commit", "abort", "time"])
def test_a_prepared_transaction_that_is_over_is_told_by_its_end(end: str, level: int) -> None:
    settings = {"transaction.two.phase.commit.enable": False, "transaction.version": level}
    with fencepost.Broker(settings) as broker:
        first = fencepost.Producer(broker.bootstrap_servers, transactional_id="x")
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"v")
        stored = str(first.prepare_transaction())
        if end == "commit":
            assert first.complete_transaction(stored) is True
            assert first.complete_transaction(stored) is True
        elif end == "abort":
            first.abort_transaction()
        else:
            broker.clock.advance(61)
            broker.settle()
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as second:
            assert second.init_transactions(keep_prepared=True) is None
            if end == "commit":
                assert second.complete_transaction(stored) is True
            else:
                with pytest.raises(PreparedTransactionLostError, match=stored):
                    second.complete_transaction(stored)
            with second.transaction():
                second.send("t", b"w")
        first.close(0)
