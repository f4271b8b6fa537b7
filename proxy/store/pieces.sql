-- name: of_session
SELECT chain, text, tokens, items, mentions FROM session_pieces WHERE owner = :owner AND session_id = :session_id;

-- name: keep
INSERT INTO session_pieces (owner, session_id, user_owner, chain, text, tokens, items, mentions)
VALUES (:owner, :session_id, :user_owner, :chain, :text, :tokens, :items, :mentions)
ON CONFLICT DO NOTHING;

-- name: holding
-- Pieces of any of the user's sessions in whose text one of these memories stands, or any slot.
SELECT owner, session_id, chain FROM session_pieces
WHERE user_owner = :user_owner AND EXISTS (
  SELECT 1 FROM json_each(json_array(json(items), json(mentions))) AS lists, json_each(lists.value) AS one
  WHERE one.value IN (SELECT value FROM json_each(:ids)) OR (:slots AND one.value LIKE 'slot:%'));

-- name: holding_anywhere
SELECT owner, session_id, chain FROM session_pieces
WHERE EXISTS (
  SELECT 1 FROM json_each(json_array(json(items), json(mentions))) AS lists, json_each(lists.value) AS one
  WHERE one.value IN (SELECT value FROM json_each(:ids)));

-- name: shared
-- Which of these memories all users of the tenant may read.
SELECT id FROM memories WHERE id IN (SELECT value FROM json_each(:ids)) AND partition = :shared;

-- name: there
-- How many of these memories are neither erased nor put away.
SELECT count(*) FROM memories WHERE id IN (SELECT value FROM json_each(:ids)) AND state <> 'archived';

-- name: drop_piece
DELETE FROM session_pieces WHERE owner = :owner AND session_id = :session_id AND chain = :chain;

-- name: drop_session
DELETE FROM session_pieces WHERE owner = :owner AND session_id = :session_id;
