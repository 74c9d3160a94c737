"""SASL conversations against the examples of their RFCs, and servers that cheat."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from fencepost.client import sasl
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.sasl_login import ClientLogin
from fencepost.config import AdminConfig
from fencepost.errors import AuthenticationError, ConfigurationError, ProduceFailedError
from fencepost.extras import require
from fencepost.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from fencepost.protocol.messages.sasl_handshake import SaslHandshakeResponse
from fencepost.sasl_settings import KerberosIdentity, jaas_options
from fencepost.tls import openssl_name
from tests.unit.client.scripted import OFFERED, ScriptedBroker, World, cut, run

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
KERBEROS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> sasl.Conversation:
    return sasl.scram("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_plain_of_rfc_4616() -> None:
    conversation = sasl.plain("tim", "tanstaaftanstaaf")
    assert next(conversation) == b"\0tim\0tanstaaftanstaaf"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_plain_cannot_carry_nul() -> None:
    with pytest.raises(ConfigurationError):
        next(sasl.plain("a\0b", "c"))


def test_scram_of_rfc_7677() -> None:
    conversation = scram()
    assert next(conversation) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert conversation.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        conversation.send(SERVER_FINAL)


def test_scram_escapes_names() -> None:
    assert next(sasl.scram("SCRAM-SHA-512", "a=b,c", "x", "n")) == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(b"r=rO", b"r=xO"),
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", b"2000000000"),
        SERVER_FIRST.replace(b"4096", b"-1"),
        SERVER_FIRST.replace(b"4096", "\u00b2".encode()),
        SERVER_FIRST.replace(b"4096", b"9" * 5_000),
        SERVER_FIRST.replace(b"s=W22Z", b"s=!!!!"),
        SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="),
        b"m=must,understand,this",
        b"nonsense",
        b"\xff\xfe",
        b"",
    ],
)
def test_scram_refuses_a_bad_challenge(first: bytes) -> None:
    conversation = scram()
    next(conversation)
    with pytest.raises(AuthenticationError):
        conversation.send(first)


@pytest.mark.parametrize(
    ("final", "words"),
    [
        (b"v=" + b"A" * 43 + b"=", "could not prove"),
        (b"v=", "left out"),
        (b"", "cannot read"),
        (b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_scram_wants_the_servers_proof(final: bytes, words: str) -> None:
    conversation = scram()
    next(conversation)
    conversation.send(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=words):
        conversation.send(final)


def test_oauthbearer_of_rfc_7628() -> None:
    """Kafka sends no authorization identity, host or port; an error is acknowledged with one 0x01."""
    conversation = sasl.oauthbearer(
        sasl.OAuthToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", None, {"traceId": "1"})
    )
    assert next(conversation) == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01traceId=1\x01\x01"
    assert conversation.send(b'{"status":"invalid_token","scope":"example_scope"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="status invalid_token, scope example_scope"):
        conversation.send(b"")


def test_oauthbearer_is_content_with_an_empty_answer() -> None:
    conversation = sasl.oauthbearer(sasl.OAuthToken("t"))
    next(conversation)
    with pytest.raises(StopIteration):
        conversation.send(b"")


class Context:
    """A GSS-API context that stands after so many tokens of the server; what it proves begins with "sealed "."""

    def __init__(self, rounds: int) -> None:
        self.heard: list[bytes | None] = []
        self._rounds = rounds

    @property
    def complete(self) -> bool:
        return len(self.heard) > self._rounds

    def step(self, token: bytes | None) -> bytes | None:
        self.heard.append(token)
        return b"token %d" % len(self.heard) if len(self.heard) <= max(self._rounds, 1) else None

    def wrap(self, message: bytes) -> bytes:
        return b"sealed " + message

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"sealed ")


@pytest.mark.parametrize("rounds", [1, 2])
def test_gssapi_of_rfc_4752(rounds: int) -> None:
    """The last token of the context is empty when the server's made it stand; then come the layers, 1 for none."""
    context = Context(rounds)
    conversation = sasl.gssapi(context)
    assert next(conversation) == b"token 1"
    for turn in range(1, rounds):
        assert conversation.send(b"answer") == b"token %d" % (turn + 1)
    assert conversation.send(b"answer") == b""
    assert conversation.send(b"sealed \x07\x00\xff\xff") == b"sealed \x01\x00\x00\x00"
    with pytest.raises(StopIteration):
        conversation.send(b"")
    assert context.heard == [None, *[b"answer"] * rounds]


