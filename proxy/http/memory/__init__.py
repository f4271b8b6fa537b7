"""The memory API, one door per file; `proxy.http.memory_api` puts them together."""
