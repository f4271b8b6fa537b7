"""The two memory layers that outlive a request: working memory on Redis, the long-term store on SQLite."""
