#!/usr/bin/env python3
"""Turns CUDA C into C++ for this folder's headers: launches, PTX and dynamic shared memory become calls.

usage: translate.py IN OUT
"""
import re
import sys

PAIRS = {"(": ")", "{": "}", "[": "]"}


def end_of(text, start):
    """The position after the bracket that closes the one at start; strings are passed over."""
    depth, i = 0, start
    while i < len(text):
        if text[i] == '"':
            i = text.index('"', i + 1)
        elif text[i] in PAIRS:
            depth += 1
        elif text[i] in PAIRS.values():
            depth -= 1
            if not depth:
                return i + 1
        i += 1
    raise ValueError(f"no end of: {text[start:start + 60]}")


def kernel_before(text, end):
    """Where the kernel's name begins that ends at `end`: an identifier, with its template arguments if any."""
    i = len(text[:end].rstrip())
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += {">": 1, "<": -1}.get(text[i], 0)
            if not depth:
                break
    while re.match(r"[\w:]", text[i - 1]):
        i -= 1
    return i


def launches(text):
    while "<<<" in text:
        at = text.index("<<<")
        close = text.index(">>>", at)
        first, brackets = kernel_before(text, at), text.index("(", close)
        last = end_of(text, brackets)
        args = text[brackets + 1:last - 1].strip()
        line = (f"emulated::launch({text[first:at].strip()}, emulated::shape_of({text[at + 3:close]})"
                f"{', ' + args if args else ''})")
        text = text[:first] + line + text[last:]
    return text


def split(text, by):
    """The parts of text between separators outside brackets and strings."""
    parts, start, i = [], 0, 0
    while i < len(text):
        if text[i] == '"':
            i = text.index('"', i + 1)
        elif text[i] in PAIRS:
            i = end_of(text, i) - 1
        elif text[i] == by:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return parts + [text[start:]]


def operands(section):
    return [end[end.index("(") + 1:-1] for end in (part.strip() for part in split(section, ",")) if end]


def instruction(inside):
    """asm's arguments as a call."""
    parts = split(inside.replace("::", ": :"), ":")
    words = "".join(re.findall(r'"([^"]*)"', parts[0]))
    name, _, rest = words.rstrip(";").partition(" ")
    literal = "" if "%" in rest or not rest else "_" + rest
    given = [x for section in parts[1:3] for x in operands(section)]
    return f"ptx::{name.replace('.', '_')}{literal}({', '.join(given)})"


def assembly(text):
    while True:
        found = re.search(r"\basm\b(\s+volatile)?\s*\(", text)
        if not found:
            return text
        last = end_of(text, found.end() - 1)
        lines = "\n" * text.count("\n", found.start(), last)  # so that those after it keep their numbers
        text = text[:found.start()] + instruction(text[found.end():last - 1]) + lines + text[last:]


def shared(text):
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];",
                  r"\1 *\2 = (\1 *)emulated::shared_memory();", text)
    return re.sub(r"(while \(\*\(volatile [^;]*\)) continue;", r"\1 emulated::let_others_run();", text)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read()
    text = f'#line 1 "{sys.argv[1]}"\n' + launches(assembly(shared(text)))
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
