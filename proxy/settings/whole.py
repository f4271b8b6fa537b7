"""All settings together, and what holds between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, StrictBool, field_validator, model_validator

from proxy.settings.calling import Auth, Identity, Model, Server, Upstream
from proxy.settings.recalling import API_DEADLINE_MS, Inject, Recall, Session
from proxy.settings.section import Section, is_loopback
from proxy.settings.storing import Backup, Embedding, Index, Redis, Store


class Config(Section):
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


def _read(section: object, name: str) -> object:
    """A value of a section that may not be checked yet."""
    return section.get(name) if isinstance(section, dict) else getattr(section, name, None)
