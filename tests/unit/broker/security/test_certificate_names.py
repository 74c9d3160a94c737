"""Names of certificates, and the users that rules make of them.

What is expected is what Java 17's X500Principal.getName and Apache Kafka 4.3.1's SslPrincipalMapper answered.
"""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import NameOID

from fencepost.broker.security.certificate_names import NameRules, NoRuleApplies, subject_of
from fencepost.broker.settings.setting import InvalidSetting

Row = list[tuple[x509.ObjectIdentifier, str]]
UNKNOWN = x509.ObjectIdentifier("1.3.6.1.4.1.99999.1")
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(rows: list[Row]) -> bytes:
    name = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in row]) for row in rows]
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer, name, KEY.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "Bavaria")],
                [(NameOID.LOCALITY_NAME, "Munich")],
                [(NameOID.ORGANIZATION_NAME, "Example")],
                [(NameOID.ORGANIZATIONAL_UNIT_NAME, "Sales")],
                [(NameOID.COMMON_NAME, "alice")],
            ],
            "CN=alice,OU=Sales,O=Example,L=Munich,ST=Bavaria,C=DE",
        ),
        (
            [[(NameOID.ORGANIZATION_NAME, "Sue, Grabbit and Runn")], [(NameOID.COMMON_NAME, "L. Eagle")]],
            r"CN=L. Eagle,O=Sue\, Grabbit and Runn",
        ),
        ([[(NameOID.COMMON_NAME, ' #a+b="c\\d"<e>;f ')]], r"CN=\ \#a\+b\=\"c\\d\"\<e\>\;f" + "\\ "),
        (
            [
                [(NameOID.COMMON_NAME, "#start")],
                [(NameOID.USER_ID, "u1")],
                [(NameOID.DOMAIN_COMPONENT, "com")],
                [(NameOID.STREET_ADDRESS, "High St 1")],
            ],
            r"STREET=High St 1,DC=com,UID=u1,CN=\#start",
        ),
        (
            [[(NameOID.EMAIL_ADDRESS, "a@example.com")], [(NameOID.COMMON_NAME, "mail")]],
            "CN=mail,1.2.840.113549.1.9.1=#160d61406578616d706c652e636f6d",
        ),
        ([[(NameOID.SERIAL_NUMBER, "12"), (NameOID.COMMON_NAME, "two")]], "2.5.4.5=#13023132+CN=two"),
        ([[(NameOID.COMMON_NAME, "Jürgen Ωμέγα 漢字")]], "CN=Jürgen Ωμέγα 漢字"),
        ([[(NameOID.COMMON_NAME, "   ")]], "CN=" + "\\ " * 3),
        ([[(NameOID.COMMON_NAME, "a\0b")]], r"CN=a\00b"),
        ([[(NameOID.TITLE, "Dr")], [(UNKNOWN, "x")]], "1.3.6.1.4.1.99999.1=#0c0178,2.5.4.12=#0c024472"),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_writes_it(rows: list[Row], name: str) -> None:
    assert subject_of(certificate(rows)) == name


@pytest.mark.parametrize("length", [0, 1, 30, 60])
def test_bytes_that_are_no_certificate(length: int) -> None:
    with pytest.raises(ValueError, match="not a certificate"):
        subject_of(certificate([[(NameOID.COMMON_NAME, "alice")]])[:length])


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=duke", "CN=duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=Duke,OU=JavaSoft,O=Sun,L=LA,ST=CA,C=US",
            "duke@javasoft",
        ),
        ("RULE:^cn=(.*?),ou=.*$/$1/L, RULE:^.*CN=([^,]+).*$/$1/U,DEFAULT", "CN=duke,OU=x", "DUKE"),
        ("RULE:^CN=(.*)$/$1-$2-$12/", "CN=duke", "duke-$2-duke2"),
        ("RULE:(.*)/x$1/", "abc", "xabcx"),
        (r"RULE:^CN=(a)(b)?$/$1\/$2/", "CN=a", "a/"),
        (r"RULE:^CN=(.*)$/\$1 \x/", "CN=duke", "$1 x"),
        ("RULE:^CN=(.*)$/$0/L", "CN=Duke", "cn=duke"),
        ("RULE:duke//,", "duke", ""),
    ],
)
def test_rules_do_what_kafkas_do(rules: str, name: str, user: str) -> None:
    assert NameRules(rules).user(name) == user


def test_a_name_that_no_rule_is_for() -> None:
    with pytest.raises(NoRuleApplies, match="'CN=duke'"):
        NameRules("RULE:^CN=X$/x/, RULE:CN=duk/prefix/").user("CN=duke")


@pytest.mark.parametrize(
    "rules",
    ["", "NONSENSE", "RULE:a/b", "RULE:a/b/LU", "DEFAULT DEFAULT", "RULE:(/x/", "RULE:a/$1/", "RULE:(a)/${x}/"],
)
def test_rules_that_are_none(rules: str) -> None:
    """Of some of these Kafka tells only when somebody wants to log in."""
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        NameRules(rules)
