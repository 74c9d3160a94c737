"""`fencepost acls`: manage access control lists (KIP-11, KIP-290)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, TypeVar

import typer

from fencepost.arguments import brief_repr
from fencepost.cli.cluster_settings import CommandConfig, Servers, connected
from fencepost.cli.names import in_utf8, named
from fencepost.cli.output import (
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    print_json,
    print_table,
    refuse,
)
from fencepost.cli.printable import printable
from fencepost.client.admin.acls import Acl, AclFilter
from fencepost.counted import counted_noun
from fencepost.protocol.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType

__all__ = ["acls"]

acls = command_group("List, add and delete access control lists.")

E = TypeVar("E", bound=IntEnum)


def _words(kind: type[IntEnum], but: Iterable[IntEnum] = ()) -> str:
    return ", ".join(_word(member) for member in kind if member not in set(but))


def _word(value: IntEnum) -> str:
    return value.name.lower().replace("_", "-")


Operation = Annotated[
    list[str] | None,
    typer.Option("--operation", help=f"One of: {_words(AclOperation, [AclOperation.ANY])}."),
]
ResourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resource",
        metavar="KIND:NAME",
        help=f"KIND: {_words(ResourceType, [ResourceType.ANY])}; `cluster` has no name; topic:* is every topic.",
    ),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The resource's name is a prefix of names.")]
Host = Annotated[
    str | None, typer.Option(callback=named, help="Address from which the principal connects.", show_default="any")
]


def _principal(given: str | None) -> str | None:
    """Return a principal as KIND:NAME. Raises BadParameter."""
    named(given)
    if given is not None and not re.fullmatch(r"[^:]+:.+", given, re.DOTALL):
        raise typer.BadParameter(f"{brief_repr(given)} is not a principal KIND:NAME, such as User:alice")
    return given


def _read(kind: type[E], text: str, option: str) -> E:
    """Return an enumeration's member by name. Raises BadParameter."""
    name = text.upper().replace("-", "_")
    if name not in kind.__members__ or name == "ANY":
        raise typer.BadParameter(f"{brief_repr(text)}: one of {_words(kind)}", param_hint=option)
    return kind[name]


def _resource(text: str) -> tuple[ResourceType, str]:
    """Parse KIND:NAME. Raises BadParameter."""
    kind, _, name = text.partition(":")
    found = _read(ResourceType, kind, "--resource")
    if found is ResourceType.CLUSTER:
        name = name or CLUSTER_NAME
    if not name:
        raise typer.BadParameter(f"{brief_repr(text)} names no {kind}: KIND:NAME", param_hint="--resource")
    return found, in_utf8(name)


def _facts(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": _word(acl.permission),
        "operation": _word(acl.operation),
        "resource": f"{_word(acl.resource_type)}:{acl.resource_name}",
        "pattern": _word(acl.pattern),
        "host": acl.host,
    }


def _show(found: Iterable[Acl], *, as_json: bool) -> None:
    facts = [_facts(acl) for acl in found]
    if as_json:
        print_json(facts)
        return
    names = ("principal", "permission", "operation", "resource", "pattern", "host")
    print_table([tuple(name.upper() for name in names), *(tuple(fact[name] for name in names) for fact in facts)])


def _filters(
    principal: str | None, operation: list[str] | None, resource: list[str] | None, host: str | None, *, prefixed: bool
) -> list[AclFilter]:
    """Return filters that together match the rules with all given properties. Raises BadParameter."""
    pattern = PatternType.PREFIXED if prefixed else PatternType.ANY
    operations = [_read(AclOperation, text, "--operation") for text in operation or ()] or [AclOperation.ANY]
    resources: list[tuple[ResourceType, str | None]] = [*map(_resource, resource or ())]
    return [
        AclFilter(kind, name, principal, each, AclPermission.ANY, pattern, host)
        for kind, name in resources or [(ResourceType.ANY, None)]
        for each in operations
    ]


@acls.command("list")
def list_(
    principal: Annotated[
        str | None, typer.Option(callback=_principal, help="Only rules of this principal, such as User:alice.")
    ] = None,
    operation: Operation = None,
    resource: ResourceOption = None,
    prefixed: Prefixed = False,
    host: Host = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List the rules, or those that match all options.

    Example: fencepost acls list --principal User:alice
    """
    wanted = _filters(principal, operation, resource, host, prefixed=prefixed)
    with connected(bootstrap_servers, command_config) as admin:
        found = {acl for acl_filter in wanted for acl in admin.describe_acls(acl_filter)}
    _show(sorted(found), as_json=as_json)


@acls.command()
def add(
    principal: Annotated[str, typer.Argument(callback=_principal, help="User:alice, or User:* for everybody.")],
    operation: Operation = None,
    resource: ResourceOption = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow. Deny rules take precedence.")] = False,
    prefixed: Prefixed = False,
    host: Host = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Add a rule for each given operation on each given resource. Existing rules do not change.

    Example: fencepost acls add User:alice --operation read --operation describe --resource topic:orders
    """
    if not operation or not resource:
        raise typer.BadParameter("--operation and --resource are required")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    wanted = [
        Acl(kind, name, principal, _read(AclOperation, text, "--operation"), permission, pattern, host or "*")
        for kind, name in map(_resource, resource)
        for text in operation
    ]
    with (
        connected(bootstrap_servers, command_config) as admin,
        changes_reported() as changes,
        changes.change("the rules were created", has_steps=len(wanted) > 1),  # one of several may be refused
    ):
        admin.create_acls(wanted)
    _warn_of_stars(wanted)
    _show(wanted, as_json=as_json)


def _warn_of_stars(rules: Iterable[Acl]) -> None:
    """Warn about rules that look like patterns but are literal."""
    for kind, name in dict.fromkeys((rule.resource_type, rule.resource_name) for rule in rules):
        if kind is ResourceType.TOPIC and "*" in name and name != "*":
            sys.stderr.write(
                f"fencepost: the rule for topic {printable(name)!r} matches no topic: * is literal within a name, and "
                "no topic's name can contain it; for a prefix, give the prefix without * and --prefixed\n"
            )
        elif name.endswith("*") and name != "*":
            sys.stderr.write(
                f"fencepost: the rule for {_word(kind)} {printable(name)!r} matches only this name, with its *; for a "
                "prefix, give the prefix without * and --prefixed\n"
            )


@acls.command()
def delete(
    principal: Annotated[
        str | None, typer.Option(callback=_principal, help="Only rules of this principal, such as User:alice.")
    ] = None,
    operation: Operation = None,
    resource: ResourceOption = None,
    prefixed: Prefixed = False,
    host: Host = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the rules that match all options.

    Status: 0 done; 1 no rule matches, or not done; 2 invalid arguments.

    Example: fencepost acls delete --principal User:alice --resource topic:orders
    """
    if not (principal or operation or resource or host):
        raise typer.BadParameter("one of --principal, --operation, --resource and --host is required")
    wanted = _filters(principal, operation, resource, host, prefixed=prefixed)
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        found = {acl for acl_filter in wanted for acl in admin.describe_acls(acl_filter)}
        if not found:
            refuse("there is no such rule")
        if not dry_run:
            if not yes:
                _show(sorted(found), as_json=False)
            confirmed(f"Delete {counted_noun(len(found), 'rule')}?", yes=yes)
            with changes.change("the rules were deleted", has_steps=len(wanted) > 1):
                found = set(admin.delete_acls(wanted))
    if yes or dry_run or as_json:
        _show(sorted(found), as_json=as_json)
    sys.stderr.write(f"{counted_noun(len(found), 'rule')} {'would be ' if dry_run else ''}deleted\n")
