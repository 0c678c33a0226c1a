#!/usr/bin/env bash
# The programs of examples/, built against the public header and the shared library alone, do what they say.
source "$(dirname "$0")/cli_support.bash"
built=$(dirname "$minrnn")

python3 -c 'print("the cat sät on the mat, the dog sat on the log. " * 60)' >text.txt
done_by "$minrnn" train text --data text.txt --out run --steps 20 --dim 16 --layers 2 --context 32 --batch 8 --quiet
done_by "$minrnn" score run/model.safetensors text.txt
expected=$(grep -oE '[0-9.]+ nats' out | cut -d' ' -f1)
run "$built/example_stream" run/model.safetensors <text.txt
check "example_stream ends well: $(cat err)" [ "$status" -eq 0 ]
check "stream ($(cat out)) and score ($expected) agree" python3 -c '
import sys
got = float(open("out").read().split(",")[1].split()[0])
sys.exit(not abs(got - float(sys.argv[1])) <= 1e-5)' "$expected"
run "$built/example_stream" text.txt <text.txt
check "a file that is no model is refused" [ "$status" -eq 1 ]

done_by "$built/example_train" text.txt trained.safetensors
check "the example's training learns: $(cat out)" python3 -c '
import sys
sys.exit(not 0 < float(open("out").read().split()[2]) < 1)'
done_by "$minrnn" generate trained.safetensors --prompt "the cat" --tokens 20 --temperature 0
check "the command continues a text with a model of the example: $(cat out)" grep -q "the cat" out
text=$(tail -n 1 out)
done_by "$built/example_generate" trained.safetensors "the cat" 0
check "the example generates as the command does: $(cat out)" python3 -c '
import sys
sys.exit(not (sys.argv[1] and open("out").read().startswith(sys.argv[1])))' "$text"
run "$built/example_generate" trained.safetensors ""
check "an empty prompt is refused: status $status" [ "$status" -eq 1 ]
check "and a sentence says so" grep -q "no tokens" err
done_by "$minrnn" info trained.safetensors
done_by "$built/example_scan"
check "the scan finds the decays: $(cat out)" grep -q "decays 0.900 0.500 -0.300" out
done_by "$built/example_custom_loss"
check "a loss of one's own stays with the series: $(cat out)" python3 -c '
import re, sys
squared, huber = map(float, re.findall(r"by ([0-9.]+)", open("out").read()))
sys.exit(not 0 < huber < 0.5 * squared)'
done_by "$built/example_streams"
done_by "$built/example_streams" trained.safetensors
check "a hundred streams: $(cat out)" grep -q "^100 streams" out
finish
