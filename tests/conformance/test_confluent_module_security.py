"""ACLs, SCRAM credentials and elections by AdminClient, with confluent-kafka and with our module, on both brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import fencepost
from tests.support.apache_kafka import AUTHORIZER_PROPERTIES, ApacheKafka
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import Kit, both
from tests.support.waiting import until

WAIT_S = 60
INVALID = ["_INVALID_ARG", False, False, False]


@pytest.fixture(
    scope="module",
    params=[pytest.param("fencepost", id="fencepost"), pytest.param("kafka", id="kafka", marks=pytest.mark.kafka)],
)
def authorizing(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    if request.param == "kafka":
        with ApacheKafka(authorizer=True) as kafka:
            yield BrokerUnderTest("kafka", kafka)
    else:
        with fencepost.Broker(AUTHORIZER_PROPERTIES) as broker:
            yield BrokerUnderTest("fencepost", broker)


def compared(broker: BrokerUnderTest, program: Callable[[Kit], Any]) -> Any:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        return both(broker, admin, program)


def outcome(kit: Kit, call: Callable[[], Any], show: Callable[[Any], Any] = lambda result: result) -> Any:
    """The result of a call as `show` makes it plain, or its error as `Kit.fails` shows it."""
    results: list[Any] = []
    failure = kit.fails(lambda: results.append(call()))
    return show(results[0]) if failure is None else failure


def each(
    kit: Kit, call: Callable[[], Mapping[Any, Any]], show: Callable[[Any], Any] = lambda result: result
) -> list[Any]:
    """The outcome of each future, or the error of the call."""
    found: list[Any] = outcome(
        kit, call, lambda futures: [outcome(kit, partial(future.result, WAIT_S), show) for future in futures.values()]
    )
    return found


def test_values_of_acls() -> None:
    """Each value of each argument: members, names, numbers, None, and those that are impossible."""
    import confluent_kafka.admin as theirs

    from fencepost.compat.confluent_kafka import admin as ours

    usual: tuple[Any, ...] = ("topic", "t", "literal", "User:a", "*", "read", "allow")
    seen = []
    for module in (theirs, ours):
        binding = module.AclBinding(*usual)
        found: list[Any] = [repr(binding), binding.restype_int, binding.operation_int]
        found.append(min(binding, module.AclBinding("topic", "a", *usual[2:])).name)
        found.append((binding == module.AclBindingFilter(*usual), hash(binding) == hash(module.AclBinding(*usual))))
        special = (module.AclOperation.ANY, module.ResourcePatternType.MATCH, module.ResourceType.BROKER)
        for kind in (module.AclBinding, module.AclBindingFilter):
            for index in range(len(usual)):
                for value in (None, "", "any", "unknown", "nope", 3, 99, b"x", True, *special):
                    arguments = [*usual[:index], value, *usual[index + 1 :]]
                    try:
                        found.append(repr(kind(*arguments)))
                    except (TypeError, ValueError) as error:
                        found.append(type(error).__name__)
        seen.append(found)
    assert seen[0] == seen[1]
    assert {"TypeError", "ValueError"} < set(map(str, seen[0]))


def test_acls(authorizing: BrokerUnderTest) -> None:
    def program(kit: Kit) -> Any:
        api, topic = kit.module.admin, kit.name("t")
        own = api.AdminClient(kit.settings())
        read = api.AclBinding("topic", topic, "literal", "User:a", "*", "read", "allow")
        write = api.AclBinding("topic", topic, "prefixed", "User:b", "10.0.0.1", "write", "deny")
        nobody = api.AclBinding("topic", topic, "literal", "nobody", "*", "all", "allow")
        everything = api.AclBindingFilter("topic", topic, "match", None, None, "any", "any")
        of_user = api.AclBindingFilter("topic", topic, "literal", "User:a", None, "any", "any")

        def shown(bindings: Any) -> Any:
            return [repr(binding).replace(topic, "t") for binding in sorted(bindings)]

        created = [
            each(kit, lambda: own.create_acls([read, write, nobody])),
            each(kit, lambda: own.create_acls([read])),
        ]
        describe = partial(own.describe_acls, everything)
        until(lambda: len(describe().result(WAIT_S)) == 2)  # only our call waits until they are shown
        found = outcome(kit, lambda: describe().result(WAIT_S), shown)
        deleted = [
            each(kit, lambda: own.delete_acls([of_user, everything]), shown),
            each(kit, lambda: own.delete_acls([everything]), shown),
        ]
        with own:
            pass
        closed = [kit.fails(lambda: own.describe_acls(everything)), kit.fails(lambda: own.create_acls([read]))]
        return created, found, deleted, closed

    created, found, deleted, closed = compared(authorizing, program)
    assert created[0][:2] == [None, None]
    assert created[0][2][0] != "NO_ERROR"
    assert created[1] == [None]
    assert len(found) == 2
    assert [len(matches) for matches in deleted[0]] == [1, 2]
    assert deleted[1] == [[]]
    assert closed == ["RuntimeError", "RuntimeError"]


def test_wrong_arguments_of_acls(authorizing: BrokerUnderTest) -> None:
    def program(kit: Kit) -> Any:
        api = kit.module.admin
        own = api.AdminClient(kit.settings())
        read = api.AclBinding("topic", "t", "literal", "User:a", "*", "read", "allow")
        wanted = api.AclBindingFilter("topic", "t", "match", None, None, "any", "any")
        creations: list[Any] = [[], None, [5], (read,), [read, read], "t"]
        deletions: list[Any] = [[], None, [read], [None], [wanted, wanted]]
        return [
            *(kit.fails(partial(own.create_acls, given)) for given in creations),
            *(kit.fails(partial(own.describe_acls, given)) for given in (read, None, [wanted])),
            *(kit.fails(partial(own.delete_acls, given)) for given in deletions),
        ]

    assert set(compared(authorizing, program)) == {"TypeError", "ValueError"}


def test_scram_credentials(authorizing: BrokerUnderTest) -> None:
    def program(kit: Kit) -> Any:
        api = kit.module.admin
        own, user, other = api.AdminClient(kit.settings()), kit.name("user"), kit.name("other")
        sha_256, sha_512 = api.ScramMechanism.SCRAM_SHA_256, api.ScramMechanism.SCRAM_SHA_512
        upsert, delete, info = (
            api.UserScramCredentialUpsertion,
            api.UserScramCredentialDeletion,
            api.ScramCredentialInfo,
        )

        def shown(found: Any) -> Any:
            return found.user, sorted((info.mechanism.name, info.iterations) for info in found.scram_credential_infos)

        def altered(*changes: Any) -> Any:
            return outcome(
                kit,
                lambda: own.alter_user_scram_credentials(list(changes)),
                lambda futures: {
                    name: outcome(kit, partial(future.result, WAIT_S)) for name, future in futures.items()
                },
            )

        def described(*users: str) -> Any:
            return each(kit, lambda: own.describe_user_scram_credentials(list(users)), shown)

        seen = [
            altered(
                upsert(user, info(sha_256, 5000), b"secret"),
                upsert(other, info(sha_256, 8000), b"\xff\x00"),
            ),
            altered(upsert(user, info(sha_512, 4096), b"secret", b"salt")),
            described(user, kit.name("nobody")),
            described(user, user),
            altered(upsert(user, info(sha_256, 4000), b"secret"), delete(other, sha_512)),
            altered(upsert(user, info(sha_256, 20_000), b"secret"), delete(other, sha_256)),
            altered(upsert(user, info(sha_256, 5000), b"secret"), upsert(user, info(sha_256, 5000), b"secret")),
            altered(upsert(user, info(api.ScramMechanism.UNKNOWN, 5000), b"secret")),
        ]
        everybody = own.describe_user_scram_credentials().result(WAIT_S)
        seen.append([shown(everybody[name]) for name in (user, other) if name in everybody])
        seen.append(altered(delete(user, sha_256)))
        seen += [altered(delete(user, sha_512)), described(user)]
        return seen

    seen = compared(authorizing, program)
    assert seen[0] == {"user": None, "other": None}
    assert seen[2][0] == ["user", [["SCRAM_SHA_256", 5000], ["SCRAM_SHA_512", 4096]]]
    assert seen[2][1][0] == "RESOURCE_NOT_FOUND"
    assert seen[3] == [INVALID]
    assert [seen[4][name][0] for name in ("user", "other")] == ["UNACCEPTABLE_CREDENTIAL", "RESOURCE_NOT_FOUND"]
    assert [seen[5]["user"][0], seen[5]["other"]] == ["UNACCEPTABLE_CREDENTIAL", None]
    assert seen[6]["user"][0] == "DUPLICATE_RESOURCE"
    assert seen[7] == {"user": INVALID}
    assert [name for name, _ in seen[8]] == ["user"]
    assert seen[11][0][0] == "RESOURCE_NOT_FOUND"


def test_wrong_arguments_of_scram_credentials(authorizing: BrokerUnderTest) -> None:
    def program(kit: Kit) -> Any:
        api, user = kit.module.admin, kit.name("user")
        own, sha_256 = api.AdminClient(kit.settings()), api.ScramMechanism.SCRAM_SHA_256
        upsert, delete = api.UserScramCredentialUpsertion, api.UserScramCredentialDeletion
        info = api.ScramCredentialInfo
        changes: list[Any] = [
            [],
            None,
            [5],
            [api.UserScramCredentialAlteration(user)],
            [upsert(None, info(sha_256, 5000), b"secret")],
            [upsert("", info(sha_256, 5000), b"secret")],
            [upsert(user, info(sha_256, 5000), "text")],
            [upsert(user, info(sha_256, 5000), b"")],
            [upsert(user, info(sha_256, 5000), b"secret", b"")],
            [upsert(user, info(sha_256, 0), b"secret")],
            [upsert(user, info("x", 5000), b"secret")],
            [upsert(user, None, b"secret")],
            [delete(user, None)],
        ]
        wrong = [kit.fails(partial(own.alter_user_scram_credentials, given)) for given in changes]
        users: list[Any] = [user, [None], [5], [""]]
        return wrong, [kit.fails(partial(own.describe_user_scram_credentials, given)) for given in users]

    for seen in compared(authorizing, program):
        assert set(seen) == {"TypeError", "ValueError"}


def test_elections(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        own, kinds = kit.module.admin.AdminClient(kit.settings()), kit.module.ElectionType
        kit.topic("t", 2)

        def elected(kind: Any, partitions: Any) -> Any:
            def shown(found: Any) -> Any:
                return sorted(
                    (partition.topic, partition.partition, None if error is None else error.name())
                    for partition, error in found.items()
                )

            return outcome(kit, lambda: own.elect_leaders(kind, partitions).result(WAIT_S), shown)

        first, second = kit.partition("t", 0), kit.partition("t", 1)
        missing = [kit.partition("t", 7), kit.partition("missing", 0)]
        wrong: list[Any] = ["t", 5, [5], (first,), [kit.partition("t", -1)]]
        return [
            elected(kinds.PREFERRED, [first, second]),
            elected(kinds.UNCLEAN, [first]),
            elected(kinds.PREFERRED, missing),
            elected(kinds.PREFERRED, [first, first]),
            elected(None, [first]),
            *(elected(kinds.PREFERRED, given) for given in wrong),
        ]

    seen = both(broker, admin, program)
    assert seen[0] == [["t", 0, "ELECTION_NOT_NEEDED"], ["t", 1, "ELECTION_NOT_NEEDED"]]
    assert {error for _, _, error in seen[2]} == {"UNKNOWN_TOPIC_OR_PART"}
    assert seen[3] == INVALID
    assert set(seen[4:]) == {"TypeError", "ValueError"}
