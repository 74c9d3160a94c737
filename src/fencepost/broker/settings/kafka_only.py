"""Kafka's broker settings that this broker does not have: those without effect here, and those that are rejected.

A `server.properties` of Kafka should be usable. A setting for threads, buffers, replication or the controller quorum is
accepted with a warning. A setting that would change guarantees, authorization or retention is rejected by name and
never ignored. Kafka's default or an empty value is always accepted, so that a file may contain every setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["is_without_effect", "refusal_reason"]

_SINGLE_NODE = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id broker.rack broker.session.timeout.ms
    controlled.shutdown.enable controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.quorum.voters controller.socket.timeout.ms initial.broker.registration.timeout.ms
    inter.broker.listener.name leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms node.id
    num.replica.alter.log.dirs.threads num.replica.fetchers offsets.topic.replication.factor process.roles
    replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
    replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms share.coordinator.state.topic.min.isr
    sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol security.inter.broker.protocol
    share.coordinator.state.topic.replication.factor ssl.endpoint.identification.algorithm transaction.state.log.min.isr
    transaction.state.log.replication.factor
"""
_HOW_IT_RUNS = """
    background.threads early.start.listeners group.consumer.assignor.offload.enable
    group.coordinator.append.linger.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.coordinator.threads log.cleaner.dedupe.buffer.size
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.threads log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
    log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms num.io.threads
    num.network.threads num.recovery.threads.per.data.dir offsets.commit.timeout.ms offsets.load.buffer.size
    offsets.topic.compression.codec offsets.topic.segment.bytes
    queued.max.requests request.timeout.ms server.max.startup.time.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    socket.receive.buffer.bytes socket.send.buffer.bytes transaction.partition.verification.enable
    transaction.state.log.load.buffer.size transaction.state.log.segment.bytes unstable.api.versions.enable
    unstable.feature.versions.enable
"""
_GROUP_BOUNDS = """
    group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.min.assignment.interval.ms
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
"""

_WITHOUT_EFFECT = frozenset(f"{_SINGLE_NODE} {_HOW_IT_RUNS} {_GROUP_BOUNDS}".split())

# Settings of things that exist once here (node, quorum, replica), or not at all; clients that use those get an error.
_WITHOUT_EFFECT_BEGINNINGS = (
    *("controller.performance.", "controller.quorum.", "controller.quota.window.", "metadata.", "internal.metadata."),
    *("follower.", "leader.replication.", "replica.", "unclean.leader.election.interval."),
    *("quota.window.", "replication.quota.window."),
    *("group.share.assign", "group.share.initialize.", "group.share.persister.", "group.share.min."),
    *(f"group.share.max.{name}." for name in "assignment delivery heartbeat partition record session".split()),
    *(f"share.coordinator.{name}." for name in "append cached cold load snapshot write".split()),
    *(f"share.coordinator.state.topic.{name}." for name in "compression prune segment".split()),
    "share.coordinator.threads",
    *("group.streams.assign", "group.streams.initial.", "group.streams.min.", "streams.assign", "streams.initial."),
    # Nobody has warm-up tasks.
    *("group.streams.acceptable.recovery.lag", "group.streams.num.warmup.", "group.streams.task.offset.interval."),
    *(f"group.streams.max.{name}." for name in "assignment heartbeat session standby warmup".split()),
    "kafka.metrics.",
)
_PURGATORY = ".purgatory.purge.interval.requests"
_TIERED = re.compile(r"remote\..*(?<!enable)$")  # of tiered storage, unless it is enabled
_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.")

