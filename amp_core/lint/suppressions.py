"""Comments that silence findings: `# amp: ignore` and `# amp: ignore[AMP101, clip-before-unscale]`."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass, field

from amp_core.lint.finding import Finding

COMMENT = re.compile(r"#\s*amp:\s*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)


@dataclass(slots=True)
class Suppressions:
    """Codes and names silenced by line; an empty set silences all."""

    lines: dict[int, set[str]] = field(default_factory=dict)
    whole_file: list[set[str]] = field(default_factory=list)

    @classmethod
    def of(cls, source: str) -> Suppressions:
        """Read the comments of a source; a comment on a line of its own counts for the next line."""
        found = cls()
        if "ignore" not in source.lower():
            return found
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        except (tokenize.TokenError, IndentationError, SyntaxError):
            return found
        for token in tokens:
            match = COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match is None:
                continue
            codes = {code.strip().lower() for code in (match["codes"] or "").split(",") if code.strip()}
            if match["file"]:
                found.whole_file.append(codes)
                continue
            alone = not token.line[: token.start[1]].strip()
            found.lines[token.start[0] + alone] = codes
        return found

    def silence(self, finding: Finding) -> bool:
        """Whether a comment on any line of the blamed code, or one for the file, silences this finding."""
        silencing = [self.lines[n] for n in range(finding.line, finding.end_line + 1) if n in self.lines]
        names = {finding.code.lower(), finding.name.lower()}
        return any(not codes or codes & names for codes in (*silencing, *self.whole_file))
