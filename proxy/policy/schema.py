"""The JSON Schema of policy files, for editors: made from the models, and kept in `policies/schema.json`."""

from __future__ import annotations

import json
from typing import Any

from proxy.policy.model import PolicyFile


def policy_schema() -> dict[str, Any]:
    """The JSON Schema that a policy file must satisfy."""
    schema = PolicyFile.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Sidemirror policy file"}


def schema_text() -> str:
    """The schema as it stands in `policies/schema.json`."""
    return json.dumps(policy_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":  # how policies/schema.json is made anew
    print(schema_text(), end="")
