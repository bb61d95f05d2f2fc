// What the server is asked for.

export class Failed extends Error {}

export async function ask(path, params, signal) {
  const query = params ? `?${params}` : "";
  const response = await fetch(`/api/${path}${query}`, { signal });
  let told;
  try {
    told = await response.json();
  } catch {
    throw new Failed(response.ok ? "the answer is no JSON" : `the server says ${response.status}`);
  }
  if (!response.ok) throw new Failed(told.error ?? `the server says ${response.status}`);
  return told;
}

let identity = "";
export const setIdentity = (value) => (identity = value);

function address(what, index, field, params = {}) {
  return `/api/${what}/${index}/${field}?${new URLSearchParams({ ...params, v: identity })}`;
}

export const pictureUrl = (index, field, params) => address("picture", index, field, params);
export const stripUrl = (index, field, params) => address("strip", index, field, params);
export const fileUrl = (index, field) => address("file", index, field);
export const variantUrl = (index, epoch, name) =>
  `/api/variant-picture/${index}/${epoch}?${new URLSearchParams({ name, v: identity })}`;

// Answers that are drawn rather than shown by the browser: kept here, so that scrolling back costs nothing.
const kept = new Map();
const MOST_KEPT = 600;

async function drawn(what, index, field, params, signal) {
  const key = `${what}/${index}/${field}?${new URLSearchParams({ ...params, v: identity })}`;
  if (!kept.has(key)) {
    const told = await ask(`${what}/${index}/${field}`, new URLSearchParams({ ...params, v: identity }), signal);
    kept.set(key, told);
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(key);
}

export const peaks = (index, field, count, signal) => drawn("peaks", index, field, { count }, signal);
export const plot = (index, field, signal) => drawn("plot", index, field, {}, signal);
