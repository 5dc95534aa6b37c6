local health = {status = "Progressing", message = "Waiting for the operator"}
local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return health
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
local function is_true(name)
  return found[name] ~= nil and found[name].status == "True"
end
local function report(code, condition)
  health.status = code
  health.message = (condition.reason or "") .. ": " .. (condition.message or "")
  return health
end
if is_true("Stalled") then
  return report("Degraded", found.Stalled)
end
if is_true("Ready") then
  health.status = "Healthy"
  health.message = ""
  return health
end
if found.Ready == nil then
  return health
end
if is_true("Paused") then
  return report("Suspended", found.Paused)
end
if found.Progressing ~= nil and found.Progressing.reason == "AwaitingApproval" then
  return report("Suspended", found.Progressing)
end
return report("Progressing", found.Ready)
