"""Kafka's `kafka-consumer-groups` on groups of both protocols, with members and without."""

from __future__ import annotations

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.conformance.consumer_groups import commit_as
from tests.conformance.test_groups import join, sync
from tests.conformance.test_offsets import commit
from tests.support.group_member import RawMember
from tests.support.kafka_tools import run_kafka_tool
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java


class GroupCommands:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def ask(self, *arguments: str) -> str:
        """Return the tool's output. The tool ends with status 0 even if a group refuses the request."""
        ran = run_kafka_tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", self._servers, *arguments)
        assert ran.status == 0, ran.output
        return ran.output

    def rows(self, *arguments: str) -> list[list[str]]:
        """The rows of the table that it prints, without the head."""
        lines = [line.split() for line in self.ask(*arguments).splitlines() if line.strip()]
        head = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
        return sorted(words for words in lines[head + 1 :] if words[0] != "Consumer")


def test_groups_of_both_protocols() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        commands = GroupCommands(broker.bootstrap_servers)
        for topic in ("t1", "t2"):
            client.create_topic(topic, 2)
            for partition in range(2):
                client.produce(topic, [b"v"] * 5, partition=partition)
        member = RawMember(client, "new", ["t1"], member_id="m" * 22)
        member.follow()
        for partition in range(2):
            assert commit_as(member, "t1", partition, 3, member.epoch) == 0
        assert commit(client, "old", "t1", 2) == 0
        joined = join(client, "old")
        assert sync(client, "old", joined)[0] == 0

        assert commands.rows("--list", "--state", "--type") == [
            ["new", "Consumer", "Stable"],
            ["old", "Classic", "Stable"],
        ]
        assert commands.rows("--list", "--type", "consumer") == [["new", "Consumer"]]
        assert [row[:7] for row in commands.rows("--describe", "--group", "new")] == [
            ["new", "t1", "0", "3", "5", "2", "m" * 22],
            ["new", "t1", "1", "3", "5", "2", "m" * 22],
        ]
        (row,) = commands.rows("--describe", "--group", "new", "--members", "--verbose")
        epoch = str(member.epoch)
        assert row[4:] == ["2", epoch, "t1:0,1", epoch, "t1:0,1"]
        (row,) = commands.rows("--describe", "--group", "new", "--state")
        assert row[-3:] == ["uniform", "Stable", "1"]
        assert "GroupNotEmptyException" in commands.ask("--delete", "--group", "new")
        assert "GroupSubscribedToTopicException" in commands.ask("--delete-offsets", "--group", "new", "--topic", "t1")

        assert member.leave() == 0
        leaving = LeaveGroupRequest(group_id="old", members=[MemberIdentity(member_id=joined.member_id)])
        assert client.call(leaving, 4).error_code == 0
        for group in ("new", "old"):
            commands.ask("--reset-offsets", "--group", group, "--topic", "t1", "--to-offset", "4", "--execute")
            commands.ask("--reset-offsets", "--group", group, "--topic", "t2", "--to-earliest", "--execute")
            offsets = [row[1:4] for row in commands.rows("--describe", "--group", group)]
            assert offsets == [["t1", "0", "4"], ["t1", "1", "4"], ["t2", "0", "0"], ["t2", "1", "0"]]
            assert "Successful" in commands.ask("--delete-offsets", "--group", group, "--topic", "t2")
            assert len(commands.rows("--describe", "--group", group)) == 2
            assert "successful" in commands.ask("--delete", "--group", group)
        assert commands.ask("--list").split() == []
