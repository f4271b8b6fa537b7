-- name: create
-- One record per memory; `row` is never used twice, so an id kept in a cache can only miss.
CREATE TABLE memories (
  row              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  partition        TEXT NOT NULL,           -- whose readers see it: scope.Scope.partition
  owner            TEXT NOT NULL,           -- tenant and user: Scope.partition("user")
  tenant           TEXT NOT NULL,
  user_id          TEXT NOT NULL,
  agent_id         TEXT NOT NULL,
  session_id       TEXT,
  scope            TEXT NOT NULL,
  memory_type      TEXT NOT NULL,
  kind             TEXT NOT NULL,
  key              TEXT,
  tags             TEXT NOT NULL,           -- JSON list
  entities         TEXT NOT NULL,           -- JSON list
  language         TEXT NOT NULL,
  confidence       REAL NOT NULL,
  strength         REAL NOT NULL,
  access_count     INTEGER NOT NULL,
  last_accessed_at REAL,                    -- all times: Unix seconds
  created_at       REAL NOT NULL,
  updated_at       REAL NOT NULL,
  valid_from       REAL NOT NULL,
  expires_at       REAL,
  version          INTEGER NOT NULL,
  supersedes       TEXT,
  superseded_by    TEXT,
  parent_id        TEXT,
  state            TEXT NOT NULL,
  source           TEXT NOT NULL,           -- JSON object
  message_hash     TEXT,                    -- source.message_hash, to be found by
  token_estimate   INTEGER NOT NULL,
  seen             INTEGER NOT NULL,        -- what ranking looks at: glance.seen
  speaker          TEXT NOT NULL,
  content          TEXT NOT NULL,
  short            TEXT,                    -- its short form; of long contents only
  line_tokens      INTEGER,                 -- what each costs in a block's line
  short_tokens     INTEGER,
  change           TEXT NOT NULL,           -- what led to this state
  term_count       INTEGER NOT NULL,        -- distinct lexical terms
  fingerprint      TEXT,                    -- the model that was asked for the vector
  vector           BLOB                     -- float16, little endian; NULL where that model gives none
);
CREATE INDEX memories_active ON memories (partition, memory_type, valid_from) WHERE state = 'active';
CREATE INDEX memories_listed ON memories (partition, created_at, id);
CREATE INDEX memories_message ON memories (message_hash) WHERE message_hash IS NOT NULL;
CREATE INDEX memories_key ON memories (partition, key) WHERE key IS NOT NULL;
CREATE INDEX memories_fingerprint ON memories (fingerprint);
CREATE INDEX memories_parent ON memories (parent_id) WHERE parent_id IS NOT NULL;

-- The public fields, in the order of records.COLUMNS.
CREATE VIEW records AS SELECT
  row, id, tenant, user_id, agent_id, scope, memory_type, kind, content, created_at, updated_at, valid_from, session_id,
  key, tags, entities, language, confidence, strength, access_count, last_accessed_at, expires_at, version, supersedes,
  superseded_by, parent_id, state, source, token_estimate, short, line_tokens, short_tokens, partition, owner, change,
  message_hash
FROM memories;

-- Former states of a record; the present one is in `memories`.
CREATE TABLE versions (
  seq    INTEGER PRIMARY KEY,
  id     TEXT NOT NULL,
  change TEXT NOT NULL,
  at     REAL NOT NULL,
  state  TEXT NOT NULL                      -- JSON of the whole record
);
CREATE INDEX versions_id ON versions (id, seq);

-- Only active records. Every token starts with its partition, so no query can reach another one's postings.
CREATE VIRTUAL TABLE fts USING fts5(terms, content='', columnsize=0, detail=none, tokenize='ascii');

-- What must not come back: hashes of texts (c:…) and messages (m:…), no text.
CREATE TABLE tombstones (
  owner TEXT NOT NULL,
  hash  TEXT NOT NULL,
  at    REAL NOT NULL,
  PRIMARY KEY (owner, hash)
) WITHOUT ROWID;

