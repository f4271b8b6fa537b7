"""The models of config.yaml: every key with its type, default, bounds and description, in the file's own order.

Frozen, and strict about unknown keys. The reference page of the settings is made from this module. Settings that a
later version brings are refused here with "not supported yet"; `proxy.config` reads and merges the files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import time, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StrictBool,
    field_validator,
    model_validator,
)

from proxy.local_zone import LocalZone
from proxy.scope import check_part
from proxy.types import MemoryType

LATER = "not supported yet"
API_DEADLINE_MS = 400
"""Default of `recall.deadline_ms` where each recall asks an embedding API."""
_WITHOUT_ADDRESS = frozenset({"custom_openai", "hosted_vllm", "litellm_proxy", "llamafile", "lm_studio", "openai_like"})
"""Providers that are somebody's own server; litellm would send their keys to OpenAI, or to this very port."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_boolean(value: object) -> object:
    # pydantic reads true as 1; `port: true` is a slip, not port 1.
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]
Real = Annotated[float, BeforeValidator(_no_boolean)]


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http:// or https:// URL without query, e.g. https://api.openai.com/v1")
    return url.rstrip("/")


def _read(section: object, name: str) -> object:
    """A value of a section that may not be checked yet."""
    return section.get(name) if isinstance(section, dict) else getattr(section, name, None)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Server(_Section):
    """Where the proxy listens."""

    host: str = Field("127.0.0.1", description="Address to listen on; a loopback one in passthrough mode.")
    port: Whole = Field(8080, ge=0, le=65535, description="TCP port; 0 lets the system choose a free one.")
    max_body_mb: Whole = Field(64, ge=1, description="Largest request body in MiB; a larger one is answered 413.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Host names, besides the loopback ones, under which the memory endpoints may be called."
    )


class Upstream(_Section):
    """Where calls go whose model name is not under `models`."""

    base_url: str = Field("https://api.openai.com/v1", description="Provider for OpenAI's dialects, with its /v1.")
    anthropic_base_url: str = Field(
        "https://api.anthropic.com", description="Provider for /v1/messages, without a path of its own."
    )
    api_key: SecretStr | None = Field(
        None, min_length=1, description="Key sent upstream; null sends the client's own key on."
    )

    @field_validator("base_url", "anthropic_base_url")
    @classmethod
    def _http_url(cls, url: str) -> str:
        return _checked_url(url)


class Model(_Section):
    """A model name that clients use, and where its calls go. A `*` stands for any text, and is carried over."""

    name: str = Field(
        min_length=1, max_length=256, description="The name clients send; it may hold one *. Exact names come first."
    )
    litellm: str = Field(
        min_length=1,
        max_length=256,
        description="Where its calls go, as litellm names it: provider/model. It holds a * where `name` does.",
    )
    api_base: str | None = Field(None, description="The provider's base URL; null takes the one that litellm knows.")
    api_key: SecretStr | None = Field(
        None, min_length=1, description="Key sent to the provider; null sends the client's own key on."
    )
    wire: Literal["auto", "litellm"] = Field(
        "auto",
        description="auto: the bytes go as they came where the provider speaks the client's dialect. litellm: always "
        "translated.",
    )
    system_role: Literal["system", "none"] = Field(
        "system", description="none: the model takes no system message; memory goes to the first user message."
    )

    @field_validator("api_base")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        return url if url is None else _checked_url(url)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        provider, slash, model = self.litellm.partition("/")
        if not (provider and slash and model) or "*" in provider:
            raise ValueError(f"litellm: {self.litellm!r} names no provider; write provider/model, e.g. openai/gpt-4o")
        if self.api_base is None and provider in _WITHOUT_ADDRESS:
            raise ValueError(f"{provider} has no address of its own: set api_base, e.g. http://127.0.0.1:8000/v1")
        if self.name.count("*") > 1 or self.litellm.count("*") > 1:
            raise ValueError("one * is the most that a name may hold; write an entry for each part")
        if ("*" in self.name) != ("*" in self.litellm):
            missing = "litellm" if "*" in self.name else "name"
            raise ValueError(f"the * is carried over, so `{missing}` needs one too; or leave it out of both")
        return self


