"""All rules, in the order of their codes; importing this module fills the table."""

from __future__ import annotations

from amp_core.lint.finding import LintError
from amp_core.lint.rule import RULES as _REGISTERED
from amp_core.lint.rule import Rule
from amp_core.lint.rules import IMPORTED

RULES: dict[str, Rule] = dict(sorted(_REGISTERED.items()))
NAMES: dict[str, str] = {rule.name: code for code, rule in RULES.items()}
assert len(NAMES) == len(RULES) > len(IMPORTED)


def codes_for(chosen: str) -> set[str]:
    """Codes that a list of codes, prefixes (AMP3) and names, with commas, means. Raises LintError for unknown ones."""
    found: set[str] = set()
    for part in (text.strip() for text in chosen.split(",")):
        if not part:
            continue
        matching = {code for code in RULES if code.startswith(part.upper())}
        if part.lower() in NAMES:
            matching = {NAMES[part.lower()]}
        if not matching:
            raise LintError(
                f"no rule {part!r}: use a code like AMP101, a prefix like AMP1 or a name; see --explain all"
            )
        found |= matching
    return found


def explained(name: str) -> Rule:
    """The rule of a code or name. Raises LintError."""
    code = NAMES.get(name.lower(), name.upper())
    if code not in RULES:
        raise LintError(f"no rule {name!r}: rules are {', '.join(RULES)}")
    return RULES[code]
