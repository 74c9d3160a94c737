"""TLS and SASL settings of a run's clients, proxy and broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.main import main
from fencepost.errors import ConfigurationError
from fencepost_lab.torture.access import Access, librdkafka_settings
from tests.support.certificates import Authority

LOGIN = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": 'a "secret"'}


def test_tls_ends_at_the_proxy_unless_it_has_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {**LOGIN, "security.protocol": "SASL_SSL", "ssl.truststore.location": str(authority.path)}
    access = Access("kafka:9093", settings)
    plain = access.proxied("127.0.0.1:1").config()
    assert (plain.bootstrap_servers, plain.security_protocol) == ("127.0.0.1:1", "SASL_PLAINTEXT")
    assert plain.credentials() == ("alice", 'a "secret"')
    upstream, clients = access.tls_of_proxy()
    assert upstream is not None and clients is None

    access = Access("kafka:9093", settings, str(authority.issue("proxy").keystore))
    assert access.proxied("127.0.0.1:1").config().security_protocol == "SASL_SSL"
    assert None not in access.tls_of_proxy()


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (Access("kafka:9092", {}, "proxy.pem"), "has no use without TLS"),
        (Access("kafka:9093", {"security.protocol": "SSL"}, "no-such.pem"), "--proxy-certificate no-such.pem: "),
    ],
)
def test_a_certificate_that_is_of_no_use_is_told(access: Access, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        access.tls_of_proxy()


def test_librdkafka_gets_the_same_by_its_own_names(tmp_path: Path) -> None:
    settings = {
        **LOGIN,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.location": "me.pem",
    }
    assert librdkafka_settings(Access("kafka:9093", settings).config()) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": 'a "secret"',
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.endpoint.identification.algorithm": "https",
        "enable.ssl.certificate.verification": True,
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("security.protocol=SASL_PLAINTEXT\nsasl.username=alice\n", "sasl_password"),
        ("security.protocol=SSL\n", "has SASL_PLAINTEXT with PLAIN or SCRAM, not SSL"),
    ],
)
def test_a_properties_file_that_cannot_be_is_told_before_anything_starts(
    lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(lines)
    with pytest.raises(SystemExit) as ended:
        main(["torture", "--start", "fencepost", "--command-config", str(file)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
