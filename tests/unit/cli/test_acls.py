"""Rules that the brokers refuse: told in words."""

from __future__ import annotations

import pytest

import fencepost
from fencepost.cli.main import main
from fencepost.client.admin.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType


def test_a_refused_rule_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["User:alice", "--operation", "alter-configs", "--resource", "topic:orders"]
    with fencepost.Broker() as broker, pytest.raises(SystemExit) as ended:
        main(["acls", "add", *wanted, "-b", broker.bootstrap_servers])
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "add the rule that User:alice may alter-configs topic 'orders': " in err
    assert "SECURITY_DISABLED (54)" in err
    assert "Acl(" not in err


def test_a_rule_in_words() -> None:
    rule = Acl(
        ResourceType.TRANSACTIONAL_ID,
        "a-",
        "User:*",
        AclOperation.WRITE,
        AclPermission.DENY,
        PatternType.PREFIXED,
        "10.0.0.1",
    )
    assert str(rule) == "User:* may not write transactional-id that begins with 'a-' from 10.0.0.1"
    assert repr(rule).startswith("Acl(")
