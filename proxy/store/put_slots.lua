-- Writing and trimming must be one step: between two, another worker's slots would be counted or dropped wrongly.
-- A value that is none of ours sorts as the oldest.
local key, limit = KEYS[1], tonumber(ARGV[2])
local kind = redis.call('TYPE', key).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', key) end
for i = 3, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
local excess = redis.call('HLEN', key) - limit
if excess > 0 then
  local all, order = redis.call('HGETALL', key), {}
  for i = 1, #all, 2 do
    local ok, slot = pcall(cjson.decode, all[i + 1])
    local at = ok and type(slot) == 'table' and type(slot.updated_at) == 'string' and slot.updated_at or ''
    if not at:find('^%d%d%d%d%-%d%d%-%d%dT') then at = '' end
    order[#order + 1] = {at, all[i]}
  end
  table.sort(order, function(a, b) if a[1] ~= b[1] then return a[1] < b[1] end return a[2] < b[2] end)
  for i = 1, excess do redis.call('HDEL', key, order[i][2]) end
end
redis.call('PEXPIRE', key, ARGV[1])
