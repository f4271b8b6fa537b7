"""An example agent: one question to the proxy, one answer, and what memory did. Standard library only.

In: the question as arguments; OPENAI_BASE_URL, OPENAI_API_KEY and MODEL from the environment. Nothing in it knows of
memory: the base URL is all that an agent changes.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request


def ask(question: str) -> None:
    """Ask the model one question, and print its answer with the proxy's status."""
    body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(  # noqa: S310 - the base URL is the one who runs this sets
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - the same
        answer = json.load(response)
        print(answer["choices"][0]["message"]["content"])
        print(f"[memory {response.headers['X-Memory-Status']}, {response.headers['X-Memory-Injected']} injected]")


if __name__ == "__main__":
    ask(" ".join(sys.argv[1:]) or "What do you know about me?")
