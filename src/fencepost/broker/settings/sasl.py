"""Settings of SASL, including OAUTHBEARER (KIP-255, KIP-768), with Kafka's names and defaults."""

from __future__ import annotations

from typing import Final

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["BEARER_MODULE", "JWKS_URL", "SASL_BROKER_SETTINGS", "SASL_LISTENER_SETTINGS"]

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_VALIDATORS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerValidatorCallbackHandler"
    for name in ("", "secured.")
)

SASL_BROKER_SETTINGS = (
    Setting(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        "PLAIN",
        "Enabled SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    ),
    Setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        "524288",
        "Maximum bytes of a request before authentication.",
        1,
        _I32,
    ),
    Setting("sasl.oauthbearer.clock.skew.seconds", Kind.INT, "30", "Allowed difference of clocks.", 0, _I32),
    Setting("sasl.oauthbearer.expected.audience", Kind.LIST, "", "Of these a token must name one; empty: any will do."),
    Setting("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Required issuer of tokens; none: any."),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, "3600000", "Interval for reloading the keys.", 1, _I32
    ),
    Setting(JWKS_URL, Kind.STRING, None, "Location of the keys of tokens (JWKS): file:, https: or http:."),
    Setting("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "The claim that names the user."),
)
# Settings that Kafka needs to verify tokens, so that its files can be used unchanged.
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
