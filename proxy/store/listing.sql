-- name: state
AND state = :state

-- name: memory_type
AND memory_type = :memory_type

-- name: kind
AND kind = :kind

-- name: key
AND key = :key

-- name: session_id
AND session_id = :session_id

-- name: scope
AND scope = :scope

-- name: language
AND language = :language

-- name: created_after
AND created_at >= :created_after

-- name: created_before
AND created_at < :created_before

-- name: tags
AND NOT EXISTS (
  SELECT 1 FROM json_each(:tags) AS wanted WHERE wanted.value NOT IN (SELECT had.value FROM json_each(memories.tags) AS had))

-- name: text
AND instr(casefold(content), :text) > 0

-- name: cursor
AND (created_at, id) < (:before_at, :before_id)