def test_gssapi_whose_first_token_is_its_last() -> None:
    """Without mutual authentication nothing is heard before the layers."""
    conversation = sasl.gssapi(Context(0))
    assert next(conversation) == b"token 1"
    assert conversation.send(b"sealed \x01\x00\x00\x00") == b"sealed \x01\x00\x00\x00"


@pytest.mark.parametrize(
    ("layers", "words"),
    [(b"sealed \x06\x00\xff\xff", "insists on a security layer"), (b"sealed \x01", "has 1 bytes"), (b"", "0 bytes")],
)
def test_gssapi_takes_no_security_layer(layers: bytes, words: str) -> None:
    conversation = sasl.gssapi(Context(1))
    next(conversation)
    conversation.send(b"answer")
    with pytest.raises(AuthenticationError, match=words):
        conversation.send(layers)


def test_gssapi_of_a_server_that_says_nothing() -> None:
    conversation = sasl.gssapi(Context(1))
    next(conversation)
    with pytest.raises(AuthenticationError, match="ended before the context stood"):
        conversation.send(b"")


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        ({}, KerberosIdentity()),
        (
            {"sasl_kerberos_service_name": "stream", "sasl_kerberos_domain_name": "broker.example"},
            KerberosIdentity(service="stream", host="broker.example"),
        ),
        (
            {"sasl_kerberos_keytab": "/k", "sasl_kerberos_principal": "alice@A"},
            KerberosIdentity("alice@A", "/k"),
        ),
        (
            {
                "sasl_jaas_config": f'{KRB5} required useKeyTab=true storeKey=true keyTab="/k" '
                'principal="alice@A" serviceName="stream";'
            },
            KerberosIdentity("alice@A", "/k", service="stream"),
        ),
        (
            {"sasl_jaas_config": f'{KRB5} required useTicketCache=true ticketCache="/c" doNotPrompt=true;'},
            KerberosIdentity(cache="/c"),
        ),
    ],
)
def test_who_logs_in_by_kerberos(settings: dict[str, Any], identity: KerberosIdentity) -> None:
    config = AdminConfig.make({"bootstrap_servers": "x", **KERBEROS, **settings})
    assert config.kerberos_identity() == identity


def test_kerberos_names_what_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.extras.find_spec", lambda _: None)
    require.cache_clear()
    with pytest.raises(
        ConfigurationError, match=r"fencepost\[kerberos\]' after `apt install .*libkrb5-dev.*krb5-devel"
    ):
        ClientLogin.of(AdminConfig.make({"bootstrap_servers": "x", **KERBEROS}))
    require.cache_clear()


@pytest.mark.parametrize(
    "token",
    [
        sasl.OAuthToken(""),
        sasl.OAuthToken("a b"),
        sasl.OAuthToken("t", None, {"auth": "x"}),
        sasl.OAuthToken("t", None, {"k": "\x01"}),
    ],
)
def test_oauthbearer_refuses_what_it_cannot_send(token: sasl.OAuthToken) -> None:
    with pytest.raises(ConfigurationError):
        next(sasl.oauthbearer(token))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            'a.b.PlainLoginModule required username="al\\"ice" password="p;=w";',
            {"username": 'al"ice', "password": "p;=w"},
        ),
        ("x.ScramLoginModule required username=bob password='it';", {"username": "bob", "password": "it"}),
        ("x.ScramLoginModule required;", {}),
    ],
)
def test_jaas_lines(text: str, options: dict[str, str]) -> None:
    assert jaas_options(text) == options


