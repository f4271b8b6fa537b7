"""Who knocks: keys to principals, tenants of provider keys, permissions and bounds."""

from __future__ import annotations

import hmac
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from proxy import auth
from proxy.auth import (
    PASSTHROUGH,
    PERMISSIONS,
    SINGLE_TENANT,
    Doorkeeper,
    Permission,
    Principal,
    hashed,
    new_key,
    presented_keys,
)
from proxy.errors import RequestError
from proxy.settings import Alias, Auth, Key

SECRET = bytes(range(32))
HEADERS = ("Authorization", "authorization", "x-api-key", "X-API-Key", "api-key")
FIRST, SECOND = "sm-first", "sm-second"
# What clients may send as a key: printable, no blanks at its ends or inside.
keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80).filter(
    lambda key: key.lower() != "bearer"
)


def headers(*pairs: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(pairs)


@pytest.fixture
def ours() -> Doorkeeper:
    """Two keys of two tenants."""
    first = Key(name="first", hash=hashed(FIRST), tenant="t1")
    second = Key(name="second", hash=hashed(SECOND), tenant="t2", permissions=("chat",), user="ada", agent="bot")
    return Doorkeeper(Auth(mode="keys", keys=(first, second)), SECRET)


@pytest.fixture(scope="module")
def providers() -> Doorkeeper:
    """Every provider key its own tenant."""
    return Doorkeeper(Auth(tenant="api_key"), SECRET)


def refused(doorkeeper: Doorkeeper, *pairs: tuple[str, str]) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        doorkeeper.admit(headers(*pairs))
    return refusal.value


# ── the key of a request ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "value",
    ["Bearer KEY", "bearer KEY", "BEARER KEY", "BeArEr KEY", "  Bearer   KEY  ", "Bearer\tKEY", "KEY", " KEY "],
)
def test_a_key_is_read_however_the_client_writes_it(name: str, value: str) -> None:
    assert presented_keys(headers((name, value))) == {"KEY"}


@pytest.mark.parametrize("value", ["", "   ", "Bearer", "bearer ", "Bearer \t "])
def test_a_header_without_a_key_presents_none(value: str) -> None:
    assert presented_keys(headers(("Authorization", value), ("x-api-key", ""))) == set()


@pytest.mark.parametrize("value", ["Basic KEY", "Token KEY", "BearerKEY", "Bearer: KEY", "KEY Bearer"])
def test_another_scheme_is_not_taken_for_a_bearer_token(value: str) -> None:
    assert "KEY" not in presented_keys(headers(("Authorization", value)))


@given(keys, st.lists(st.sampled_from(HEADERS), min_size=1, max_size=4), st.booleans())
def test_the_same_key_in_several_headers_is_one_key(key: str, names: list[str], bearer: bool) -> None:
    value = f"Bearer {key}" if bearer else key
    assert presented_keys(headers(*((name, value) for name in names))) == {key}


# ── keys mode ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_key_of_ours_tells_tenant_permissions_and_bounds(ours: Doorkeeper) -> None:
    assert ours.admit(headers(("Authorization", f"Bearer {FIRST}"))) == Principal("t1", PASSTHROUGH, name="first")
    assert ours.admit(headers(("x-api-key", SECOND))) == Principal("t2", frozenset({"chat"}), "ada", "bot", "second")


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([], "no key"),
        ([("Authorization", "Bearer ")], "no key"),
        ([("Authorization", f"Bearer {FIRST}"), ("x-api-key", SECOND)], "more than one key"),
        ([("Authorization", f"Bearer {FIRST}"), ("Authorization", f"Bearer {SECOND}")], "more than one key"),
        ([("Authorization", f"Bearer {FIRST}"), ("x-api-key", "sk-provider")], "more than one key"),
        ([("Authorization", "Bearer sk-provider")], "not one of this server's"),
        ([("Authorization", f"Basic {FIRST}")], "not one of this server's"),
        ([("Authorization", f"Bearer {FIRST} ,{FIRST}")], "not one of this server's"),
        ([("Authorization", f"Bearer {hashed(FIRST)}")], "not one of this server's"),
        ([("Authorization", f"Bearer {FIRST[:-1]}")], "not one of this server's"),
        ([("Authorization", f"Bearer {FIRST.upper()}")], "not one of this server's"),
        ([("Authorization", "Bearer \udce4")], "not one of this server's"),
    ],
)
def test_without_exactly_one_key_of_ours_nobody_gets_in(
    ours: Doorkeeper, pairs: list[tuple[str, str]], why: str
) -> None:
    error = refused(ours, *pairs)
    assert (error.status, error.code, error.type) == (401, "invalid_api_key", "authentication_error")
    assert why in str(error)
    assert not any(part in str(error) for part in (FIRST, SECOND, "sk-provider"))


@given(keys, st.sampled_from(HEADERS))
def test_an_unknown_key_never_falls_into_a_known_tenant(key: str, name: str) -> None:
    known = Key(name="first", hash=hashed(FIRST), tenant="t1")
    doorkeeper = Doorkeeper(Auth(mode="keys", keys=(known,)), SECRET)
    if key != FIRST:
        assert refused(doorkeeper, (name, key)).status == 401


