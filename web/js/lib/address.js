/** The view in the address: what a page shows is in its query, so that a reload and a link give the same. */

/**
 * The query with the values of one name replaced; no values take the name out, and the rest stays as it is spelled. Pure.
 * @param {string} search @param {string} name @param {string[]} values
 */
export function withValues(search, name, values) {
  const others = search
    .replace(/^\?/, "")
    .split("&")
    .filter((part) => part && !new URLSearchParams(part).has(name));
  const spelled = values.map(
    (value) =>
      `${name}=${encodeURIComponent(value).replaceAll("%20", "+").replaceAll("%2C", ",").replaceAll("%3A", ":")}`,
  );
  const query = [...others, ...spelled].join("&");
  return query && `?${query}`;
}

/** The values of a name in the address. @param {string} name */
export const valuesOf = (name) => new URLSearchParams(location.search).getAll(name);

/** Put the values of a name into the address, without a step in the history. @param {string} name @param {string[]} values */
export function remember(name, values) {
  history.replaceState(
    history.state,
    "",
    `${location.pathname}${withValues(location.search, name, values)}${location.hash}`,
  );
}