OIDC = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example.com/token",
    "sasl_oauthbearer_client_id": "alice",
    "sasl_oauthbearer_client_secret": "s3cret",
}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security_protocol": "SASL_SSL"}, "needs sasl_username and sasl_password"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "needs one of sasl_oauth_token_provider, sasl_oauthbearer_token_endpoint_url, .*=azure_imds; set: none$",
        ),
        (
            {**OIDC, "sasl_oauth_token_provider": str},
            "set: sasl_oauth_token_provider, sasl_oauthbearer_token_endpoint_url$",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": str,
                "sasl_oauthbearer_metadata_authentication_type": "azure_imds",
                "sasl_oauthbearer_config": "query=resource=a",
            },
            "set: sasl_oauth_token_provider, sasl_oauthbearer_metadata_authentication_type=azure_imds$",
        ),
        ({**OIDC, "sasl_oauthbearer_client_secret": None}, "client_credentials_client_id and ..._secret"),
        (
            {**OIDC, "sasl_mechanism": "PLAIN"},
            "sasl_oauthbearer_token_endpoint_url has no effect .* has to be OAUTHBEARER",
        ),
        ({**OIDC, "security_protocol": "SSL"}, "token_endpoint_url has no effect .* SASL_SSL or SASL_PLAINTEXT"),
        ({**OIDC, "sasl_oauthbearer_extensions": "a"}, "name=value"),
        (
            {**OIDC, "sasl_oauthbearer_token_endpoint_url": "https://alice:s3cret@login.example.com/token"},
            "^sasl_oauthbearer_token_endpoint_url has no place for a user and a password$",
        ),
        (
            {**OIDC, "sasl_jaas_config": 'x required unsecuredLoginStringClaim_sub="a";'},
            "unsecuredLoginStringClaim_sub",
        ),
        (
            {**OIDC, "sasl_oauthbearer_assertion_jwt_template_file": "jwt"},
            "instead: sasl_oauthbearer_assertion_template_file",
        ),
        ({**OIDC, "sasl_oauthbearer_grant_type": "jwt-bearer"}, "only client_credentials is possible here"),
        ({**OIDC, "sasl_login_callback_handler_class": "com.example.Mine"}, "only org.apache.*LoginCallbackHandler is"),
        ({**OIDC, "sasl_login_class": "com.example.Mine"}, "not possible here; instead: sasl_oauth_token_provider"),
        ({**KERBEROS, "sasl_username": "alice"}, "sasl_username has no effect with sasl_mechanism=GSSAPI"),
        ({**KERBEROS, "sasl_password": "geheim"}, "sasl_password has no effect with sasl_mechanism=GSSAPI"),
        ({**KERBEROS, "sasl_oauth_token_provider": str}, "sasl_oauth_token_provider has no effect"),
        ({**KERBEROS, "sasl_kerberos_service_name": "kafka/broker@A"}, "must be the first part of a principal"),
        ({**KERBEROS, "sasl_mechanism": "PLAIN", "sasl_kerberos_keytab": "a"}, "keytab has no effect .* be GSSAPI"),
        ({"sasl_kerberos_principal": "a"}, "sasl_kerberos_principal has no effect .* SASL_SSL or SASL_PLAINTEXT"),
        ({**KERBEROS, "sasl_kerberos_name": "a"}, "instead: sasl_kerberos_principal"),
        ({**KERBEROS, "sasl_jaas_config": "com.ibm.Krb5LoginModule required;"}, "the options of com.sun"),
        ({**KERBEROS, "sasl_jaas_config": f"{KRB5} required;"}, "useKeyTab=true or useTicketCache=true"),
        ({**KERBEROS, "sasl_jaas_config": f"{KRB5} required useKeyTab=true;"}, "needs keyTab"),
        ({**KERBEROS, "sasl_jaas_config": f"{KRB5} required useFirstPass=true;"}, "useFirstPass is not possible"),
        ({**KERBEROS, "sasl_jaas_config": f"{KRB5} required useTicketCache=true renewTGT=true;"}, "renewTGT=true"),
        ({"sasl_username": "a", "sasl_password": "b"}, "SASL_SSL or SASL_PLAINTEXT"),
        ({"ssl_truststore_location": "ca.pem"}, "has to be SSL or SASL_SSL"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "BKS"}, "one of PEM, PKCS12, JKS"),
        ({"security_protocol": "SSL", "ssl_context": 3}, "ssl.SSLContext"),
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL"),
        ({"ssl_trustore_location": "ca.pem"}, "did you mean 'ssl_truststore_location'"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AdminConfig.make({"bootstrap_servers": "x", **settings})


def test_a_mail_address_in_a_token_endpoints_query_is_no_user() -> None:
    url = "https://login.example.com?resource=alice@example.com"
    config = AdminConfig.make({"bootstrap_servers": "x", **OIDC, "sasl_oauthbearer_token_endpoint_url": url})
    endpoint = config.token_endpoint()
    assert endpoint is not None
    assert endpoint.url == url


def test_secrets_are_not_shown() -> None:
    config = AdminConfig.make(
        {
            "bootstrap_servers": "x",
            "security_protocol": "SASL_SSL",
            "sasl_username": "alice",
            "sasl_password": "geheim",
            "ssl_key_password": "geheim",
            "ssl_keystore_key": "geheim",
        }
    )
    assert "alice" in repr(config)
    assert "geheim" not in repr(config) + repr(ClientLogin("PLAIN", "alice", "geheim")) + repr(
        sasl.OAuthToken("geheim")
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to compare with")
def test_cipher_names_are_openssls() -> None:
    listed = subprocess.run(
        ["openssl", "ciphers", "-stdname", "-tls1_2", "ECDHE:RSA:!PSK:!aNULL:!eNULL"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    pairs = [(line.split()[0], line.split()[2]) for line in listed.splitlines() if "TLSv1.2" in line]
    known = [
        (iana, name) for iana, name in pairs if "CCM" not in iana and "ARIA" not in iana and "CAMELLIA" not in iana
    ]
    assert len(known) >= 8
    for iana, name in known:
        if not iana.startswith(("TLS_AES", "TLS_CHACHA20")):
            assert openssl_name(iana) == name


# --- on a connection ---


def sasl_broker(lifetime_ms: int = 0) -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.offered = {**OFFERED, 17: (0, 1), 36: (0, 2)}
    broker.scripts[17] += [lambda _, __: SaslHandshakeResponse(mechanisms=["PLAIN"])] * 50
    broker.scripts[36] += [lambda _, __: SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)] * 50
    return broker


CONFIG = AdminConfig(bootstrap_servers="broker", request_timeout_ms=1000)
LOGIN = ClientLogin("PLAIN", "alice", "geheim")


def test_a_session_is_renewed_before_it_ends_and_requests_wait_meanwhile() -> None:
    """KIP-368: nothing but SASL may be said while logging in again; the waiting requests keep their order."""
    from fencepost.protocol.messages.end_txn import EndTxnRequest

    async def body(world: World) -> None:
        connection = await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, LOGIN)
        for number in range(100):
            await connection.request(EndTxnRequest(transactional_id=str(number)), 5, timeout_ms=900)
            await world.runtime.sleep_ms(100)
        connection.close()

    broker = run(body, sasl_broker(lifetime_ms=2000))
    assert [request.transactional_id for request in broker.asked(26)] == [str(number) for number in range(100)]
    assert 5 <= len(broker.asked(17)) == len(broker.asked(36)) <= 7
    keys = [key for key, _, _ in broker.requests]
    assert all(keys[at + 1] == 36 for at, key in enumerate(keys) if key == 17)
    assert broker.connections == 1


def test_a_mechanism_that_is_not_offered() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[17].insert(0, lambda _, __: SaslHandshakeResponse(error_code=33, mechanisms=["B", "A"]))
        with pytest.raises(AuthenticationError, match="PLAIN: not offered by the broker, which offers A, B") as raised:
            await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, LOGIN)
        assert raised.value.code == 33

    run(body, sasl_broker())


def test_a_token_is_used_again_while_it_lives() -> None:
    tokens = []

    async def body(world: World) -> None:
        def provider() -> sasl.OAuthToken:
            tokens.append(1)
            return sasl.OAuthToken(f"t{len(tokens)}", world.runtime.wall_ms() + 10_000)

        login = ClientLogin("OAUTHBEARER", token_provider=provider)
        for _ in range(20):
            (await BrokerConnection.connect(world.runtime, "broker", 9092, CONFIG, login)).close()
            await world.runtime.sleep_ms(1000)

    broker = run(body, sasl_broker())
    assert len(broker.asked(36)) == 20
    assert len(tokens) == 3, "each serves for 80 % of its 10 s"


def test_a_password_that_was_changed_ends_the_producer_at_once() -> None:
    """Not after delivery_timeout_ms: the same credentials will not be taken the next time either."""

    async def body(world: World) -> None:
        settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "alice", "sasl_password": "old"}
        producer = world.producer(**settings)
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        refused = SaslAuthenticateResponse(error_code=58, error_message="Invalid credentials")
        world.broker.scripts[36] = [lambda _, __: refused] * 1000
        world.broker.scripts[0].append(cut)
        begun_ms = world.runtime.now_ms()
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed, ProduceFailedError)
        assert isinstance(failed.__cause__, AuthenticationError)
        assert world.runtime.now_ms() - begun_ms < 5000
        with pytest.raises(AuthenticationError, match="Invalid credentials"):
            producer.append("t", b"v")
        await producer.close()

    broker = run(body, sasl_broker())
    assert len(broker.asked(36)) < 10
