"""Makes mutants of a C file: small changes to the code of its functions, each of which some test should notice.

It reads clang-formatted C: a function's braces stand alone in column 0 (or the whole function is on one line), and
binary operators have spaces around them. Comments, strings, preprocessor lines and all outside functions stay.

A mutant's id is a hash of the file's name, the text of its line, how often that text came before in the file, the
operator and the place in the line. So an edit elsewhere in the file changes no other mutant's id."""
import hashlib
import re
from dataclasses import dataclass

COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<",
              "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
LOGIC = {"&&": "||", "||": "&&", "&": "|", "|": "&", "|=": "&=", "&=": "|="}
BINARY = re.compile(r"(?<= )(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/|&]=|[-+*/%<>&|])(?= )")
NOT = re.compile(r"(?<![\w)])!(?=[\w(*])")
WORD = re.compile(r"\b(true|false|break|continue)\b")
INTEGER = re.compile(r"(?<![\w.])(\d+)([uUlL]*)(?![\w.])")
REAL = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(f?)(?![\w.])")
BUFFER = re.compile(r"^\s*(?:static |const )*(?:unsigned )?\w+ \**\w+\[[^]]*\](?:, \**\w+\[[^]]*\])*(?: = |;)")
CONTROL = re.compile(r"\b(if|while) \(")
RETURN = re.compile(r"\breturn ([^;]+);")
PLACE = r"\*?\(?\*?[A-Za-z_][\w.]*(?:(?:->|\.)\w+|\[[^][]*(?:\[[^][]*\][^][]*)*\]|\))*"
ASSIGN = re.compile(rf"{PLACE} (?:[-+*/%&|^]|<<|>>)?= ")
CALL = re.compile(r"(?:\(void\))?[A-Za-z_]\w*(?:(?:->|\.)\w+|\[[^][]*\])*\(")
COUNT = re.compile(rf"(?:(?:\+\+|--){PLACE}|{PLACE}(?:\+\+|--));")
LABEL = re.compile(r"\s*(?:case [^?]*|default|\w+):$")
KEYWORDS = re.compile(r"(?:if|for|while|switch|return|sizeof|else|do|case|default|goto|assert)\b")


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int  # the first line that differs, from 1
    start: int
    end: int
    text: str  # what stands between start and end instead
    operator: str
    id: str

    def apply(self, whole):
        return whole[:self.start] + self.text + whole[self.end:]


def mask(whole):
    """The same text with comments, strings, characters and preprocessor lines blanked; every offset stays."""
    comment, text = r"/\*.*?\*/|//[^\n]*", r"""(["'])(?:\\.|(?!\1)[^\\\n])*\1"""
    directive = r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
    pattern = re.compile(f"{text}|{comment}|{directive}", re.S | re.M)

    def blank(match):
        text = match.group()
        inside = re.sub(r"[^\n]", " " if text[0] not in "\"'" else "_", text)
        return inside if text[0] not in "\"'" else text[0] + inside[1:-1] + text[0]

    return pattern.sub(blank, whole)


def bodies(code):
    """(start, end) of the inside of every function."""
    spans = [(m.start(), m.end()) for m in re.finditer(r"^\{\n.*?^\}$", code, re.S | re.M)]
    spans += [(m.start(1), m.end(1)) for m in re.finditer(r"^\w[^\n={;]*\) \{( [^\n]* )\}$", code, re.M)]
    return sorted(spans)


