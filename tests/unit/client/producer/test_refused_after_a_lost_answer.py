"""Commits whose answer is lost, and whose repetition is refused: they may have taken effect, and the error says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fencepost
from fencepost.client.admin import ScramDeletion, ScramMechanism, ScramUpsertion
from fencepost.errors import AuthenticationError, KafkaError, ProducerFencedError
from fencepost.testing import read_all

SCRAM = ScramMechanism.SCRAM_SHA_256
PATIENCE_S = 30


def commit_transaction(clients: Clients) -> KafkaError:
    with pytest.raises(AuthenticationError) as caught:
        clients.transactional.commit_transaction()
    with pytest.raises(AuthenticationError) as again:
        clients.transactional.abort_transaction()
    assert again.value.outcome_unknown
    return caught.value


def commit_offsets(clients: Clients) -> KafkaError:
    with pytest.raises(AuthenticationError) as caught:
        clients.consumer.commit({("t", 0): 1})
    return caught.value


def create_topic(clients: Clients) -> KafkaError:
    with pytest.raises(AuthenticationError) as caught:
        clients.admin.create_topic("made", 1)
    return caught.value


class Clients:
    """Clients of one user, each with an open connection."""

    def __init__(self, address: str) -> None:
        login: dict[str, Any] = {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "a word",
        }
        self.transactional = fencepost.Producer(**login, transactional_id="x")
        self.consumer = fencepost.Consumer(**login, group_id="g")
        self.admin = fencepost.Admin(**login)

    def close(self) -> None:
        for client in (self.transactional, self.consumer, self.admin):
            client.close()


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize(
    ("api", "act", "is_done"),
    [
        ("EndTxn", commit_transaction, lambda admin, reader: reader.end_offsets([("t", 0)])[("t", 0)] > 0),
        ("OffsetCommit", commit_offsets, lambda admin, reader: len(admin.group_offsets("g")) == 1),
        ("CreateTopics", create_topic, lambda admin, reader: "made" in admin.list_topics()),
    ],
    ids=["transaction", "offsets", "topic"],
)
def test_a_login_that_is_refused_proves_nothing_about_the_request_before_it(
    api: str,
    act: Callable[[Clients], KafkaError],
    is_done: Callable[[fencepost.Admin, fencepost.Consumer], bool],
    is_lost: bool,
) -> None:
    """The user is deleted while a request is under way: its answer is lost, or the request itself."""
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    with fencepost.Broker({**listeners, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}) as broker:
        address = broker.listener("PLAINTEXT")
        with fencepost.Admin(address) as admin, fencepost.Consumer(address, auto_offset_reset="earliest") as reader:
            admin.create_topic("t", 1)
            admin.alter_user_scram_credentials([ScramUpsertion("alice", SCRAM, "a word")])
            clients = Clients(broker.listener("SASL_PLAINTEXT"))
            try:
                clients.transactional.init_transactions()
                clients.transactional.begin_transaction()
                clients.transactional.send("t", b"v").result(PATIENCE_S)
                clients.consumer.committed([("t", 0)])
                clients.admin.list_topics()
                admin.alter_user_scram_credentials([ScramDeletion("alice", SCRAM)])
                fault = broker.faults.drop_reply(api) if is_lost else broker.faults.drop_request(api)
                error = act(clients)
                assert fault.hits == 1
                assert is_done(admin, reader) is is_lost
                assert error.outcome_unknown  # the client cannot know which of the two it was
                assert error.may_have_taken_effect
            finally:
                clients.close()


def test_a_producer_that_was_replaced_after_its_commit_does_not_say_that_nothing_was_committed() -> None:
    """The commit is carried out and its answer lost. Another producer takes the id before EndTxn comes again."""
    with fencepost.Broker({"transaction.version": 1}) as broker:
        servers = broker.bootstrap_servers
        with fencepost.Producer(servers, transactional_id="x") as first:
            first.init_transactions()
            first.begin_transaction()
            first.send("t", b"v").result(PATIENCE_S)
            lost = broker.faults.drop_reply("EndTxn")
            repeated = broker.faults.drop_request("EndTxn", times=None)
            with ThreadPoolExecutor(1) as threads:
                commit = threads.submit(first.commit_transaction)
                repeated.wait(1, PATIENCE_S)
                with fencepost.Producer(servers, transactional_id="x") as second:
                    second.init_transactions()
                    repeated.remove()
                    error = commit.exception(PATIENCE_S)
        assert lost.hits == 1
        assert isinstance(error, ProducerFencedError)
        assert error.outcome_unknown
        assert [record.value for record in read_all(broker, "t")] == [b"v"]
