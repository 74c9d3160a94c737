"""Each system call of each administrative request fails, once or until it is healed, through a socket.

An answered change is there after a kill, a refused one is not, and the broker serves others meanwhile.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.client.admin import Acl, AclOperation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from fencepost.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.failing_system import FailingSystem
from tests.support.raw_client import Closed, RawClient

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_SET = 0
_READ, _WRITE, _ALLOW, _LITERAL = 3, 4, 3, 3
_SHA_256 = 1
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",
}


def _setting(kind: int, name: str, key: str, value: str) -> Callable[[RawClient], int]:
    def change(client: RawClient) -> int:
        config = AlterableConfig(name=key, config_operation=_SET, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        return int(answer.responses[0].error_code)

    return change


def _add_acl(client: RawClient) -> int:
    creation = AclCreation(
        resource_type=_TOPIC,
        resource_name="t",
        resource_pattern_type=_LITERAL,
        principal="User:alice",
        host="*",
        operation=_WRITE,
        permission_type=_ALLOW,
    )
    return int(client.call(CreateAclsRequest(creations=[creation]), 3).results[0].error_code)


def _remove_acl(client: RawClient) -> int:
    doomed = DeleteAclsFilter(
        resource_type_filter=_TOPIC,
        resource_name_filter="t",
        pattern_type_filter=_LITERAL,
        principal_filter="User:alice",
        host_filter="*",
        operation=_READ,
        permission_type=_ALLOW,
    )
    return int(client.call(DeleteAclsRequest(filters=[doomed]), 3).filter_results[0].error_code)


def _set_user(name: str, iterations: int = 5000) -> Callable[[RawClient], int]:
    def change(client: RawClient) -> int:
        credential = ScramCredentialUpsertion(
            name=name, mechanism=_SHA_256, iterations=iterations, salt=b"salt", salted_password=b"x" * 32
        )
        request = AlterUserScramCredentialsRequest(upsertions=[credential])
        return int(client.call(request, 0).results[0].error_code)

    return change


def _delete_user(client: RawClient) -> int:
    doomed = ScramCredentialDeletion(name="alice", mechanism=_SHA_256)
    return int(client.call(AlterUserScramCredentialsRequest(deletions=[doomed]), 0).results[0].error_code)


def _quota(client: RawClient) -> int:
    operation = OpData(key="producer_byte_rate", value=1e6)
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name="alice")], ops=[operation])
    return int(client.call(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code)


def _feature(client: RawClient) -> int:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    return int(client.call(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code)


def _create(client: RawClient) -> int:
    topic = CreatableTopic(name="new", num_partitions=2, replication_factor=1)
    return int(client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code)


def _grow(client: RawClient) -> int:
    grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
    return int(client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3).results[0].error_code)


def _delete(client: RawClient) -> int:
    return int(
        client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=1000), 6)
        .responses[0]
        .error_code
    )


def _delete_records(client: RawClient) -> int:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
    return int(client.call(DeleteRecordsRequest(topics=[topic]), 2).topics[0].partitions[0].error_code)


def _delete_group(client: RawClient) -> int:
    return int(client.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code)


CHANGES: Mapping[str, Callable[[RawClient], int]] = {
    "topic setting": _setting(_TOPIC, "t", "retention.ms", "604800001"),
    "broker setting": _setting(_BROKER, "", "log.retention.ms", "12345678"),
    "group setting": _setting(_GROUP, "g", "consumer.session.timeout.ms", "50000"),
    "add acl": _add_acl,
    "remove acl": _remove_acl,
    "add user": _set_user("bob"),
    "change user": _set_user("alice", 6000),
    "delete user": _delete_user,
    "quota": _quota,
    "feature": _feature,
    "create topic": _create,
    "grow topic": _grow,
    "delete topic": _delete,
    "delete records": _delete_records,
    "delete group": _delete_group,
}


View = dict[str, Any]
Prepared = tuple[Path, View]


def prepare(directory: Path) -> None:
    """Make a data directory in which each change changes something."""
    with (
        fencepost.Broker(CONFIG, data_dir=str(directory)) as broker,
        fencepost.Admin(broker.bootstrap_servers) as admin,
    ):
        admin.create_topic("t", 1)
        admin.create_topic("doomed", 1)
        admin.create_acls([Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)])
        with RawClient(broker.bootstrap_servers) as client:
            assert _set_user("alice")(client) == 0
            for name in ("t", "doomed"):
                for number in range(5):
                    assert client.produce(name, [b"%d" % number], version=9).error_code == 0
        admin.alter_group_offsets("g", {("t", 0): 1})


def view(address: str) -> View:
    """Return all that the changes change."""
    with fencepost.Admin(address) as admin:
        topics = admin.list_topics()
        groups = [group.group_id for group in admin.list_groups()]
        return {
            "topics": {name: len(found.partitions) for name, found in admin.describe_topics(topics).items()},
            "settings": {name: admin.describe_configs(name)["retention.ms"] for name in topics},
            "broker": admin.describe_configs("1", resource_type=_BROKER)["log.retention.ms"],
            "group": admin.describe_configs("g", resource_type=_GROUP)["consumer.session.timeout.ms"],
            "acls": sorted(map(repr, admin.describe_acls())),
            "users": sorted(map(repr, admin.describe_user_scram_credentials())),
            "quotas": admin.describe_client_quotas(),
            "features": admin.features(),
            "starts": {
                partition: found.offset
                for partition, found in admin.list_offsets({(name, 0): -2 for name in topics}).items()
            },
            "groups": groups,
        }


@contextmanager
def running(directory: Path) -> Iterator[fencepost.Broker]:
    broker = fencepost.Broker(CONFIG, data_dir=str(directory), fsync="commit").start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    directory = tmp_path_factory.mktemp("prepared") / "data"
    prepare(directory)
    with running(directory) as broker:
        return directory, view(broker.bootstrap_servers)


ONCE = ("add acl", "create topic", "grow topic", "delete topic", "delete records", "delete group")
"""One change of each way through the disk: the others replace one small file, like the first."""


@pytest.mark.parametrize("what", ONCE)
def test_a_call_that_fails_once(what: str, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Attempt(what, prepared, tmp_path, monkeypatch)
    assert done.problems(prepared[1], done.now) == []
    found: list[str] = []
    for number in range(done.calls):
        attempt = Attempt(what, prepared, tmp_path, monkeypatch, fail_at=number)
        found += attempt.problems(prepared[1], done.now)
    assert found == []


@pytest.mark.parametrize("what", CHANGES)
def test_a_disk_that_fails_until_it_is_healed(
    what: str, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused change is not there after a kill either, although the broker could not undo it at first."""
    done = Attempt(what, prepared, tmp_path, monkeypatch)
    found: list[str] = []
    codes = set()
    for number in range(done.calls):
        attempt = Attempt(what, prepared, tmp_path, monkeypatch, fail_at=number, persistent=True)
        found += attempt.problems(prepared[1], done.now)
        codes.add(attempt.code)
        if not attempt.code:  # the rest concerns the copy of the file
            break
    assert found == []
    assert codes - {0}


