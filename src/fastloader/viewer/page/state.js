// What is shown, kept in the address behind the "#": whoever gets the link sees the same.

const DEFAULTS = { key: "", where: [], show: "", crop: "1", over: "1" };

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const params = new URLSearchParams(query);
  const sample = /^sample\/(\d+)$/.exec(path);
  return {
    page: sample ? "sample" : path === "histograms" ? "histograms" : "grid",
    sample: sample ? Number(sample[1]) : null,
    key: params.get("key") ?? "",
    where: params.getAll("where").filter(isCondition),
    show: params.get("show") ?? "",
    crop: params.get("crop") ?? DEFAULTS.crop,
    over: params.get("over") ?? DEFAULTS.over,
    at: Number(params.get("at") ?? 0) || 0,
  };
}

function isCondition(text) {
  try {
    const made = JSON.parse(text);
    return Array.isArray(made) && made.length === 3;
  } catch {
    return false;
  }
}

export function format(state) {
  const params = new URLSearchParams();
  if (state.key) params.set("key", state.key);
  for (const one of state.where) params.append("where", one);
  for (const name of ["show", "crop", "over"]) if (state[name] !== DEFAULTS[name]) params.set(name, state[name]);
  if (state.page === "grid" && state.at) params.set("at", state.at);
  const path = state.page === "sample" ? `sample/${state.sample}` : state.page === "histograms" ? "histograms" : "";
  const query = String(params);
  return `#/${path}${query ? `?${query}` : ""}`;
}

// The part that says which samples are meant, as the server takes it.
export function choice(state, more = {}) {
  const params = new URLSearchParams();
  if (state.key) params.set("key", state.key);
  for (const one of state.where) params.append("where", one);
  for (const [name, value] of Object.entries(more)) params.set(name, value);
  return params;
}

export const isAll = (state) => !state.key && !state.where.length;
