"""Settings of calls: where the proxy listens, where calls go, who may call, and who is meant."""

from __future__ import annotations

from datetime import tzinfo
from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, field_validator, model_validator

from proxy.local_zone import LocalZone
from proxy.scope import check_part
from proxy.settings.section import BaseUrl, Section, Whole, check_address


class Server(Section):
    """Where the proxy listens."""

    host: str = Field("127.0.0.1", description="Address to listen on; a loopback one in passthrough mode.")
    port: Whole = Field(8080, ge=0, le=65535, description="TCP port; 0 lets the system choose a free one.")
    max_body_mb: Whole = Field(64, ge=1, description="Largest request body in MiB; a larger one is answered 413.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Host names, besides the loopback ones, under which the memory endpoints may be called."
    )


class Upstream(Section):
    """Where calls go whose model name is not under `models`."""

    base_url: BaseUrl = Field("https://api.openai.com/v1", description="Provider for OpenAI's dialects, with its /v1.")
    anthropic_base_url: BaseUrl = Field(
        "https://api.anthropic.com", description="Provider for /v1/messages, without a path of its own."
    )
    api_key: SecretStr | None = Field(
        None, min_length=1, description="Key sent upstream; null sends the client's own key on."
    )


class Model(Section):
    """A model name that clients use, and where its calls go. A `*` stands for any text, and is carried over."""

    name: str = Field(
        min_length=1, max_length=256, description="The name clients send; it may hold one *. Exact names come first."
    )
    litellm: str = Field(
        min_length=1,
        max_length=256,
        description="Where its calls go, as litellm names it: provider/model. It holds a * where `name` does.",
    )
    api_base: BaseUrl | None = Field(
        None, description="The provider's base URL; null takes the one that litellm knows."
    )
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        provider, slash, model = self.litellm.partition("/")
        if not (provider and slash and model) or "*" in provider:
            raise ValueError(f"litellm: {self.litellm!r} names no provider; write provider/model, e.g. openai/gpt-4o")
        check_address(provider, self.api_base)
        if self.name.count("*") > 1 or self.litellm.count("*") > 1:
            raise ValueError("one * is the most that a name may hold; write an entry for each part")
        if ("*" in self.name) != ("*" in self.litellm):
            missing = "litellm" if "*" in self.name else "name"
            raise ValueError(f"the * is carried over, so `{missing}` needs one too; or leave it out of both")
        return self


class Key(Section):
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


class Alias(Section):
    """A rotated provider key keeps its tenant; `sidemirror key tenant` prints the tenant of a key."""

    tenant: str = Field(min_length=1, max_length=256, description="The tenant that the new key would be.")
    keeps: str = Field(min_length=1, max_length=256, description="The tenant whose memories it reaches instead.")


class Auth(Section):
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


class Identity(Section):
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
