-- Read, compare and delete in one step, so that a slot written again meanwhile from another message stays.
local doomed = {}
for i = 1, #ARGV do doomed[ARGV[i]] = true end
local function made_from_it(text)
  local ok, entry = pcall(cjson.decode, text)
  return ok and type(entry) == 'table' and type(entry.message_hash) == 'string' and doomed[entry.message_hash]
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if made_from_it(all[i + 1]) then redis.call('HDEL', KEYS[1], all[i]) end
  end
elseif kind == 'list' then
  for _, step in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if made_from_it(step) then redis.call('LREM', KEYS[1], 0, step) end
  end
end
