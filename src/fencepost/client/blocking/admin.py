"""The blocking admin client: an AdminCore in the I/O thread."""

from __future__ import annotations

from fencepost.arguments import Milliseconds, checked
from fencepost.client.admin.core import AdminCore
from fencepost.client.blocking.base import BlockingClient, blocking, cluster_for
from fencepost.client.configured import configured_by
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.config import AdminConfig


class Admin(BlockingClient[AdminCore]):
    """A blocking admin client. Threads may share it."""

    _config_type = AdminConfig

    @configured_by(AdminConfig)
    def __init__(self, config: AdminConfig) -> None:
        """Create an admin client for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        super().__init__(lambda: AdminCore(cluster_for(config), config.default_api_timeout_ms))

    create_topic = blocking(AdminCore.create_topic)
    create_topics = blocking(AdminCore.create_topics)
    delete_topic = blocking(AdminCore.delete_topic)
    delete_topics = blocking(AdminCore.delete_topics)
    create_partitions = blocking(AdminCore.create_partitions)
    list_topics = blocking(AdminCore.list_topics)
    describe_topics = blocking(AdminCore.describe_topics)
    describe_cluster = blocking(AdminCore.describe_cluster)
    partitions_of = blocking(AdminCore.partitions_of)
    list_offsets = blocking(AdminCore.list_offsets)
    delete_records = blocking(AdminCore.delete_records)
    describe_configs = blocking(AdminCore.describe_configs)
    alter_configs = blocking(AdminCore.alter_configs)
    config_entries = blocking(AdminCore.config_entries)
    config_entries_of = blocking(AdminCore.config_entries_of)
    incremental_alter_configs = blocking(AdminCore.incremental_alter_configs)
    list_config_resources = blocking(AdminCore.list_config_resources)
    describe_log_dirs = blocking(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = blocking(AdminCore.alter_replica_log_dirs)
    alter_partition_reassignments = blocking(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = blocking(AdminCore.list_partition_reassignments)
    describe_metadata_quorum = blocking(AdminCore.describe_metadata_quorum)
    elect_leaders = blocking(AdminCore.elect_leaders)
    unregister_broker = blocking(AdminCore.unregister_broker)
    list_groups = blocking(AdminCore.list_groups)
    describe_group = blocking(AdminCore.describe_group)
    describe_groups = blocking(AdminCore.describe_groups)
    group_offsets = blocking(AdminCore.group_offsets)
    alter_group_offsets = blocking(AdminCore.alter_group_offsets)
    reset_group_offsets = blocking(AdminCore.reset_group_offsets)
    delete_group_offsets = blocking(AdminCore.delete_group_offsets)
    remove_group_members = blocking(AdminCore.remove_group_members)
    delete_group = blocking(AdminCore.delete_group)
    delete_groups = blocking(AdminCore.delete_groups)
    share_group_offsets = blocking(AdminCore.share_group_offsets)
    alter_share_group_offsets = blocking(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AdminCore.delete_share_group_offsets)
    create_acls = blocking(AdminCore.create_acls)
    describe_acls = blocking(AdminCore.describe_acls)
    delete_acls = blocking(AdminCore.delete_acls)
    authorized_operations = blocking(AdminCore.authorized_operations)
    describe_user_scram_credentials = blocking(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AdminCore.alter_user_scram_credentials)
    describe_client_quotas = blocking(AdminCore.describe_client_quotas)
    alter_client_quotas = blocking(AdminCore.alter_client_quotas)
    create_delegation_token = blocking(AdminCore.create_delegation_token)
    renew_delegation_token = blocking(AdminCore.renew_delegation_token)
    expire_delegation_token = blocking(AdminCore.expire_delegation_token)
    describe_delegation_tokens = blocking(AdminCore.describe_delegation_tokens)
    init_producer_id = blocking(AdminCore.init_producer_id)
    end_transaction = blocking(AdminCore.end_transaction)
    complete = blocking(AdminCore.complete)
    list_transactions = blocking(AdminCore.list_transactions)
    describe_transactions = blocking(AdminCore.describe_transactions)
    describe_producers = blocking(AdminCore.describe_producers)
    find_hanging_transactions = blocking(AdminCore.find_hanging_transactions)
    fence_producers = blocking(AdminCore.fence_producers)
    force_terminate_transaction = blocking(AdminCore.force_terminate_transaction)
    write_abort_marker = blocking(AdminCore.write_abort_marker)
    write_commit_marker = blocking(AdminCore.write_commit_marker)
    features = blocking(AdminCore.features)
    update_features = blocking(AdminCore.update_features)
    fences_by_group = blocking(AdminCore.fences_by_group)
    api_versions = blocking(AdminCore.api_versions)
    client_instance_id = blocking(AdminCore.client_instance_id)

    @checked
    def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Close the connections. It may be called again.

        Args:
            timeout_ms: Maximum wait for `on_error` and `on_statistics`, in ms; None: no limit.
        """
        self._end(lambda core: core.close(timeout_ms))
