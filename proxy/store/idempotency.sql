-- name: take_up
-- Answers to requests that may be sent again; made at every start where it is missing.
CREATE TABLE IF NOT EXISTS kept_answers (
  owner       TEXT NOT NULL,                -- tenant and user
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,                -- of the whole request
  status      INTEGER NOT NULL,
  body        TEXT,                         -- gone once its record was forgotten
  memory_id   TEXT,                         -- the record whose text is in it
  etag        TEXT,
  at          REAL NOT NULL,
  PRIMARY KEY (owner, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS kept_answers_at ON kept_answers (at);
CREATE INDEX IF NOT EXISTS kept_answers_memory ON kept_answers (memory_id) WHERE memory_id IS NOT NULL;

-- name: kept
SELECT fingerprint, status, body, memory_id, etag FROM kept_answers WHERE owner = :owner AND key = :key AND at >= :since;

-- name: keep
INSERT INTO kept_answers (owner, key, fingerprint, status, body, memory_id, etag, at)
VALUES (:owner, :key, :fingerprint, :status, :body, :memory_id, :etag, :at)
ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body,
  memory_id = excluded.memory_id, etag = excluded.etag, at = excluded.at;

-- name: drop_old
DELETE FROM kept_answers WHERE at < :since;

-- name: forgo
UPDATE kept_answers SET body = NULL WHERE memory_id = :memory_id;
