-- name: known
SELECT id, status, answer_hash, replaces FROM journal WHERE seen_scope = :seen_scope AND chain = :chain;

-- name: open
INSERT INTO journal (id, owner, seen_scope, chain, at, status, boot, header, body, replaces)
VALUES (:id, :owner, :seen_scope, :chain, :at, 'open', :boot, :header, :body, :replaces);

-- name: reopen
-- The text of a finished turn was dropped; it is needed again when its answer is replaced.
UPDATE journal SET body = :body, header = :header, boot = :boot WHERE id = :id;

-- name: by_id
SELECT status, at, header FROM journal WHERE id = :id;

-- name: answer
UPDATE journal SET status = 'answered', answer = :answer, answer_hash = :answer_hash,
  replaces = CASE status WHEN 'done' THEN answer_hash ELSE coalesce(replaces, answer_hash) END
WHERE id = :id;

-- name: share
-- Another call with the same new part is under way: the turn goes only when all of them failed.
UPDATE journal SET calls = CASE boot WHEN :boot THEN calls + 1 ELSE 1 END, boot = :boot WHERE id = :id AND status = 'open';

-- name: leave
UPDATE journal SET calls = calls - 1 WHERE id = :id AND status = 'open';

-- name: drop_left
DELETE FROM journal WHERE id = :id AND status = 'open' AND calls < 1;

-- name: close
UPDATE journal SET
  status = :status,
  body = CASE :status WHEN 'done' THEN NULL ELSE body END,
  answer = CASE :status WHEN 'done' THEN NULL ELSE answer END
WHERE id = :id;

-- name: drop_text
UPDATE journal SET body = NULL WHERE id = :id AND status = 'done';

-- name: waiting
SELECT seq FROM journal
WHERE status IN ('open', 'answered') AND (status = 'answered' OR boot <> :boot)
ORDER BY seq;

-- name: waiting_turn
SELECT id, seen_scope, chain, at, status, header, body, answer, replaces FROM journal
WHERE seq = :seq AND status IN ('open', 'answered') AND (status = 'answered' OR boot <> :boot);

-- name: ledger_open
INSERT INTO ledger (id, turn, owner, at, scope, status, written_status, outcomes)
VALUES (:id, :turn, :owner, :at, :scope, :status, :written_status, :outcomes)
ON CONFLICT (id) DO NOTHING
RETURNING seq;

-- name: ledger_put
INSERT INTO ledger (id, turn, owner, at, scope, status, written_status, outcomes)
VALUES (:id, :turn, :owner, :at, :scope, :status, :written_status, :outcomes)
ON CONFLICT (id) DO UPDATE SET
  status = excluded.status, written_status = excluded.written_status, outcomes = excluded.outcomes
WHERE owner = excluded.owner
RETURNING seq;

-- name: recall_put
INSERT INTO recalls (seq, recalled, injected) VALUES (:seq, :recalled, :injected)
ON CONFLICT (seq) DO UPDATE SET recalled = excluded.recalled, injected = excluded.injected;

-- name: ledger_close
UPDATE ledger SET written_status = :written_status, outcomes = :outcomes WHERE turn = :turn AND written_status = 'queued';

-- name: ledger
SELECT id, scope, at, status, recalled, injected, written_status, outcomes FROM ledger JOIN recalls USING (seq)
WHERE id = :id AND owner = :owner;

-- name: kept_from
-- Entries come in the order of time: this walks over those that go, and no further.
SELECT coalesce((SELECT seq FROM ledger WHERE at >= :before ORDER BY seq LIMIT 1), 9223372036854775807);

-- name: prune_recalls
DELETE FROM recalls WHERE seq < :seq;

-- name: prune_ledger
DELETE FROM ledger WHERE seq < :seq;

-- name: prune_journal
DELETE FROM journal WHERE at < :before AND status IN ('done', 'failed');
