"""The asyncio admin client: an AdminCore in the running event loop."""

from __future__ import annotations

from fencepost.arguments import Milliseconds, checked
from fencepost.client.admin.core import AdminCore
from fencepost.client.aio.base import AsyncClient, in_loop
from fencepost.client.configured import configured_by
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.config import AdminConfig


class AsyncAdmin(AsyncClient[AdminCore]):
    """An admin client for asyncio. Create it in a running loop, and use `await close()` or `async with`."""

    _config_type = AdminConfig

    @configured_by(AdminConfig)
    def __init__(self, config: AdminConfig) -> None:
        """Create an admin client for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        runtime = runtime_for(config)
        super().__init__(runtime, AdminCore(Cluster(runtime, config), config.default_api_timeout_ms))

    create_topic = in_loop(AdminCore.create_topic)
    create_topics = in_loop(AdminCore.create_topics)
    delete_topic = in_loop(AdminCore.delete_topic)
    delete_topics = in_loop(AdminCore.delete_topics)
    create_partitions = in_loop(AdminCore.create_partitions)
    list_topics = in_loop(AdminCore.list_topics)
    describe_topics = in_loop(AdminCore.describe_topics)
    describe_cluster = in_loop(AdminCore.describe_cluster)
    partitions_of = in_loop(AdminCore.partitions_of)
    list_offsets = in_loop(AdminCore.list_offsets)
    delete_records = in_loop(AdminCore.delete_records)
    describe_configs = in_loop(AdminCore.describe_configs)
    alter_configs = in_loop(AdminCore.alter_configs)
    config_entries = in_loop(AdminCore.config_entries)
    config_entries_of = in_loop(AdminCore.config_entries_of)
    incremental_alter_configs = in_loop(AdminCore.incremental_alter_configs)
    list_config_resources = in_loop(AdminCore.list_config_resources)
    describe_log_dirs = in_loop(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = in_loop(AdminCore.alter_replica_log_dirs)
    alter_partition_reassignments = in_loop(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = in_loop(AdminCore.list_partition_reassignments)
    describe_metadata_quorum = in_loop(AdminCore.describe_metadata_quorum)
    elect_leaders = in_loop(AdminCore.elect_leaders)
    unregister_broker = in_loop(AdminCore.unregister_broker)
    list_groups = in_loop(AdminCore.list_groups)
    describe_group = in_loop(AdminCore.describe_group)
    describe_groups = in_loop(AdminCore.describe_groups)
    group_offsets = in_loop(AdminCore.group_offsets)
    alter_group_offsets = in_loop(AdminCore.alter_group_offsets)
    reset_group_offsets = in_loop(AdminCore.reset_group_offsets)
    delete_group_offsets = in_loop(AdminCore.delete_group_offsets)
    remove_group_members = in_loop(AdminCore.remove_group_members)
    delete_group = in_loop(AdminCore.delete_group)
    delete_groups = in_loop(AdminCore.delete_groups)
    share_group_offsets = in_loop(AdminCore.share_group_offsets)
    alter_share_group_offsets = in_loop(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = in_loop(AdminCore.delete_share_group_offsets)
    create_acls = in_loop(AdminCore.create_acls)
    describe_acls = in_loop(AdminCore.describe_acls)
    delete_acls = in_loop(AdminCore.delete_acls)
    authorized_operations = in_loop(AdminCore.authorized_operations)
    describe_user_scram_credentials = in_loop(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = in_loop(AdminCore.alter_user_scram_credentials)
    describe_client_quotas = in_loop(AdminCore.describe_client_quotas)
    alter_client_quotas = in_loop(AdminCore.alter_client_quotas)
    create_delegation_token = in_loop(AdminCore.create_delegation_token)
    renew_delegation_token = in_loop(AdminCore.renew_delegation_token)
    expire_delegation_token = in_loop(AdminCore.expire_delegation_token)
    describe_delegation_tokens = in_loop(AdminCore.describe_delegation_tokens)
    init_producer_id = in_loop(AdminCore.init_producer_id)
    end_transaction = in_loop(AdminCore.end_transaction)
    complete = in_loop(AdminCore.complete)
    list_transactions = in_loop(AdminCore.list_transactions)
    describe_transactions = in_loop(AdminCore.describe_transactions)
    describe_producers = in_loop(AdminCore.describe_producers)
    find_hanging_transactions = in_loop(AdminCore.find_hanging_transactions)
    fence_producers = in_loop(AdminCore.fence_producers)
    force_terminate_transaction = in_loop(AdminCore.force_terminate_transaction)
    write_abort_marker = in_loop(AdminCore.write_abort_marker)
    write_commit_marker = in_loop(AdminCore.write_commit_marker)
    features = in_loop(AdminCore.features)
    update_features = in_loop(AdminCore.update_features)
    fences_by_group = in_loop(AdminCore.fences_by_group)
    api_versions = in_loop(AdminCore.api_versions)
    client_instance_id = in_loop(AdminCore.client_instance_id)

    @checked
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Close the connections. It may be called again.

        Args:
            timeout_ms: Maximum wait for `on_error` and `on_statistics`, in ms; None: no limit.
        """
        await self._end(lambda core: core.close(timeout_ms))