-- Which user an agent's owner key (Scope.owner, which is also its partition) belongs to.
CREATE TABLE owners (owner TEXT PRIMARY KEY, user_owner TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX owners_user ON owners (user_owner);

CREATE TABLE seen (
  seen_scope TEXT NOT NULL,
  chain      TEXT NOT NULL,
  at         REAL NOT NULL,                 -- the last time
  PRIMARY KEY (seen_scope, chain)
) WITHOUT ROWID;
CREATE TABLE seen_content (owner TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (owner, hash)) WITHOUT ROWID;

CREATE TABLE sessions (
  owner      TEXT NOT NULL,
  session_id TEXT NOT NULL,
  started_at REAL NOT NULL,
  last_at    REAL NOT NULL,
  turns      INTEGER NOT NULL,
  point      INTEGER NOT NULL,              -- counts the newest points; a link with this number is the head
  ended_at   REAL,
  PRIMARY KEY (owner, session_id)
) WITHOUT ROWID;
CREATE TABLE session_links (
  owner      TEXT NOT NULL,
  link       TEXT NOT NULL,
  session_id TEXT NOT NULL,
  point      INTEGER NOT NULL,
  at         REAL NOT NULL,
  PRIMARY KEY (owner, link, session_id)
) WITHOUT ROWID;

CREATE TABLE journal (
  seq         INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  owner       TEXT NOT NULL,                -- tenant and user
  seen_scope  TEXT NOT NULL,
  chain       TEXT NOT NULL,
  at          REAL NOT NULL,
  status      TEXT NOT NULL,
  boot        TEXT NOT NULL,                -- the process that opened it
  calls       INTEGER NOT NULL DEFAULT 1,   -- of that process, with this very turn under way and no answer yet
  header      TEXT NOT NULL,                -- JSON: scope, injected, model
  body        TEXT,                         -- JSON: messages; gone once the turn is done
  answer      TEXT,                         -- JSON; likewise
  answer_hash TEXT,
  replaces    TEXT,
  UNIQUE (seen_scope, chain)
);
CREATE INDEX journal_waiting ON journal (status) WHERE status IN ('open', 'answered');
CREATE INDEX journal_owner ON journal (owner) WHERE body IS NOT NULL;

CREATE TABLE ledger (
  seq            INTEGER PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  turn           TEXT,                      -- journal.id; another id than its own for a repeated call
  owner          TEXT NOT NULL,
  at             REAL NOT NULL,
  scope          TEXT NOT NULL,
  status         TEXT NOT NULL,
  written_status TEXT NOT NULL,
  outcomes       TEXT NOT NULL
);
CREATE INDEX ledger_turn ON ledger (turn) WHERE turn IS NOT NULL;
CREATE INDEX ledger_unfinished ON ledger (id) WHERE written_status = 'open';

-- The bulky part of a ledger entry, written once; apart, so that closing an entry does not write it again.
CREATE TABLE recalls (
  seq      INTEGER PRIMARY KEY,             -- ledger.seq
  recalled TEXT NOT NULL,
  injected TEXT NOT NULL
);

-- What stands in a session's requests (inject.placement: session), written once.
CREATE TABLE session_pieces (
  owner      TEXT NOT NULL,
  session_id TEXT NOT NULL,
  chain      TEXT NOT NULL,                 -- of the user message; empty for the block in the system prompt
  user_owner TEXT NOT NULL,                 -- tenant and user
  text       TEXT NOT NULL,                 -- empty where nothing was added
  tokens     INTEGER NOT NULL,
  items      TEXT NOT NULL,                 -- JSON list of ids
  mentions   TEXT NOT NULL,                 -- JSON list: memories whose former words stand in it
  PRIMARY KEY (owner, session_id, chain)
) WITHOUT ROWID;
CREATE INDEX session_pieces_user ON session_pieces (user_owner);

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE INDEX memories_owner ON memories (owner);

-- Which records another one was made from, or stands for: `how` is plugs.Derivation.
CREATE TABLE evidence (
  owner    TEXT NOT NULL,                   -- tenant and user
  derived  TEXT NOT NULL,
  evidence TEXT NOT NULL,
  how      TEXT NOT NULL,
  PRIMARY KEY (owner, derived, evidence)
) WITHOUT ROWID;
CREATE INDEX evidence_of ON evidence (owner, evidence);

-- Where else the same was said, after the message that a record was made from.
CREATE TABLE sightings (
  owner   TEXT NOT NULL,                    -- tenant and user
  id      TEXT NOT NULL,
  session TEXT NOT NULL,
  message TEXT NOT NULL,                    -- its hash; empty when there was none
  at      REAL NOT NULL,
  PRIMARY KEY (owner, id, session, message)
) WITHOUT ROWID;

-- Answers to requests that may be sent again.
CREATE TABLE kept_answers (
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
CREATE INDEX kept_answers_at ON kept_answers (at);
CREATE INDEX kept_answers_memory ON kept_answers (memory_id) WHERE memory_id IS NOT NULL;
