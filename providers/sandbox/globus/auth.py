"""Globus Auth, as far as a confidential application uses it: consent, tokens, refresh, revocation."""

import base64
import json
import re
import secrets
import time
from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers.sandbox.globus.answer import Answer, Request, auth_refusal, ok, redirect
from providers.sandbox.globus.spec import AUTH_SERVER, COMPUTE_SCOPE, COMPUTE_SERVER
from providers.sandbox.globus.state import State, digest

CODE_TTL_S = 60.0
ACCESS_TTL_S = 172_800.0
REFRESH_TTL_S = 180 * 86_400.0
_OPENID = frozenset({"openid", "profile", "email"})

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Stand-in of Globus Auth</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto}}
label{{display:block}}
button{{font:inherit;padding:.4rem 1rem;margin-right:.5rem}}</style>
<h1>{name} would like to</h1><form method="post" action="/v2/oauth2/consent">
<input type="hidden" name="request" value="{request}">{scopes}
<p><label>as <select name="identity">{people}</select></label></p>
<p><button name="decision" value="allow">Allow</button>
<button name="decision" value="deny">Deny</button></p>
<p><small>This page stands in for auth.globus.org on this machine; nobody is
asked for a password.</small></p></form>"""


def server_of(scope: str) -> str:
    """Return the resource server that a scope belongs to."""
    if scope in _OPENID:
        return AUTH_SERVER
    if scope == COMPUTE_SCOPE:
        return COMPUTE_SERVER
    return scope.split(":")[4] if scope.startswith("urn:globus:auth:scope:") else "unknown"


def roots(scopes: str) -> list[str]:
    """Return the top-level scopes of a request, without `offline_access` and dependencies in brackets."""
    found, depth, word = [], 0, ""
    for letter in scopes + " ":
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == " " and depth == 0:
            if word and word != "offline_access":
                found.append(word.lstrip("*"))
            word = ""
        elif depth == 0:
            word += letter
    return found


def dependencies(scopes: str) -> list[str]:
    """Return the scopes in brackets: consents that one service may use at another."""
    return [word.lstrip("*") for group in re.findall(r"\[([^\]]*)\]", scopes) for word in group.split()]


class Auth:
    """The routes of Globus Auth over the stand-in's state."""

    def __init__(self, state: State, issuer: str) -> None:
        self.state = state
        self.issuer = issuer
        self._key = self._kept_key()

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        routes = {
            ("GET", "/.well-known/openid-configuration"): self._configuration,
            ("GET", "/jwk.json"): self._keys,
            ("GET", "/v2/oauth2/authorize"): self._authorize,
            ("POST", "/v2/oauth2/consent"): self._consent,
            ("POST", "/v2/oauth2/token"): self._token,
            ("POST", "/v2/oauth2/token/introspect"): self._introspect,
            ("POST", "/v2/oauth2/token/revoke"): self._revoke,
            ("GET", "/v2/oauth2/userinfo"): self._userinfo,
        }
        route = routes.get((request.method, request.path))
        return route(request) if route else auth_refusal(404, "not_found", request.path)

    # --- what OpenID Connect publishes ------------------------------------------------------------

    def _kept_key(self) -> rsa.RSAPrivateKey:
        kept = self.state.get("key", "1")
        if kept is None:
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem = made.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            self.state.put("key", "1", {"pem": pem.decode()})
            return made
        key = serialization.load_pem_private_key(kept["pem"].encode(), None)
        assert isinstance(key, rsa.RSAPrivateKey)  # noqa: S101  # we wrote it
        return key

    def _configuration(self, request: Request) -> Answer:
        del request
        base = f"{self.issuer}/v2/oauth2"
        return ok(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "userinfo_endpoint": f"{base}/userinfo",
                "revocation_endpoint": f"{base}/token/revoke",
                "jwks_uri": f"{self.issuer}/jwk.json",
                "id_token_signing_alg_values_supported": ["RS512"],
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
            }
        )

    def _keys(self, request: Request) -> Answer:
        del request
        numbers = self._key.public_key().public_numbers()
        return ok(
            {
                "keys": [
                    {
                        "kty": "RSA",
                        "alg": "RS512",
                        "use": "sig",
                        "kid": "1",
                        "n": _number(numbers.n),
                        "e": _number(numbers.e),
                    }
                ]
            }
        )

    # --- consent ----------------------------------------------------------------------------------

    def _authorize(self, request: Request) -> Answer:
        query = dict(request.query)
        application = self.state.get("application", query.get("client_id", ""))
        if application is None or query.get("redirect_uri") not in application["redirect_uris"]:
            return auth_refusal(400, "invalid_request", "unknown client or redirect_uri")
        asked = roots(query.get("scope", ""))
        scopes = "".join(
            f'<label><input type="checkbox" name="scope" value="{escape(s)}" checked> {escape(s)}</label>'
            for s in asked
        )
        people = "".join(
            f'<option value="{escape(p["sub"])}">{escape(p["username"])}</option>'
            for p in self.state.every("person")
        )
        page = _PAGE.format(
            name=escape(application["name"]), request=escape(json.dumps(query)), scopes=scopes, people=people
        )
        return Answer(200, page.encode(), "text/html; charset=utf-8")

    def _consent(self, request: Request) -> Answer:
        form = request.form
        query = json.loads(form["request"])
        application = self.state.get("application", query["client_id"])
        if application is None or query.get("redirect_uri") not in application["redirect_uris"]:
            return auth_refusal(400, "invalid_request", "unknown client or redirect_uri")
        back, state = query["redirect_uri"], query.get("state", "")
        if form.get("decision") != "allow":
            return redirect(f"{back}?" + urlencode({"error": "access_denied", "state": state}))
        doc = {
            "sub": form["identity"],
            "client": query["client_id"],
            "redirect_uri": back,
            "scopes": [
                scope for scope in roots(query.get("scope", "")) if scope in request.form_lists["scope"]
            ],
            "offline": query.get("access_type") == "offline",
        }
        self._remember_consents(doc["sub"], doc["client"], dependencies(query.get("scope", "")))
        code = secrets.token_urlsafe(24)
        self.state.run(
            "INSERT INTO code VALUES (?, ?, ?, 0)", digest(code), json.dumps(doc), time.time() + CODE_TTL_S
        )
        return redirect(f"{back}?" + urlencode({"code": code, "state": state}))

    def _remember_consents(self, sub: str, client: str, scopes: Sequence[str]) -> None:
        key = f"{sub}/{client}"
        kept = (self.state.get("consent", key) or {"scopes": []})["scopes"]
        self.state.put("consent", key, {"scopes": sorted({*kept, *scopes})})

    # --- tokens -----------------------------------------------------------------------------------

    def _client(self, request: Request) -> str | None:
        name, secret = request.basic or (
            request.form.get("client_id", ""),
            request.form.get("client_secret", ""),
        )
        known = self.state.get("application", name)
        return name if known is not None and secrets.compare_digest(known["secret"], digest(secret)) else None

    def _token(self, request: Request) -> Answer:
        client = self._client(request)
        if client is None:
            return auth_refusal(401, "invalid_client", "client authentication failed")
        form, grant = request.form, request.form.get("grant_type")
        if grant == "authorization_code":
            return self._from_code(client, form)
        if grant == "refresh_token":
            return self._from_refresh(client, form.get("refresh_token", ""))
        if grant == "client_credentials":
            return ok(self._grant(client, client, roots(form.get("scope", "")), offline=False))
        return auth_refusal(400, "unsupported_grant_type", str(grant))

    def _from_code(self, client: str, form: dict[str, str]) -> Answer:
        key = digest(form.get("code", ""))
        used = self.state.changed(
            "UPDATE code SET used = 1 WHERE digest = ? AND NOT used AND expires_at > ?", key, time.time()
        )
        if not used:
            return auth_refusal(400, "invalid_grant", "the code is unknown, used or expired")
        doc = json.loads(self.state.run("SELECT doc FROM code WHERE digest = ?", key)[0]["doc"])
        if doc["client"] != client or doc["redirect_uri"] != form.get("redirect_uri"):
            return auth_refusal(400, "invalid_grant", "the code was made for another application")
        return ok(self._grant(doc["sub"], client, doc["scopes"], offline=doc["offline"]))

    def _from_refresh(self, client: str, secret: str) -> Answer:
        row = self.state.token(secret, kind="refresh")
        if row is None or row["client"] != client:
            return auth_refusal(400, "invalid_grant", "the refresh token is not good any more")
        made = self._mint(row["sub"], client, row["scope"].split(), row["server"], offline=False)
        made["refresh_token"] = secret
        if self.state.setting("rotates_refresh", 0):
            self.state.revoke(secret, client=client)
            made["refresh_token"] = self._refresh(row["sub"], client, row["scope"], row["server"])
        return ok(made | {"other_tokens": []})

    def _refresh(self, sub: str, client: str, scope: str, server: str) -> str:
        return self.state.mint(
            "refresh", sub=sub, client=client, scope=scope, server=server, ttl_s=REFRESH_TTL_S
        )

    def _mint(
        self, sub: str, client: str, scopes: Sequence[str], server: str, *, offline: bool
    ) -> dict[str, Any]:
        ttl_s, scope = self.state.setting("access_ttl_s", ACCESS_TTL_S), " ".join(scopes)
        secret = self.state.mint("access", sub=sub, client=client, scope=scope, server=server, ttl_s=ttl_s)
        made: dict[str, Any] = {
            "access_token": secret,
            "scope": scope,
            "expires_in": int(ttl_s),
            "token_type": "Bearer",
            "resource_server": server,
        }
        if offline:
            made["refresh_token"] = self._refresh(sub, client, scope, server)
        return made

    def _grant(self, sub: str, client: str, scopes: Sequence[str], *, offline: bool) -> dict[str, Any]:
        """Return one token set per resource server: the first at the top, the rest in `other_tokens`."""
        by_server: dict[str, list[str]] = {}
        for scope in scopes:
            by_server.setdefault(server_of(scope), []).append(scope)
        sets = [
            self._mint(sub, client, own, server, offline=offline)
            for server, own in sorted(by_server.items(), key=lambda pair: pair[0] != AUTH_SERVER)
        ]
        if not sets:
            sets = [self._mint(sub, client, (), AUTH_SERVER, offline=False)]
        made = {**sets[0], "other_tokens": sets[1:]}
        if "openid" in scopes:
            made["id_token"] = self._id_token(sub, client)
        return made

    def _id_token(self, sub: str, client: str) -> str:
        now = int(time.time())
        claims = {**self._about(sub), "aud": client, "iss": self.issuer, "iat": now, "exp": now + 3600}
        return jwt.encode(claims, self._key, algorithm="RS512", headers={"kid": "1"})

    def _about(self, sub: str) -> dict[str, Any]:
        person = self.state.get("person", sub) or {"username": f"{sub}@clients.auth.globus.org", "name": sub}
        return {
            "sub": sub,
            "preferred_username": person["username"],
            "name": person["name"],
            "email": person.get("email") or None,
        }

    def _introspect(self, request: Request) -> Answer:
        if self._client(request) is None:
            return auth_refusal(401, "invalid_client", "client authentication failed")
        secret = request.form.get("token", "")
        row = self.state.token(secret, kind="access") or self.state.token(secret, kind="refresh")
        if row is None:
            return ok({"active": False})
        about = self._about(row["sub"])
        return ok(
            {
                "active": True,
                "scope": row["scope"],
                "sub": row["sub"],
                "client_id": row["client"],
                "username": about["preferred_username"],
                "name": about["name"],
                "email": about["email"],
                "exp": int(row["expires_at"]),
                "iat": int(row["issued_at"]),
                "iss": self.issuer,
                "aud": [row["server"], row["client"]],
                "token_type": "Bearer",
            }
        )

    def _revoke(self, request: Request) -> Answer:
        client = self._client(request)
        if client is None:
            return auth_refusal(401, "invalid_client", "client authentication failed")
        self.state.revoke(request.form.get("token", ""), client=client)
        return ok({"active": False})

    def _userinfo(self, request: Request) -> Answer:
        row = self.state.token(request.bearer, kind="access")
        if row is None:
            return auth_refusal(401, "unauthorized", "the token is not good")
        about = self._about(row["sub"])
        return ok(about | {"identity_set": [about]})


def _number(value: int) -> str:
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
