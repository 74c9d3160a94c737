"""The two faces of a client, blocking and for asyncio: one surface, and nothing of the core in it."""

from __future__ import annotations

import inspect

import pytest

import fencepost
from fencepost.client import aio, blocking
from fencepost.errors import ConfigurationError

PAIRS = [
    (fencepost.Producer, fencepost.AsyncProducer),
    (fencepost.Consumer, fencepost.AsyncConsumer),
    (fencepost.ShareConsumer, fencepost.AsyncShareConsumer),
    (fencepost.Admin, fencepost.AsyncAdmin),
]
CLIENTS = [client for pair in PAIRS for client in pair]

SHARED = "client_instance_id close closed from_config set_sasl_credentials"
PRODUCER = """
    abort_transaction begin_transaction commit_transaction complete_transaction flush init_transactions metrics
    partitions_for prepare_transaction producer_epoch producer_id purge send send_arrow send_offsets_to_transaction
    transaction
"""
CONSUMER = """
    assign assignment beginning_offsets commit commit_async committed core end_offsets fetch_range forget_positions
    group_metadata incremental_assign incremental_unassign lag metrics
    offsets_for partitions_for pause paused poll poll_arrow poll_columns position positions reset_to_committed resume
    seek seek_to_beginning seek_to_end seek_to_timestamp set_rebalance_listener state store_offsets subscribe
    subscription unsubscribe wakeup
"""
SHARE_CONSUMER = """
    acknowledge acquisition_lock_timeout_ms assignment commit commit_async metrics poll set_acknowledgement_callback
    state subscribe subscription unsubscribe wakeup
"""
ADMIN = """
    alter_client_quotas alter_configs alter_group_offsets alter_partition_reassignments alter_replica_log_dirs
    alter_share_group_offsets alter_user_scram_credentials api_versions authorized_operations complete config_entries
    config_entries_of create_acls create_delegation_token create_partitions create_topic create_topics delete_acls
    delete_group delete_group_offsets delete_groups delete_records delete_share_group_offsets delete_topic delete_topics
    describe_acls describe_client_quotas describe_cluster describe_configs describe_delegation_tokens describe_group
    describe_groups describe_log_dirs describe_metadata_quorum describe_producers describe_topics describe_transactions
    describe_user_scram_credentials elect_leaders end_transaction expire_delegation_token features fence_producers
    fences_by_group find_hanging_transactions force_terminate_transaction group_offsets incremental_alter_configs
    init_producer_id list_config_resources list_groups list_offsets list_partition_reassignments list_topics
    list_transactions metrics partitions_of remove_group_members renew_delegation_token reset_group_offsets
    share_group_offsets unregister_broker update_features write_abort_marker
    write_commit_marker
"""


def surface(client: type) -> list[str]:
    return sorted(name for name in dir(client) if not name.startswith("_"))


def shape(client: type, name: str) -> list[tuple[str, inspect._ParameterKind, object, str]] | str:
    """A method's parameters, those of the other face's types by the same name; or that it is none."""
    member = inspect.getattr_static(client, name)
    if not callable(getattr(client, name)):
        return type(member).__name__
    parameters = inspect.signature(getattr(client, name)).parameters.values()
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation).replace("Async", ""))
        for parameter in parameters
    ]


@pytest.mark.parametrize(
    ("pair", "listed"),
    list(zip(PAIRS, [PRODUCER, CONSUMER, SHARE_CONSUMER, ADMIN], strict=True)),
    ids=["producer", "consumer", "share consumer", "admin"],
)
def test_a_client_shows_what_is_listed_and_no_more(pair: tuple[type, type], listed: str) -> None:
    for client in pair:
        assert surface(client) == sorted([*SHARED.split(), *listed.split()])


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_both_faces_take_the_same(pair: tuple[type, type]) -> None:
    names = surface(pair[0])
    assert len(names) > 15
    assert {name: shape(pair[0], name) for name in names} == {name: shape(pair[1], name) for name in names}
    assert inspect.signature(pair[0]).parameters == inspect.signature(pair[1]).parameters


def test_a_difference_between_the_faces_is_seen() -> None:
    class Other(fencepost.AsyncAdmin):
        async def list_topics(self, names: object = None) -> None:  # type: ignore[override]
            """As a plain method, with another parameter."""

    assert shape(Other, "list_topics") != shape(fencepost.Admin, "list_topics")
    assert surface(Other) == surface(fencepost.Admin)


def test_each_face_holds_all_three_clients() -> None:
    assert {vars(blocking)[blocking_type.__name__] for blocking_type, _ in PAIRS} == {
        blocking_type for blocking_type, _ in PAIRS
    }
    assert {vars(aio)[async_type.__name__] for _, async_type in PAIRS} == {async_type for _, async_type in PAIRS}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_settings_are_refused_before_anything_is_started(client: type) -> None:
    name = client.__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\) needs bootstrap_servers, as in {name}\('localhost:9092'\)$"):
        client()
    with pytest.raises(TypeError, match=rf"^{name}\(\) takes one positional argument, bootstrap_servers, and settings"):
        client("h:1", 5)
    with pytest.raises(TypeError, match=rf"^{name}\(\) got bootstrap_servers twice: .* 'orders' is that, too$"):
        client("orders", bootstrap_servers="h:2")
    with pytest.raises(ConfigurationError, match=r"'linger_msec'; did you mean|unknown setting 'linger_msec'"):
        client("h:1", linger_msec=5)
    with pytest.raises(ConfigurationError, match=r"unknown setting 'linger\.msec'"):
        client.from_config({"bootstrap.servers": "h:1", "linger.msec": 5})  # type: ignore[attr-defined]


@pytest.mark.parametrize("client", [blocking_type for blocking_type, _ in PAIRS], ids=lambda client: client.__name__)
def test_a_client_from_dotted_settings_is_one_of_its_class(client: type) -> None:
    class Own(client):  # type: ignore[misc]
        """A subclass keeps its class."""

    settings = {"bootstrap.servers": "127.0.0.1:1", "client.id": "own", "retry.backoff.ms": "7"}
    if client is fencepost.ShareConsumer:
        settings["group.id"] = "g"
    with Own.from_config(settings) as own:
        assert type(own) is Own
        assert own._core.cluster.config.retry_backoff_ms == 7
    assert own.closed
