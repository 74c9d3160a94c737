"""An identity provider: keys, tokens signed with them, and a token endpoint over HTTP on this machine."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://login.example.com"
AUDIENCE = "kafka"


@dataclass
class Key:
    """A key pair for signatures."""

    name: str
    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def public(self) -> dict[str, Any]:
        """Its half for the world, as an entry of a JWKS."""
        return {**ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True), "kid": self.name, "alg": "ES256"}

    def token(self, user: str | None = "alice", *, lives_s: float = 600, name: str | None = None, **claims: Any) -> str:
        """A signed token. A claim that is None is left out."""
        now_s = time.time()
        all_claims = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now_s),
            "exp": int(now_s + lives_s),
            **claims,
        }
        present_claims = {claim: value for claim, value in all_claims.items() if value is not None}
        encoded: str = jwt.encode(present_claims, self.private, "ES256", {"kid": name or self.name})
        return encoded


def key_set(*keys: Key) -> bytes:
    return json.dumps({"keys": [key.public() for key in keys]}).encode()


@contextmanager
def web(answers: dict[str, bytes], secrets: dict[str, str], key: Key, lives: str = "600") -> Iterator[str]:
    """A server's address. `answers` are served at their paths; POST /token is for who has a secret.

    `lives`: what it says of a token's life, as JSON. The scope that was asked for becomes a claim.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200 if self.path in answers else 404, answers.get(self.path, b""))

        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            scheme, _, pair = self.headers.get("Authorization", "").partition(" ")
            user, _, secret = jwt.utils.base64url_decode(pair.rstrip("=")).decode().partition(":")
            if scheme != "Basic" or secrets.get(user) != secret or form["grant_type"] != ["client_credentials"]:
                self._say(401, json.dumps({"error": "invalid_client", "error_description": "who is that?"}).encode())
                return
            token = key.token(user, scope=form.get("scope", [None])[0])
            self._say(200, f'{{"access_token": "{token}", "expires_in": {lives}}}'.encode())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
