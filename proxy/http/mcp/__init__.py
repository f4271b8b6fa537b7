"""`/mcp`: the memory as tools that a model calls on purpose, over the official MCP SDK.

`words` and `catalogue` say what there is, `arguments` reads what a model sent, `tools` does it, `told` says what came
of it; none of these knows the SDK. `sdk` does; it is imported when the first client comes, which `door` lets in.
"""
