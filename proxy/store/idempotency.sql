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
