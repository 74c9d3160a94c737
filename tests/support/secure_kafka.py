"""An Apache Kafka with a listener of every security protocol: TLS, mutual TLS, SASL with and without TLS."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

from tests.support.apache_kafka import ApacheKafka, Setting
from tests.support.certificates import Authority

USER, PASSWORD = "alice", 'pass=word,"ü'
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASLTLS": "SASL_SSL",
    "SASLTEXT": "SASL_PLAINTEXT",
}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SESSION_MS = 3_000  # on SASLTEXT, where sessions end soon


def secure_kafka(folder: Path, authority: Authority) -> ApacheKafka:
    """Not started. Certificates are of `authority`; broker-side keys are written into `folder`."""
    folder.mkdir(exist_ok=True)
    truststore = str(authority.path)
    properties: dict[str, Setting] = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": truststore,
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    identities = {
        "tls": authority.issue("broker"),
        "expired": authority.issue("expired", valid_days=-2),
        "elsewhere": authority.issue("elsewhere", hosts=("kafka.example",)),
    }
    for listener in ("tls", "mutual", "sasltls", "expired", "elsewhere"):
        keystore = identities.get(listener, identities["tls"]).keystore
        properties[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        properties[f"listener.name.{listener}.ssl.keystore.location"] = str(keystore)
    quoted = PASSWORD.replace('"', '\\\\"')  # once for the JAAS line, once for the properties file
    for listener in ("sasltls", "sasltext"):
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.plain.sasl.jaas.config"] = f'{PLAIN_MODULE} required user_{USER}="{_escaped(quoted)}";'
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
        properties[f"{prefix}.oauthbearer.sasl.jaas.config"] = (
            f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";'
        )
    for mechanism in ("plain", "scram-sha-256", "oauthbearer"):
        properties[f"listener.name.sasltext.{mechanism}.connections.max.reauth.ms"] = SESSION_MS
    scram = [f"{mechanism}=[name={USER},password=secret]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    arguments = [word for credential in scram for word in ("--add-scram", credential)]
    return ApacheKafka(properties, listeners=LISTENERS, format_arguments=arguments)


def _escaped(text: str) -> str:
    return "".join(character if character.isascii() else f"\\u{ord(character):04x}" for character in text)


def unsecured_token(subject: str = "alice", lifetime_s: int = 3600) -> tuple[str, int]:
    """A JWT without signature, which Kafka takes out of the box, and when it expires (epoch, ms)."""
    now = int(time.time())
    parts = [{"alg": "none"}, {"sub": subject, "iat": now, "exp": now + lifetime_s}]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{text}.", (now + lifetime_s) * 1000