_VALUES_WITHOUT_EFFECT: Mapping[str, re.Pattern[str]] = {
    "group.coordinator.rebalance.protocols": re.compile(r"(?=.*classic)(?=.*consumer).*"),
    # Reloaded files may have another name, and ssl.enabled.protocols sets the versions.
    "ssl.allow.dn.changes": re.compile("true|false"),
    "ssl.allow.san.changes": re.compile("true|false"),
    "ssl.protocol": re.compile("TLS(v1.[23])?"),
}
# Kafka's defaults of rejected settings, from its ConfigDef.
_ASKS_FOR_NOTHING: Mapping[str, str] = dict(
    line.split()
    for line in """
    delegation.token.expiry.check.interval.ms 3600000
    errors.deadletterqueue.auto.create.topics.enable false
    errors.deadletterqueue.topic.name.prefix dlq.
    group.share.dlq.manager.class.name org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
    sasl.oauthbearer.allow.unverified.audience false
    sasl.oauthbearer.allow.unverified.issuer false
    delegation.token.expiry.time.ms 86400000
    delegation.token.max.lifetime.ms 604800000
    max.connection.creation.rate 2147483647
    principal.builder.class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    remote.log.storage.system.enable false
    sasl.kerberos.kinit.cmd /usr/bin/kinit
    sasl.kerberos.min.time.before.relogin 60000
    sasl.kerberos.principal.to.local.rules DEFAULT
    sasl.kerberos.ticket.renew.jitter 0.05
    sasl.kerberos.ticket.renew.window.factor 0.8
    sasl.login.refresh.buffer.seconds 300
    sasl.login.refresh.min.period.seconds 60
    sasl.login.refresh.window.factor 0.8
    sasl.login.refresh.window.jitter 0.05
    sasl.login.retry.backoff.max.ms 10000
    sasl.login.retry.backoff.ms 100
    sasl.oauthbearer.assertion.algorithm RS256
    sasl.oauthbearer.assertion.claim.exp.seconds 300
    sasl.oauthbearer.assertion.claim.jti.include false
    sasl.oauthbearer.assertion.claim.nbf.seconds 60
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms 10000
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms 100
    sasl.oauthbearer.jwt.retriever.class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    sasl.oauthbearer.jwt.validator.class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    sasl.oauthbearer.scope.claim.name scope
    ssl.keymanager.algorithm SunX509
    ssl.trustmanager.algorithm PKIX
""".strip().splitlines()
)
_REFUSED = (
    (("errors.deadletterqueue.", "group.share.dlq."), "share groups have no dead-letter topics here"),
    (("group.streams.rack.aware.",), "standby tasks are not spread over racks"),
    (("group.streams.topology.description.",), "no Java plugin can be run"),
    (("log.dir",), "the data directory is given with --data-dir"),
    (("ssl.keystore.password", "ssl.truststore.password"), "stores are PEM and have no password; a key has its own"),
    (("ssl.",), "TLS is OpenSSL's, whose parts cannot be replaced"),
    (("sasl.",), "the broker supports PLAIN, SCRAM and OAUTHBEARER"),
    (("security.providers",), "the broker runs no Java"),
    (("principal.builder.class",), "principals are User:name"),
    (("client.quota.", "quota.", "replication.quota."), "no Java class can be run; quotas are set with kafka-configs"),
    (("remote.log.",), "the broker has no tiered storage"),
    (("create.topic.policy.", "alter.config.policy."), "no Java policy can be run"),
    (("delegation.token.",), "the broker has no delegation tokens"),
    (("config.providers",), "the broker does not resolve references in values"),
    (
        ("max.connection.creation.rate",),
        "the broker limits the number of connections (max.connections), not their rate",
    ),
    (("max.connections.per.ip.overrides",), "all addresses have the same limit, max.connections.per.ip"),
    (("group.coordinator.rebalance.protocols",), "the broker always serves the classic and the consumer protocol"),
    (("cordoned.log.dirs",), "the broker has one data directory"),
    (("internal.segment.bytes",), "it is for Kafka's own tests; the setting is log.segment.bytes"),
)


def is_without_effect(key: str, value: str) -> bool:
    """Return true if a setting that only Kafka has can be ignored with a warning."""
    if key in _WITHOUT_EFFECT or key.startswith(_WITHOUT_EFFECT_BEGINNINGS) or key.endswith(_PURGATORY):
        return True
    harmless = _VALUES_WITHOUT_EFFECT.get(key)
    if harmless is not None and harmless.fullmatch(value.strip()):
        return True
    if _TIERED.fullmatch(key):
        return True
    return refusal_reason(key) != "" and value.strip() in ("", _ASKS_FOR_NOTHING.get(key))


def refusal_reason(key: str) -> str:
    """Return the reason why a setting of Kafka is rejected, from the beginning of its name; "" for an unknown name."""
    name = _OF_LISTENER.sub("", key, count=1)
    return next((reason for beginnings, reason in _REFUSED if name.startswith(beginnings)), "")
