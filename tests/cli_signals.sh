#!/usr/bin/env bash
# Signals to a training: TERM, INT and HUP save and end it, USR1 saves and trains on, nohup is respected. Every step
# waits for a line of the command, never for a time.
source "$(dirname "$0")/cli_support.bash"

make_text text.txt 3000 1
cat >signals.py <<'PYTHON'
"""signals.py ACTION… -- COMMAND…: starts the command, waits for its first line, then carries out the actions in turn:
a signal's name sends it; "saved" waits for the line about a requested checkpoint. `nohup` first: with HUP ignored.
Prints the exit status, the last line, and how many checkpoints were requested and saved."""
import signal, subprocess, sys
split = sys.argv.index("--")
actions, command = sys.argv[1:split], sys.argv[split + 1:]
# whatever started the tests may have ignored HUP itself
hangup = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in actions else signal.SIG_DFL)
p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, bufsize=1,
                     preexec_fn=hangup)
lines = [p.stderr.readline()]
for action in actions:
    if action == "saved":
        lines.append(p.stderr.readline())
        while lines[-1] and "saved as requested" not in lines[-1]:
            lines.append(p.stderr.readline())
    elif action != "nohup":
        p.send_signal(getattr(signal, "SIG" + action))
lines += p.stderr.readlines()
print(p.wait())
print(lines[-1].strip())
print(sum("saved as requested" in line for line in lines))
PYTHON

plain=(text --data text.txt "${tiny[@]}" --eval-every 100000000 --save-every 100000000
    --schedule constant)
endless=("${plain[@]}" --steps 100000000)
signals() { { read -r ending; read -r last_line; read -r saved; } < <(python3 signals.py "$@"); }

for case in "TERM 143" "INT 130" "HUP 129" "HUP_HUP 129" "USR1_saved_HUP 129"; do
    read -r actions code <<<"$case"
    # shellcheck disable=SC2086 # the actions are words
    signals ${actions//_/ } -- "$minrnn" train "${endless[@]}" --out "end-$actions"
    check "$actions: exit $ending, not $code" [ "$ending" = "$code" ]
    check "$actions: no way to resume in \"$last_line\"" grep -q "minrnn train --out end-$actions --resume" \
        <<<"$last_line"
    check "$actions: a state was saved" [ -s "end-$actions/state.safetensors" ]
done

# ---- USR1: a checkpoint, and the run trains on; twice, so that the second is not taken for the first
signals USR1 saved USR1 saved KILL -- "$minrnn" train "${endless[@]}" --out usr1
check "USR1: ended by the kill alone, not by $ending" [ "$ending" = -9 ]
check "USR1: two requests, two checkpoints, not $saved" [ "$saved" = 2 ]
check "USR1: the state is there though the run was killed" [ -s usr1/state.safetensors ]
step=$(grep -ao '"state.step":"[0-9]*"' usr1/state.safetensors | tr -dc 0-9)
check "USR1: saved at step $step" [ "$step" -gt 0 ]
steps=$((step + 3))
done_by "$minrnn" train --out usr1 --resume --steps "$steps"
done_by "$minrnn" train "${plain[@]}" --out undisturbed --steps "$steps"
check "USR1: the same bits as a run that was not disturbed" same_files usr1/last.safetensors \
    undisturbed/last.safetensors

# ---- nohup: HUP does nothing
signals nohup HUP USR1 saved TERM -- "$minrnn" train "${endless[@]}" --out nohup
check "nohup: trained on until TERM, not $ending" [ "$ending" = 143 ]

# ---- text typed at a terminal, and Ctrl-C instead of its end: 128 + 2, and nothing is left
cat >typed.py <<'PYTHON'
"""typed.py COMMAND…: runs the command at a terminal of its own, types a line when it asks for text, and Ctrl-C once the
terminal has shown the line. Prints the exit status and what was on the terminal."""
import os, pty, sys
child, terminal = pty.fork()
if not child: os.execv(sys.argv[1], sys.argv[1:])
shown = b""
def show_until(part):
    global shown
    while part not in shown:
        try: more = os.read(terminal, 4096)
        except OSError: more = b"" # Linux says so when the child has ended
        if not more: break
        shown += more
show_until(b"Ctrl-D")
os.write(terminal, b"the quick\n")
show_until(b"the quick")
os.write(terminal, b"\x03")
show_until(b"everything until the end")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(shown.decode())
PYTHON
for words in "train text --data - --out typed" "eval usr1 --data -" "quantize usr1 --out typed8 --data -" \
    "generate usr1 --prompt -"; do
    # shellcheck disable=SC2086 # words
    done_by python3 typed.py "$minrnn" $words
    check "$words: exit $(head -n 1 out), not 130" [ "$(head -n 1 out)" = 130 ]
    check "$words: says what it waits for" grep -q 'reading the text from standard input; end it with Ctrl-D' out
done
check "no file was written" [ ! -e typed8 -a "$(ls typed)" = "" ]
done_by "$minrnn" train "${plain[@]}" --steps 1 --out typed

# ---- a reader that goes away: what was trained is saved
(
    set +o pipefail
    { "$minrnn" train text --data text.txt "${tiny[@]}" --steps 100000000 --eval-every 2 --save-every 0 --out unread \
        2>&1 || echo $? >unread-status; } | head -n 3 >/dev/null
)
check "unread: exit status $(cat unread-status)" [ "$(cat unread-status)" = 141 ]
check "unread: a state" [ -s unread/state.safetensors -a -s unread/model.safetensors ]
done_by "$minrnn" train --out unread --resume --steps 100000001 --max-seconds 0.001

finish
