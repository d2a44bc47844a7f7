/** The view in the address: what a page shows is in its query, so that a reload and a link give the same. */

/**
 * The query with the values of one name replaced; no values take the name out. Pure.
 * @param {string} search @param {string} name @param {string[]} values
 */
export function withValues(search, name, values) {
  const query = new URLSearchParams(search);
  query.delete(name);
  for (const value of values) query.append(name, value);
  return query.size ? `?${String(query).replaceAll("%2C", ",").replaceAll("%3A", ":")}` : ""; // both may stand as they are
}

/** The values of a name in the address. @param {string} name */
export const valuesOf = (name) => new URLSearchParams(location.search).getAll(name);

/** Put the values of a name into the address, without a step in the history. @param {string} name @param {string[]} values */
export function remember(name, values) {
  history.replaceState(history.state, "", `${location.pathname}${withValues(location.search, name, values)}${location.hash}`);
}