def closing(code, opening):
    """The place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(code)):
        depth += (code[place] == "(") - (code[place] == ")")
        if depth == 0:
            return place
    return len(code) - 1


def statement_end(code, start):
    """Just after the semicolon that ends the statement at `start`; None where it is no simple statement."""
    depth = 0
    for place in range(start, len(code)):
        depth += (code[place] in "([") - (code[place] in ")]")
        if code[place] in "{}":
            return None
        if code[place] == ";" and depth == 0:
            return place + 1
    return None


def swaps(code, start, end):
    for match in BINARY.finditer(code, start, end):
        for name, table in (("compare", COMPARE), ("arithmetic", ARITHMETIC), ("logic", LOGIC)):
            if match.group() in table:
                yield name, match.start(), match.end(), table[match.group()]
    for match in NOT.finditer(code, start, end):
        yield "logic", match.start(), match.end(), ""
    for match in WORD.finditer(code, start, end):
        word = match.group()
        new = {"true": "false", "false": "true"}.get(word, "(void)0")
        yield ("drop" if new == "(void)0" else "constant"), match.start(), match.end(), new


def constants(code, start, end):
    for match in INTEGER.finditer(code, start, end):
        line = code[code.rfind("\n", 0, match.start()) + 1:code.find("\n", match.start())]
        if BUFFER.match(line):
            continue  # room for a text: one byte more or less changes nothing
        value, suffix = int(match.group(1)), match.group(2)
        for new in sorted({value + 1, value - 1, 0} - {value}):
            yield "constant", match.start(), match.end(), f"{new}{suffix}" if new >= 0 else f"({new})"
    for match in REAL.finditer(code, start, end):
        for new in (f"({match.group()} + 1)", f"0.0{match.group(2)}"):
            if float(match.group(1)) != 0 or "+" in new:
                yield "constant", match.start(), match.end(), new


def conditions(code, whole, start, end):
    for match in CONTROL.finditer(code, start, end):
        left, right = match.end() - 1, closing(code, match.end() - 1)
        inside = whole[left + 1:right]
        yield "condition", left, right + 1, f"(!({inside}))"
        yield "condition", left, right + 1, f"(({inside}) && 0)"
        if match.group(1) == "if":
            yield "condition", left, right + 1, f"(({inside}) || 1)"


def returns(code, start, end):
    for match in RETURN.finditer(code, start, end):
        if match.group(1) not in ("0", "NULL", "false"):
            yield "return", match.start(1), match.end(1), "0" + "\n" * match.group(1).count("\n")


def drops(code, start, end):
    """Whole statements: calls, assignments and counting, unless they declare."""
    for match in re.finditer(r"(?:(?<=[;{}:])|(?<=\belse)|(?<=\)))[ \n]+(?=[*(\w+-])", code[start:end]):
        place = start + match.end()
        if KEYWORDS.match(code, place):
            continue
        stop = statement_end(code, place)
        if stop is None or stop > end:
            continue
        before = code[:start + match.start()].rstrip()
        if before.endswith(")") and not after_control(code, len(before) - 1):
            continue
        if before.endswith(":") and not LABEL.match(before[before.rfind("\n") + 1:]):
            continue  # the colon of a choice
        if ASSIGN.match(code, place) or COUNT.match(code, place) or (CALL.match(code, place) and code[stop - 2] == ")"):
            yield "drop", place, stop, ";" + "\n" * code.count("\n", place, stop)


def after_control(code, right):
    """Whether the parenthesis at `right` closes the head of an if, for or while."""
    depth = 0
    for place in range(right, -1, -1):
        depth += (code[place] == ")") - (code[place] == "(")
        if depth == 0:
            return re.search(r"\b(if|for|while) $", code[max(0, place - 6):place]) is not None
    return False


def mutants_of(name, whole, seed):
    """Every mutant of a file, by place."""
    code, found, seen = mask(whole), [], {}
    starts = [0] + [m.end() for m in re.finditer("\n", whole)]
    nth = []  # for every line, how often its text came before
    for text in whole.split("\n"):
        nth.append(seen.get(text.strip(), 0))
        seen[text.strip()] = nth[-1] + 1
    for start, end in bodies(code):
        changes = [*swaps(code, start, end), *constants(code, start, end), *conditions(code, whole, start, end),
                   *returns(code, start, end), *drops(code, start, end)]
        for operator, a, b, text in changes:
            line = whole.count("\n", 0, a)
            begin = starts[line]
            stripped = whole[begin:].split("\n", 1)[0].strip()
            column = len(whole[begin:a].lstrip())
            key = "\0".join((str(seed), name, stripped, str(nth[line]), operator, str(column), text))
            found.append(Mutant(name, line + 1, a, b, text, operator, hashlib.sha256(key.encode()).hexdigest()[:12]))
    return found


def choose(mutants):
    """One mutant a line, and the lines in an order that only their own text decides: the first N are a sample of N."""
    lines = {}
    for mutant in mutants:
        lines.setdefault((mutant.file, mutant.line), {}).setdefault(mutant.operator, []).append(mutant)
    chosen = []
    for kinds in lines.values():
        kind = min(kinds.values(), key=lambda some: hashlib.sha256(some[0].id.encode()).hexdigest())
        chosen.append(min(kind, key=lambda mutant: mutant.id))
    return sorted(chosen, key=lambda mutant: mutant.id)
