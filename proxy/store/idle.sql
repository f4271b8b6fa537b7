-- name: idle
-- Sessions with something new since their end, if they had one, that nobody has spoken in for a while; the longest idle
-- first. `sessions.owner` is a hash: whose it is stands in the records made in the session, which lie between its first
-- turn and a day after its last one. A session without records has nothing to tell.
SELECT session_id, owner, (
  SELECT json_array(json_array(memories.tenant, memories.user_id, memories.agent_id)) FROM memories
  WHERE memories.partition = sessions.owner AND memories.created_at BETWEEN sessions.started_at AND sessions.last_at + 86400
    AND memories.session_id = sessions.session_id
  LIMIT 1
) AS own, (
  -- Another agent of the user may have a session of the same name.
  SELECT '[' || group_concat(DISTINCT json_array(memories.tenant, memories.user_id, memories.agent_id)) || ']'
  FROM owners JOIN memories ON memories.partition = owners.user_owner
  WHERE owners.owner = sessions.owner AND memories.created_at BETWEEN sessions.started_at AND sessions.last_at + 86400
    AND memories.session_id = sessions.session_id
) AS users
FROM sessions
WHERE last_at < :before AND last_at >= :since AND (ended_at IS NULL OR ended_at < last_at)
  AND (own IS NOT NULL OR users IS NOT NULL)
ORDER BY last_at, session_id
LIMIT :limit;