@pytest.mark.parametrize("key", [FIRST, SECOND, "sm-unknown"])
def test_every_known_key_is_compared_in_constant_time_whichever_fits(
    ours: Doorkeeper, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    compared = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return hmac.compare_digest(left, right)

    monkeypatch.setattr(auth, "hmac", type("", (), {"compare_digest": staticmethod(compare)}))
    if key == "sm-unknown":
        refused(ours, ("x-api-key", key))
    else:
        ours.admit(headers(("x-api-key", key)))
    assert [left.hex() for left, _ in compared] == [hashed(one).removeprefix("sha256:") for one in (FIRST, SECOND)]
    assert {right.hex() for _, right in compared} == {hashed(key).removeprefix("sha256:")}


def test_new_keys_are_random_and_fit_a_header() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("sm-") and len(key) == 46 and key.isascii() and not key.split()[1:] for key in made)


# ── passthrough mode ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("pairs", [[], [("Authorization", "Bearer a")], [("Authorization", "a"), ("api-key", "b")]])
def test_with_a_single_tenant_keys_tell_nothing(pairs: list[tuple[str, str]]) -> None:
    assert Doorkeeper(Auth(), SECRET).admit(headers(*pairs)) == Principal(SINGLE_TENANT)


@given(keys, st.sampled_from(HEADERS), st.booleans())
def test_a_provider_key_is_one_tenant_wherever_it_stands(key: str, name: str, bearer: bool) -> None:
    doorkeeper = Doorkeeper(Auth(tenant="api_key"), SECRET)
    admitted = doorkeeper.admit(headers((name, f"Bearer {key}" if bearer else key)))
    assert admitted == Principal(doorkeeper.tenant_of(key))
    assert not admitted.may("admin")
    assert not admitted.may("shared:write")


@given(keys, keys)
def test_two_provider_keys_are_two_tenants_and_together_none(one: str, other: str) -> None:
    doorkeeper = Doorkeeper(Auth(tenant="api_key"), SECRET)
    assert (doorkeeper.tenant_of(one) == doorkeeper.tenant_of(other)) == (one == other)
    if one != other:
        assert doorkeeper.admit(headers(("Authorization", f"Bearer {one}"), ("x-api-key", other))).tenant is None


def test_no_provider_key_is_no_tenant(providers: Doorkeeper) -> None:
    assert providers.admit(headers()).tenant is None
    assert providers.admit(headers(("Authorization", "Bearer "))).tenant is None


def test_a_tenant_hangs_on_the_key_and_the_installations_secret(providers: Doorkeeper) -> None:
    again = Doorkeeper(Auth(tenant="api_key"), SECRET)
    elsewhere = Doorkeeper(Auth(tenant="api_key"), SECRET[::-1])
    assert providers.tenant_of("sk-1") == again.tenant_of("sk-1") != elsewhere.tenant_of("sk-1")
    assert providers.tenant_of("sk-1").startswith("key-")


def test_an_alias_keeps_a_rotated_keys_tenant(providers: Doorkeeper) -> None:
    old, new, other = (providers.tenant_of(key) for key in ("sk-old", "sk-new", "sk-other"))
    aliased = Doorkeeper(Auth(tenant="api_key", aliases=(Alias(tenant=new, keeps=old),)), SECRET)
    assert [aliased.tenant_of(key) for key in ("sk-old", "sk-new", "sk-other")] == [old, old, other]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_key_rotated_again_and_again_keeps_the_first_tenant(providers: Doorkeeper, order: tuple[int, ...]) -> None:
    rotated = ["sk-1", "sk-2", "sk-3", "sk-4"]
    tenants = [providers.tenant_of(key) for key in rotated]
    steps = [Alias(tenant=new, keeps=old) for old, new in itertools.pairwise(tenants)]
    doorkeeper = Doorkeeper(Auth(tenant="api_key", aliases=tuple(steps[step] for step in order)), SECRET)
    assert {doorkeeper.tenant_of(key) for key in rotated} == {tenants[0]}


def test_aliases_that_go_in_a_circle_come_to_an_end() -> None:
    circle = (Alias(tenant="a", keeps="b"), Alias(tenant="b", keeps="a"), Alias(tenant="c", keeps="c"))
    Doorkeeper(Auth(tenant="api_key", aliases=circle), SECRET)


# ── what a principal may do ────────────────────────────────────────────────────────────────────────────────────────
@given(st.frozensets(st.sampled_from(PERMISSIONS)), st.sampled_from(PERMISSIONS))
def test_a_permission_is_required_to_the_word_and_admin_has_all(
    held: frozenset[Permission], wanted: Permission
) -> None:
    principal = Principal("t", held)
    if wanted in held or "admin" in held:
        principal.require(wanted)
        assert principal.may(wanted)
        return
    with pytest.raises(RequestError, match=repr(wanted)) as refusal:
        principal.require(wanted)
    assert (refusal.value.status, refusal.value.code) == (403, "permission_denied")


names = st.sampled_from(["ada", "Ada", "bob", "*", "ada ", "default"])


@given(st.none() | names, st.none() | names, names, names)
def test_bounds_let_through_exactly_what_the_key_is_bound_to(
    user: str | None, agent: str | None, asked_user: str, asked_agent: str
) -> None:
    principal = Principal("t", frozenset({"admin"}), user, agent)
    foreign = [
        f"X-Memory-{part}"
        for part, bound, asked in (("User", user, asked_user), ("Agent", agent, asked_agent))
        if bound not in (None, asked)
    ]
    if not foreign:
        principal.check_bounds(asked_user, asked_agent)
        return
    with pytest.raises(RequestError) as refusal:
        principal.check_bounds(asked_user, asked_agent)
    error = refusal.value
    assert (error.status, error.code, error.param) == (403, "foreign_scope", foreign[0])
