#!/usr/bin/env python3
"""Makes the man page and the shell completions from the command's own --help.

usage: manual.py FOLDER COMMAND…      (COMMAND: the built minrnn, with an emulator before it where it needs one)

Writes minrnn.1, minrnn (bash), _minrnn (zsh) and minrnn.fish into FOLDER.
"""
import os
import re
import subprocess
import sys

FLAG = re.compile(r"  --([\w-]+)(?: (\S+))?\s{1,}(.*)")


def output_of(command, *args):
    return subprocess.run([*command, *args], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


class Page:
    """One `minrnn NAME --help all`: its flags in order, each once, and the lines around them."""

    def __init__(self, name, about, text):
        self.name, self.about, self.text = name, about, text
        self.flags = {}
        for line in text.split("\nexamples:")[0].splitlines():
            match = FLAG.fullmatch(line)
            if match and match.group(1) not in self.flags:
                self.flags[match.group(1)] = (match.group(2) or "", match.group(3).strip())

    def choices(self, flag):
        values = self.flags[flag][0]
        return values.split("|") if "|" in values else []


def pages_of(command):
    top = output_of(command, "--help")
    names = re.findall(r"^  (\w+) {2,}(.*)$", top.split("\nexamples:")[0], re.M)
    return top, [Page(name, about, output_of(command, name, "--help", "all")) for name, about in names]


# ---- the man page

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in text.split("\n"))


def roff_lines(lines):
    """Flags as tagged paragraphs, everything else unchanged."""
    out, filled = [], True
    for line in lines:
        match = FLAG.fullmatch(line)
        if match:
            out += [] if filled else [".fi"]
            filled = True
            values = f" \\fI{roff(match.group(2))}\\fR" if match.group(2) else ""
            out += [".TP", f"\\fB\\-\\-{roff(match.group(1))}\\fR{values}", roff(match.group(3).strip())]
        else:
            out += ([".PP"] if out else []) + [".nf"] if filled else []
            filled = False
            out.append(roff(line))
    return out + ([] if filled else [".fi"])


def man_page(top, pages, version):
    out = [f'.TH MINRNN 1 "" "minrnn {version}" "User Commands"',
           ".SH NAME", "minrnn \\- train and run minGRU and minLSTM", ".SH SYNOPSIS",
           ".B minrnn", "\\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]", ".SH COMMANDS"]
    for page in pages:
        out += [".TP", f"\\fB{page.name}\\fR", roff(page.about)]
    for page in pages:
        out += [f".SS minrnn {page.name}", *roff_lines(page.text.rstrip().split("\n"))]
    out += [".SH EXAMPLES", *roff_lines(top.split("\nexamples:\n")[1].rstrip().split("\n"))]
    return "\n".join(out) + "\n"


# ---- completions

def bash(pages):
    cases = []
    for page in pages:
        flags = " ".join("--" + flag for flag in [*page.flags, "help"])
        choices = "".join(f"            --{flag}) words='{' '.join(page.choices(flag))}' ;;\n"
                          for flag in page.flags if page.choices(flag))
        files = "".join(f"            --{flag}) words= ;;\n"
                        for flag, (value, _) in page.flags.items() if value == "FILE")
        cases.append(f"        {page.name})\n            words='{flags}'\n            case $before in\n{choices}{files}"
                     "            esac ;;\n")
    names = " ".join(page.name for page in pages)
    return ("# bash completion of minrnn, made from its --help\n_minrnn()\n{\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
            f"    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='{names} --help --version'\n    else\n"
            "        case ${COMP_WORDS[1]} in\n" + "".join(cases) +
            "        esac\n        case $word in -*) ;; *) case $words in --*) words= ;; esac ;; esac\n    fi\n"
            "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o default -F _minrnn minrnn\n")


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh(pages):
    out = ["#compdef minrnn", "# zsh completion of minrnn, made from its --help", "local -a commands", "commands=("]
    out += [f"    '{page.name}:{zsh_text(page.about)}'" for page in pages] + [")"]
    out += ["if (( CURRENT == 2 )); then", "    _describe command commands", "    return", "fi", "case ${words[2]} in"]
    for page in pages:
        out.append(f"{page.name})")
        out.append("    _arguments '2:command:' \\")
        for flag, (value, about) in page.flags.items():
            given = f"({' '.join(page.choices(flag))})" if page.choices(flag) else "_files" if value == "FILE" else ""
            out.append(f"        '--{flag}[{zsh_text(about)}]{f':{zsh_text(value)}:{given}' if value else ''}' \\")
        out.append("        '*:file:_files' ;;")
    return "\n".join([*out, "esac"]) + "\n"


def fish_text(text):
    return text.replace("\\", "\\\\").replace("'", "\\'")


def fish(pages):
    out = ["# fish completion of minrnn, made from its --help"]
    for page in pages:
        out.append(f"complete -c minrnn -n __fish_use_subcommand -a {page.name} -d '{fish_text(page.about)}'")
    for page in pages:
        for flag, (value, about) in page.flags.items():
            if page.choices(flag):
                rest = f" -x -a '{' '.join(page.choices(flag))}'"
            else:
                rest = " -r -F" if value == "FILE" else " -x" if value else ""
            out.append(f"complete -c minrnn -n '__fish_seen_subcommand_from {page.name}' -l {flag}{rest}"
                       f" -d '{fish_text(about)}'")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder, command = sys.argv[1], sys.argv[2:]
    version = output_of(command, "--version").split()[1]
    top, pages = pages_of(command)
    os.makedirs(folder, exist_ok=True)
    texts = {"minrnn.1": man_page(top, pages, version), "minrnn": bash(pages), "_minrnn": zsh(pages),
             "minrnn.fish": fish(pages)}
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