class Key(_Section):
    """One key of our own; `sidemirror key create` prints it once, with this entry."""

    name: str = Field(min_length=1, max_length=128, description="For logs and error messages.")
    hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$", description="The key's hash, as `key create` prints it.")
    permissions: tuple[Literal["chat", "memory:read", "memory:write", "shared:write", "admin"], ...] = Field(
        ("chat", "memory:read", "memory:write"),
        description="What the key may do: chat, memory:read, memory:write, shared:write; admin may all.",
    )
    tenant: str = Field("default", min_length=1, max_length=256, description="Whose memories it reaches at all.")
    user: str | None = Field(None, min_length=1, max_length=256, description="The only user it may act for.")
    agent: str | None = Field(None, min_length=1, max_length=256, description="The only agent it may act as.")

    @field_validator("tenant", "user", "agent")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        return value if value is None else check_part("this", value)


class Alias(_Section):
    """A rotated provider key keeps its tenant; `sidemirror key tenant` prints the tenant of a key."""

    tenant: str = Field(min_length=1, max_length=256, description="The tenant that the new key would be.")
    keeps: str = Field(min_length=1, max_length=256, description="The tenant whose memories it reaches instead.")


class Auth(_Section):
    """Who may call."""

    mode: Literal["passthrough", "keys"] = Field(
        "passthrough",
        description="passthrough: the client's key goes upstream. keys: the client's key must be one of `keys`, and "
        "the provider's comes from `upstream.api_key` or `models`.",
    )
    tenant: Literal["single", "api_key"] = Field(
        "single",
        description="passthrough mode: single makes all callers one tenant (loopback only); api_key makes every "
        "provider key a tenant of its own.",
    )
    keys: tuple[Key, ...] = Field((), description="Keys of our own, hashed, for keys mode.")
    aliases: tuple[Alias, ...] = Field((), description="With `tenant: api_key`: tenants that rotated keys keep.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode == "keys" and not self.keys:
            raise ValueError("mode is keys, but `keys` is empty: nobody could call; run 'sidemirror key create'")
        if self.mode == "keys" and self.tenant == "api_key":
            raise ValueError("in keys mode a key's own `tenant` counts; leave `auth.tenant` at single")
        if self.mode == "passthrough" and self.keys:
            raise ValueError("`keys` are of no use in passthrough mode; set mode: keys, or leave them out")
        if self.aliases and self.tenant != "api_key":
            raise ValueError("`aliases` need tenant: api_key")
        for what, values in (("name", [key.name for key in self.keys]), ("hash", [key.hash for key in self.keys])):
            if len(set(values)) < len(values):
                raise ValueError(f"two keys have the same {what}")
        if len({alias.tenant for alias in self.aliases}) < len(self.aliases):
            raise ValueError("two aliases are of the same tenant; keep one of them")
        return self

    @property
    def is_open(self) -> bool:
        """Whether whoever reaches the port reads and writes the same memories."""
        return self.mode == "passthrough" and self.tenant == "single"


class Identity(_Section):
    """Who is meant when a request does not say."""

    default_user: str | None = Field(
        "local",
        min_length=1,
        max_length=256,
        description="User of requests that name none (passthrough mode only); null leaves those without memory.",
    )
    timezone: str = Field(
        "local", description="Time zone for dates in memories and daily schedules: local, or an IANA name."
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        if name != "local":
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError(
                    f"{name!r} is not a time zone known to this system; use local, or an IANA name such as "
                    "Asia/Shanghai (a bare container may lack the tzdata package)"
                ) from error
        return name

    @property
    def zone(self) -> tzinfo:
        """The zone; ``local`` is the system's own."""
        return LocalZone() if self.timezone == "local" else ZoneInfo(self.timezone)


class Redis(_Section):
    """Working memory's home."""

    # A URL may carry a password: kept out of reprs and so out of logs.
    url: str = Field("embedded", repr=False, description="embedded, or a redis://, rediss:// or unix:// URL.")

    @field_validator("url")
    @classmethod
    def _redis_url(cls, url: str) -> str:
        if url != "embedded" and not url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be embedded, or a redis://, rediss:// or unix:// URL")
        return url


class Store(_Section):
    """The long-term store."""

    url: str = Field("sqlite", repr=False, description="sqlite: the file sidemirror.db in data_dir.")

    @field_validator("url")
    @classmethod
    def _sqlite_only(cls, url: str) -> str:
        if url.startswith(("postgresql:", "postgres:", "postgresql+")):
            raise ValueError(f"a Postgres store is {LATER}; use sqlite")
        if url != "sqlite":
            raise ValueError("must be sqlite (the file is data_dir/sidemirror.db)")
        return url


class Embedding(_Section):
    """How text becomes vectors. After a change, what is stored is embedded anew in the background."""

    provider: Literal["model2vec", "litellm"] = Field(
        "model2vec", description="model2vec: a static model on this machine. litellm: any embedding API it knows."
    )
    model: str = Field(
        "builtin",
        min_length=1,
        max_length=256,
        description="model2vec: builtin, the path of a model folder, or a hub id. litellm: provider/model, e.g. "
        "openai/text-embedding-3-small.",
    )
    api_base: str | None = Field(None, description="litellm: the API's base URL; null takes the one it knows.")
    api_key: SecretStr | None = Field(None, min_length=1, description="litellm: key sent to the API; null sends none.")
    dimensions: Whole | None = Field(
        None,
        ge=1,
        le=16_384,
        description="litellm: length of a vector to ask the API for; null takes what the model gives, which the first "
        "start learns from it.",
    )

    @field_validator("api_base")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        return url if url is None else _checked_url(url)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.provider == "model2vec":
            strays = [name for name in ("api_base", "api_key", "dimensions") if getattr(self, name) is not None]
            if strays:
                raise ValueError(f"`{strays[0]}` is for an embedding API: set provider: litellm, or leave it out")
            return self
        provider, slash, model = self.model.partition("/")
        if not (provider and slash and model) or "*" in self.model:
            raise ValueError(
                f"model: {self.model!r} names no embedding API; write provider/model, such as "
                "openai/text-embedding-3-small"
            )
        if self.api_base is None and provider in _WITHOUT_ADDRESS:
            raise ValueError(f"{provider} has no address of its own: set api_base, e.g. http://127.0.0.1:8000/v1")
        return self


class Index(_Section):
    """The vector index."""

    exact_below: Whole = Field(2000, ge=0, description="Scopes with fewer vectors than this are searched exactly.")


class Quotas(_Section):
    """Most memories of each type in one recall; a type that is left out keeps its default."""

    working: Literal["all"] | Whole = Field("all", description="Working memory; all, or a number.")
    semantic: Literal["all"] | Whole = Field(8, description="Lasting facts and preferences.")
    episodic: Literal["all"] | Whole = Field(5, description="What happened.")
    reflective: Literal["all"] | Whole = Field(2, description="Lessons drawn from episodes.")

    @field_validator("*")
    @classmethod
    def _not_negative(cls, value: str | int) -> str | int:
        if isinstance(value, int) and value < 0:
            raise ValueError("must be all, or a number from 0 up")
        return value

    def limit(self, memory_type: MemoryType) -> int | None:
        """Most memories of this type in one recall; None is no limit."""
        value = getattr(self, memory_type)
        return None if value == "all" else int(value)


class Recall(_Section):
    """How memories are looked up before a call."""

    deadline_ms: Whole = Field(
        50,
        ge=1,
        description="Recall is cut off after this long; what has arrived is used. With `embedding.provider: litellm` "
        f"the default is {API_DEADLINE_MS}.",
    )
    cache_s: Real = Field(30, ge=0, description="How long a recall may be reused; any write in the scope ends it.")
    min_confidence: Real = Field(0.25, ge=0, le=1, description="Memories below are kept pending, never injected.")
    quotas: Quotas = Field(default_factory=Quotas, description="Most memories of each type.")
    recent_episodic: Whole = Field(2, ge=0, description="Newest episodes that come along whatever the question.")


class Inject(_Section):
    """How recalled memories enter the request."""

    placement: Literal["system", "user", "session"] = Field(
        "session",
        description="session: frozen at a session's first turn, later memories behind the newest user message, so that "
        "prompts stay cacheable; system: rebuilt at the end of the system prompt; user: of the newest user message.",
    )
    budget_tokens: Whole = Field(1200, ge=0, description="Most tokens of memory in one request.")
    share_of_context: Real = Field(0.15, gt=0, le=1, description="Most memory as a share of the model's window.")
    max_item_chars: Whole = Field(400, ge=40, description="Longer memories are injected in their short form.")


class Session(_Section):
    """When a conversation counts as over."""

    idle_s: Whole = Field(1800, ge=1, description="Idle seconds after which a session ends.")


class Backup(_Section):
    """Regular backups."""

    at: str | None = Field(
        None, description="Time of day for the daily backup, HH:MM in identity.timezone; null makes none."
    )
    dir: Path = Field(Path("backups"), description="Folder for daily backups.")
    keep: Whole = Field(7, ge=1, description="How many backups are kept in it.")

    @field_validator("at")
    @classmethod
    def _time_of_day(cls, at: str | None) -> str | None:
        if at is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", at):
            raise ValueError(f"{at!r} is no time of day; write HH:MM, e.g. '03:00', or null")
        return at

    @property
    def time(self) -> time | None:
        """`at` as a value; None when no backup is made."""
        return None if self.at is None else time.fromisoformat(self.at)


class Config(_Section):
    """All settings, each with a default."""

    server: Server = Field(default_factory=Server, description="Where the proxy listens.")
    data_dir: Path = Field(Path("data"), description="Folder of everything that is kept.")
    upstream: Upstream = Field(default_factory=Upstream, description="Where calls go.")
    models: tuple[Model, ...] = Field((), description="Models with a provider or key of their own.")
    auth: Auth = Field(default_factory=Auth, description="Who may call.")
    identity: Identity = Field(default_factory=Identity, description="Who is meant when a request does not say.")
    redis: Redis = Field(default_factory=Redis, description="Working memory's home.")
    store: Store = Field(default_factory=Store, description="The long-term store.")
    embedding: Embedding = Field(default_factory=Embedding, description="How text becomes vectors.")
    index: Index = Field(default_factory=Index, description="The vector index.")
    recall: Recall = Field(default_factory=Recall, description="How memories are looked up before a call.")
    inject: Inject = Field(default_factory=Inject, description="How recalled memories enter the request.")
    session: Session = Field(default_factory=Session, description="When a conversation counts as over.")
    policies: tuple[Path, ...] = Field((Path("policies"),), description="Policy folders or files, read in this order.")
    backup: Backup = Field(default_factory=Backup, description="Regular backups.")
    debug: StrictBool = Field(False, description="Opens /debug/memories and logs in full.")

    @model_validator(mode="before")
    @classmethod
    def _time_for_an_api(cls, data: Any) -> Any:
        """Unless the file says otherwise, a recall that asks an API has longer."""
        if not isinstance(data, dict) or _read(data.get("embedding"), "provider") != "litellm":
            return data
        recall = data.get("recall", {})
        if isinstance(recall, Recall) and "deadline_ms" not in recall.model_fields_set:
            recall = recall.model_dump(exclude_unset=True)
        if not isinstance(recall, dict) or "deadline_ms" in recall:
            return data
        return {**data, "recall": {**recall, "deadline_ms": API_DEADLINE_MS}}

    def contradictions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Settings that do not go together: the place to change, and why."""
        if self.auth.is_open and not is_loopback(self.server.host):
            yield (
                ("server", "host"),
                f"{self.server.host!r} is not a loopback address: in passthrough mode with one tenant everyone who can "
                "reach the port would read and write the same memories, since the client's key is not checked here. "
                "Use 127.0.0.1; from a container, publish the port on the host's 127.0.0.1 (docker run -p "
                "127.0.0.1:8080:8080) with auth.tenant: api_key, which makes every provider key a tenant of its own; "
                "or set auth.mode: keys",
            )

    @field_validator("models")
    @classmethod
    def _named_once(cls, models: tuple[Model, ...]) -> tuple[Model, ...]:
        names = [model.name for model in models]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the name {twice[0]!r} stands twice; keep one entry for each name")
        return models
