#!/usr/bin/env bash
# Weights of other programs: tests/golden/peers is imported, computes what these programs computed, and comes out as it
# came in. slow_weights.sh does the same with many more.
source "$(dirname "$0")/cli_support.bash"

outputs=${MINRNN_OUTPUTS:-$(dirname "$minrnn")/tests/model_outputs}
check "model_outputs is built" [ -x "$outputs" ]
peers=$tests/golden/peers

for device in cpu ref; do
    run python3 "$tests/weights_check.py" "$minrnn" "$outputs" --device $device --verbose "$peers"/*/
    cat out err
    check "$device: imported models compute what their programs computed" [ $status -eq 0 ]
    check "$device: eight models" grep -qx '8 models, 0 failures' out
done

# The comparison itself must be able to fail: a weight that is off by a little, and NaN where a number should be.
spoil() {
    rm -rf spoiled
    cp -r "$peers/lm-mingru-v9-d6-l1-conv-e1" spoiled
    python3 - "$1" "$2" <<'PYTHON'
import json, struct, sys
content = bytearray(open("spoiled/" + sys.argv[1], "rb").read())
length = struct.unpack_from("<Q", content)[0]
form = "<d" if sys.argv[1] == "expected.safetensors" else "<f"
struct.pack_into(form, content, 8 + length, struct.unpack_from(form, content, 8 + length)[0] + float(sys.argv[2]))
open("spoiled/" + sys.argv[1], "wb").write(content)
PYTHON
}
for change in 0.001 nan; do
    spoil expected.safetensors $change
    run python3 "$tests/weights_check.py" "$minrnn" "$outputs" spoiled
    check "an output that is off by $change is found" \
        grep -q '^FAIL: spoiled: \(outputs differ by\|at once: .* has nan\)' out
done
spoil model.safetensors 0.01
run python3 "$tests/weights_check.py" "$minrnn" "$outputs" spoiled
check "a weight that is off is found" grep -q '^FAIL: spoiled: outputs differ by' out

cat >bent <<BENT
#!/usr/bin/env bash
"$minrnn" "\$@" || exit
[ "\$1" = export ] || exit 0
last=\$((\$(stat -c %s "\${!#}") - 4)) # --out FILE is at the end
printf '\\001' | dd of="\${!#}" bs=1 seek=\$last conv=notrunc status=none
BENT
chmod +x bent
run python3 "$tests/weights_check.py" ./bent "$outputs" "$peers/lm-mingru-v9-d6-l1-conv-e1"
check "an exported weight that is off by a bit is found" grep -q '^FAIL: .*: exported: .* differs' out

finish
