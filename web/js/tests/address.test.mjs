import assert from "node:assert/strict";
import { test } from "node:test";

import { withValues } from "../lib/address.js";

test("one name changes and the rest stays as it is spelled", () => {
  assert.equal(withValues("?show=a%2Fb%2Cc&x=1", "x", ["2"]), "?show=a%2Fb%2Cc&x=2");
  assert.equal(withValues("?x=1&hide=a&x=2", "x", []), "?hide=a");
  assert.equal(withValues("?x=1", "x", []), "");
});

test("what is spelled reads back the same", () => {
  const given = ["recipe:0.4-1", "a, b", "50 % & more=?", "ä+#"];
  const search = withValues("?q=t%20u", "brush", given);
  assert.deepEqual(new URLSearchParams(search).getAll("brush"), given);
  assert.ok(search.includes("brush=recipe:0.4-1"));
  assert.ok(search.startsWith("?q=t%20u&"));
});
