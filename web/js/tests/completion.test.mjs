import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document ??= { addEventListener() {}, querySelector: () => null };
const { accepted, pieces } = await import("../lib/completion.js");

test("a suggestion takes the place of the word, and a value is followed by a space", () => {
  assert.deepEqual(accepted("rec status:failed", { start: 0, end: 3 }, "recipe:"), {
    value: "recipe: status:failed",
    at: 7,
  });
  assert.deepEqual(accepted("status:fa", { start: 0, end: 9 }, "status:failed"), { value: "status:failed ", at: 14 });
  assert.deepEqual(accepted("tag:n -owner:x", { start: 0, end: 5 }, 'tag:"night shift"'), {
    value: 'tag:"night shift" -owner:x',
    at: 18,
  });
  assert.deepEqual(accepted("eval", { start: 0, end: 4 }, "eval/loss>"), { value: "eval/loss>", at: 10 });
});

test("wrong words are cut out of the query, and nothing is lost", () => {
  const query = "a staus:x b loss>";
  const cut = pieces(query, [
    { start: 2, end: 9 },
    { start: 12, end: 17 },
  ]);
  assert.deepEqual(cut, [
    ["a ", false],
    ["staus:x", true],
    [" b ", false],
    ["loss>", true],
  ]);
  assert.equal(cut.map(([text]) => text).join(""), query);
  assert.deepEqual(pieces("", []), []);
});