def test_a_change_that_could_not_be_undone_is_told_as_unknown(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of the directory fails, and nothing works after it: only then the answer is a timeout."""
    attempts = []
    for number in range(Attempt("add acl", prepared, tmp_path, monkeypatch).calls):
        attempts.append(Attempt("add acl", prepared, tmp_path, monkeypatch, fail_at=number, persistent=True))
    unknown = [attempt.failed for attempt in attempts if attempt.code == ErrorCode.REQUEST_TIMED_OUT]
    assert len(unknown) == 1
    assert "sync directory" in unknown[0]


def test_a_copy_that_the_disk_refused_is_written_later(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it has the earlier rules, to which damage of the file would lead back."""
    directory = tmp_path / "data"
    shutil.copytree(prepared[0], directory)
    write = SystemFiles._write_atomic

    def refuse_copies(files: SystemFiles, path: str, data: bytes) -> None:
        if path == "acls.fencepost.copy":
            raise OSError(errno.EIO, "input/output error", path)
        write(files, path, data)

    with running(directory) as broker, RawClient(broker.bootstrap_servers) as client:
        with monkeypatch.context() as patches:
            patches.setattr(SystemFiles, "_write_atomic", refuse_copies)
            assert _remove_acl(client) == 0
        file, copy = (directory / f"acls.fencepost{suffix}" for suffix in ("", ".copy"))
        assert copy.read_bytes() != file.read_bytes()
        broker.clock.advance(2)
        assert copy.read_bytes() == file.read_bytes()


class Attempt:
    """One change on a disk of which the call `fail_at` fails, and what is seen then and after a kill."""

    def __init__(
        self,
        what: str,
        prepared: Prepared,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        fail_at: int = -1,
        *,
        persistent: bool = False,
    ) -> None:
        directory = tmp_path / "data"
        shutil.copytree(prepared[0], directory)
        change = CHANGES[what]
        try:
            with ExitStack() as stack:
                patches = stack.enter_context(monkeypatch.context())
                system = FailingSystem(patches, directory, fail_at, persistent=persistent)  # sees all files opened
                broker = stack.enter_context(running(directory))
                address = broker.bootstrap_servers
                self.code: int | None = None
                with RawClient(address) as client, RawClient(address) as other:
                    client.api_versions()
                    system.on = True
                    with suppress(Closed):  # a failed sync of an internal topic ends the broker
                        self.code = change(client)
                        self.served = other.api_versions().error_code
                    system.on = False
                self.calls, self.failed = system.calls, f"{what}: {system.failed}: answered {self.code}"
                if self.code is not None:
                    self.errors = broker.metrics().counters["storage_errors"]
                    self.now = view(address)
                if self.code == ErrorCode.REQUEST_TIMED_OUT:  # unknown, until the broker could restore the file
                    broker.clock.advance(2)
                broker.restart(clean=False)
                self.after = view(address)
                with RawClient(address) as client:
                    self.again = change(client) if self.code else 0
        finally:
            shutil.rmtree(directory)

    def problems(self, before: View, done: View) -> list[str]:
        """Return what contradicts the answer."""
        if self.code is None:
            return [] if self.after in (before, done) else [f"{self.failed}: neither {self.after}"]
        wanted = before if self.code else done
        found = [f"at once: {text}" for text in difference(wanted, self.now)]
        found += [f"after a kill: {text}" for text in difference(wanted, self.after)]
        if self.served:
            found.append(f"another client is answered {self.served}")
        if self.code and not self.errors:
            found.append("no metric")
        if self.again:
            found.append(f"the healed disk: {self.again}")
        return [f"{self.failed}: {text}" for text in found]


def difference(wanted: View, got: View) -> list[str]:
    return [f"{key}: {got[key]}, not {wanted[key]}" for key in wanted if got[key] != wanted[key]]
