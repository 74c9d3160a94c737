"""Settings of SASL, those of OAUTHBEARER among them (KIP-255, KIP-768): Kafka's names and defaults."""

from __future__ import annotations

from typing import Final

from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["BEARER_MODULE", "JWKS_URL", "SASL_BROKER_SETTINGS", "SASL_LISTENER_SETTINGS"]

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_VALIDATORS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerValidatorCallbackHandler"
    for name in ("", "secured.")
)
_I32 = 2**31 - 1

SASL_BROKER_SETTINGS = (
    Setting(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        "PLAIN",
        "Mechanisms of authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    ),
    Setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        "524288",
        "Most bytes that are taken from a client before it has authenticated.",
        1,
        _I32,
    ),
    Setting("sasl.oauthbearer.clock.skew.seconds", Kind.INT, "30", "How far clocks may be apart.", 0, _I32),
    Setting("sasl.oauthbearer.expected.audience", Kind.LIST, "", "Of these a token must name one; empty: any will do."),
    Setting("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Who must have issued a token; none: anybody."),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, "3600000", "How often the keys are read again.", 1, _I32
    ),
    Setting(JWKS_URL, Kind.STRING, None, "Where the keys are that sign tokens (JWKS): file:, https: or http:."),
    Setting("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "The claim that names the user."),
)
# What Kafka needs to check tokens, so that its files can be given as they are.
SASL_LISTENER_SETTINGS = {
    "oauthbearer.sasl.jaas.config": Setting(
        "oauthbearer.sasl.jaas.config", Kind.STRING, "", f"{BEARER_MODULE} required; and no more."
    ),
    "oauthbearer.sasl.server.callback.handler.class": Setting(
        "oauthbearer.sasl.server.callback.handler.class",
        Kind.STRING,
        "",
        "Kafka's own, which does what is done here.",
        choices=("", *_VALIDATORS),
    ),
}
