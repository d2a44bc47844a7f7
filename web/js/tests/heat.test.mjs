import assert from "node:assert/strict";
import { test } from "node:test";

import { withValues } from "../lib/address.js";
import { edgePath, powerText, shareText } from "../lib/heat.js";

const picture = { high: 0, cell: 5, width: 100, height: 200 };

test("an edge lies one cell above its own exponent, and a larger scale moves it down", () => {
  assert.equal(edgePath(-14, 0, picture), "M0 75H100");
  assert.equal(edgePath(-14, 10, picture), "M0 125H100");
});

test("an edge outside of the picture is not drawn", () => {
  assert.equal(edgePath(16, 0, picture), "");
  assert.equal(edgePath(-24, 40, picture), "");
});

test("powers and shares read as people write them", () => {
  assert.deepEqual([powerText(16), powerText(-3), powerText(0)], ["2¹⁶", "2⁻³", "2⁰"]);
  assert.deepEqual([shareText(0), shareText(1e-6), shareText(0.0262)], ["none", "below 0.1 %", "2.6 %"]);
});

test("the address changes by one name and keeps the others", () => {
  assert.equal(withValues("?hide=a&full=loss", "hide", ["b", "c d"]), "?full=loss&hide=b&hide=c+d");
  assert.equal(withValues("?hide=a", "hide", []), "");
});
