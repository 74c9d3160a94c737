"""`fencepost configs`: settings of topics, brokers and groups."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from fencepost.arguments import brief_repr, is_node_id, whole_number
from fencepost.cli.cluster_settings import CommandConfig, Servers, connected, pairs_of
from fencepost.cli.names import in_utf8, named, topic_named
from fencepost.cli.output import (
    Json,
    changes_reported,
    command_group,
    print_json,
    print_table,
    refuse,
    report_done,
)
from fencepost.client.admin.configs import BROKER_RESOURCE, GROUP_RESOURCE, LOGGER_RESOURCE, TOPIC_RESOURCE
from fencepost.client.blocking import Admin

__all__ = ["configs"]

configs = command_group("Show and change the settings of topics, brokers and groups.")


class ResourceKind(Enum):
    """Type of a resource that has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    BROKER_LOGGER = "broker-logger"


_RESOURCES: Final = {
    ResourceKind.TOPIC: TOPIC_RESOURCE,
    ResourceKind.BROKER: BROKER_RESOURCE,
    ResourceKind.GROUP: GROUP_RESOURCE,
    ResourceKind.BROKER_LOGGER: LOGGER_RESOURCE,
}
Of = Annotated[ResourceKind, typer.Argument(help="topic, broker, group or broker-logger.")]
Name = Annotated[
    str, typer.Argument(callback=in_utf8, help="Name of the resource; a broker's id, or '' for all brokers.")
]


@configs.command()
def describe(
    kind: Of,
    name: Name,
    every: Annotated[bool, typer.Option("--all", help="Include settings with their default value.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the settings that differ from their default, with the source of each value. Passwords are never shown.

    Example: fencepost configs describe topic orders --all
    """
    _check(kind, name)
    with connected(bootstrap_servers, command_config) as admin:
        _check_broker(admin, kind, name)
        found = admin.config_entries(name, resource_type=_RESOURCES[kind])
    entries = [entry for _, entry in sorted(found.items()) if every or not entry.is_default]
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name,
                    "read_only": entry.is_read_only,
                    "sensitive": entry.is_sensitive,
                }
                for entry in entries
            ]
        )
        return
    rows = [(entry.name, _value(entry.value, entry.is_sensitive), entry.source.name) for entry in entries]
    print_table([("NAME", "VALUE", "SOURCE"), *rows])


def _value(value: str | None, is_sensitive: bool) -> str:
    if is_sensitive:
        return "(hidden)"
    return "(none)" if value is None else value


@configs.command()
def alter(
    kind: Of,
    name: Name,
    put: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set this setting.")] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", callback=named, help="Restore the default."),
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Change settings and leave all others as they are. Either all changes are made, or none.

    Example: fencepost configs alter topic orders --set retention.ms=3600000 --unset cleanup.policy
    """
    _check(kind, name)
    wanted: dict[str, str | None] = {**pairs_of(put, "--set")}
    for setting in unset or ():
        if setting in wanted:
            raise typer.BadParameter(f"{setting} is set and unset", param_hint="--unset")
        wanted[setting] = None
    if not wanted:
        raise typer.BadParameter("--set NAME=VALUE or --unset NAME is required")
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        _check_broker(admin, kind, name)
        if unset and kind in (ResourceKind.TOPIC, ResourceKind.GROUP):  # brokers accept any name here
            known = admin.config_entries(name, resource_type=_RESOURCES[kind])
            unknown = [setting for setting in unset if setting not in known]
            if unknown:
                refuse(f"{kind.value} {name!r} has no setting {', '.join(map(repr, unknown))}; nothing was changed")
        with changes.change(f"the settings of {kind.value} {name!r} were changed"):
            admin.alter_configs(name, wanted, resource_type=_RESOURCES[kind])
    for setting, value in wanted.items():
        if value is None:
            report_done(f"{setting} is back to its default", "unset", as_json=as_json, setting=setting)
        else:
            report_done(f"{setting} is set", "set", as_json=as_json, setting=setting)


def _check(kind: ResourceKind, name: str) -> None:
    """Validate the name for its kind. Raises BadParameter."""
    if kind is ResourceKind.TOPIC:
        topic_named(name)
    if kind is ResourceKind.GROUP:
        named(name)
    if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and name and not is_node_id(whole_number(name)):
        raise typer.BadParameter(f"{brief_repr(name)} is not a broker's id", param_hint="NAME")


def _check_broker(admin: Admin, kind: ResourceKind, name: str) -> None:
    """Exit with status 1 if the broker is not in the cluster, because no other broker can answer for it."""
    if kind not in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) or not name:
        return
    there = sorted(node.id for node in admin.describe_cluster().brokers)
    if int(name) not in there:
        refuse(f"there is no broker {int(name)}; there are: {', '.join(map(str, there))}")
