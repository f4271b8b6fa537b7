"""Settings of what is kept: both layers, vectors, backups."""

from __future__ import annotations

import re
from datetime import time
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from proxy.settings.section import LATER, BaseUrl, Section, Whole, check_address


class Redis(Section):
    """Working memory's home."""

    # A URL may carry a password: kept out of reprs and so out of logs.
    url: str = Field("embedded", repr=False, description="embedded, or a redis://, rediss:// or unix:// URL.")

    @field_validator("url")
    @classmethod
    def _redis_url(cls, url: str) -> str:
        if url != "embedded" and not url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be embedded, or a redis://, rediss:// or unix:// URL")
        return url


class Store(Section):
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


class Embedding(Section):
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
    api_base: BaseUrl | None = Field(None, description="litellm: the API's base URL; null takes the one it knows.")
    api_key: SecretStr | None = Field(None, min_length=1, description="litellm: key sent to the API; null sends none.")
    dimensions: Whole | None = Field(
        None,
        ge=1,
        le=16_384,
        description="litellm: length of a vector to ask the API for; null takes what the model gives, which the first "
        "start learns from it.",
    )

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
        check_address(provider, self.api_base)
        return self


class Index(Section):
    """The vector index."""

    exact_below: Whole = Field(2000, ge=0, description="Scopes with fewer vectors than this are searched exactly.")


class Backup(Section):
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
