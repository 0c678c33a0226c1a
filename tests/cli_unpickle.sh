#!/usr/bin/env bash
# scripts/unpickle.py: what torch.save writes becomes safetensors, and no file can make it do anything else.
source "$(dirname "$0")/cli_support.bash"

script=$tests/../scripts/unpickle.py
unpickle() { python3 "$script" "$@"; }
check "files to read" python3 "$tests/make_pt.py" .

cat >show.py <<'PYTHON'
import json, struct, sys
content = open(sys.argv[1], "rb").read()
length = struct.unpack_from("<Q", content)[0]
header = json.loads(content[8:8 + length])
assert (8 + length) % 64 == 0 and header.pop("__metadata__") == {"format": "pt", "minrnn.unpickle": "1"}
at = 0
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    assert begin == at
    at = end
    form = {"F32": "f", "F64": "d", "I64": "q", "F16": "e"}[entry["dtype"]]
    numbers = struct.unpack(f"<{(end - begin) // struct.calcsize(form)}{form}", content[8 + length:][begin:end])
    print(name, entry["dtype"], entry["shape"], *(f"{number:g}" for number in numbers))
assert 8 + length + at == len(content)
PYTHON

cat >expected <<'EXPECTED'
column F32 [2] 2 5
double F64 [3] 0.5 -2 1024
empty F32 [0, 4]
every_other F32 [3] 0 2 4
half F16 [2, 1] 1.5 -0.25
number F64 [] -2
spread F32 [2, 2] 4 5 4 5
spread_last F32 [2, 3] 4 4 4 5 5 5
steps I64 [2] 7 -1
transposed F32 [3, 2] 0 3 1 4 2 5
whole F32 [2, 3] 0 1 2 3 4 5
EXPECTED
for file in honest legacy nested authors; do
    done_by unpickle $file.pt --out $file.safetensors
    check "$file: says what it wrote" grep -q "^$file.safetensors: 11 tensors" out
    done_by python3 show.py $file.safetensors
    check "$file: all views as they are" cmp out expected
done

done_by unpickle two.pt --key ema --out ema.safetensors
done_by python3 show.py ema.safetensors
check "the chosen one" grep -qx 'w F64 \[3\] 0.5 -2 1024' out
done_by unpickle prefixed.pt --strip module. --out prefixed.safetensors
check "what is no tensor is named" grep -qx "left out: 'epoch', which is no tensor" err
done_by python3 show.py prefixed.safetensors
check "without the prefix" grep -q '^w F32 \[2, 3\]' out
done_by unpickle part-1.bin part-2.bin --out whole.safetensors
done_by python3 show.py whole.safetensors
check "two files" cmp out - <<<$'a F32 [1] 2\nb F32 [2] 1 2'
done_by unpickle two.pt --list
check "the list" cmp out - <<<$'model\tw\tF32\t[2, 3]\nema\tw\tF64\t[3]'
done_by unpickle --help
check "help has an example" grep -q 'unpickle.py model.pt --out model.safetensors' out

# refuse FILE PATTERN: one line that names the file and says why, and nothing is written.
refuse() {
    refused 1 "^$1.pt: .*$2" unpickle "$1.pt" --out no.safetensors
    check "$1: nothing is written" [ ! -e no.safetensors ]
}
echo 'this is text' >text.pt
mkdir folder.pt
: >empty.pt
refuse gone 'No such file'
refuse folder 'a folder'
refuse empty 'not a file of torch.save'
refuse text 'not a file of torch.save'
refuse cut 'damaged'
refuse legacy-cut 'cut short'
refuse two 'choose one with --key: model, ema'
refuse value 'not a state dict'
refuse no-tensor 'no state dict'
refuse system 'names posix.system'
refuse legacy-system 'names posix.system'
refuse eval 'names __builtin__.eval'
refuse object 'names .*, which is no part of a state dict'
refuse other 'names torch._utils._rebuild_other'
refuse huge-shape 'too large'
refuse spread 'far larger than the file'
refuse beyond 'reaches beyond its storage of 4'
refuse negative 'negative shape'
refuse negative-stride 'negative strides'
refuse negative-offset 'do not agree'
refuse uneven 'do not agree'
refuse text-shape 'no list of numbers'
refuse count "has 16 bytes, not 4398046511104"
refuse outside 'secret. is missing'
refuse climbs "'../unpickle-ran'"
refuse rooted "'/tmp/unpickle-ran'"
refuse compressed 'compressed'
refuse big-endian 'big-endian'
refuse legacy-count 'cut short'
refuse legacy-long 'cut short'
refuse program-lines 'names a.nb.c'
refuse program-underflow 'takes more than it has'
refuse program-no-mark 'without a mark'
refuse program-no-end 'pickle exhausted|without an end'
refuse program-instance 'names os.system'
refuse program-memo 'not a state dict|no state dict'
refuse program-extension 'instruction EXT1'
refuse program-odd 'a key and no value'
refuse program-long-text 'damaged'
refuse program-unknown 'damaged'
refuse program-list-key 'unusual keys'
refuse program-deep-key 'unusual keys'
refuse program-mark-kept 'keeps a mark'
refuse program-call-text 'a call of'
refuse program-storage 'no storage'
check "nothing was run" [ -z "$(find . .. /tmp -maxdepth 1 -name unpickle-ran)" ]
check "no partial file is left" [ -z "$(find . -name '.unpickle-*')" ]

# Damaged at random: a file is converted or refused with one line.
check "2000 damaged files" python3 - "$script" honest.pt legacy.pt <<'PYTHON'
import contextlib, io, os, random, sys
script, *files = sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
import unpickle
random.seed(1)
content = [open(file, "rb").read() for file in files]
done = 0
for i in range(2000):
    data = bytearray(content[i % 2])
    for _ in range(1 + i % 3):
        place = random.randrange(min(len(data), 1200))
        data[place:place + random.randrange(3)] = random.randbytes(random.randrange(3))
    open("damaged.pt", "wb").write(data)
    sys.argv = ["unpickle.py", "damaged.pt", "--out", "damaged.safetensors"]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            unpickle.main()
        done += 1
    except SystemExit as end:
        assert isinstance(end.code, str) and end.code.startswith("damaged.pt: ") and "\n" not in end.code, end.code
assert 0 < done < 1000, done
PYTHON

refused 1 "called 'w'" unpickle same-name.pt --strip m. --out no.safetensors
refused 1 "no state dict 'none' in it; there is: 'model', 'ema'" unpickle two.pt --key none --out no.safetensors
refused 1 "'b' is also in another file" unpickle part-1.bin part-1.bin --out no.safetensors
refused 1 'would replace the file' unpickle honest.pt --out honest.pt
mkfifo pipe
mkdir folder
ln -s nowhere dangling
for place in pipe folder dangling; do
    refused 1 "^$place: not a regular file" unpickle honest.pt --out $place
done
check "what was there is there" test -p pipe -a -d folder -a -L dangling
echo mine >mine
: >nothing
printf '\3\0\0\0\0\0\0\0[1]' >list
printf '\377\377\377\377\377\377\377\177{}' >long
printf '\34\0\0\0\0\0\0\0{"__metadata__":{"mine":""}}' >theirs
cp mine nothing list long theirs folder
for place in mine nothing list long theirs; do
    refused 1 "^--out $place exists and is not by unpickle.py" unpickle honest.pt --out $place
    check "$place is there" cmp $place folder/$place
done
done_by unpickle two.pt --key ema --out honest.safetensors
check "its own file is replaced" cmp honest.safetensors ema.safetensors
refused 1 '^nowhere/no.safetensors: No such file' unpickle honest.pt --out nowhere/no.safetensors
refused 1 'nowhere' unpickle part-1.bin part-2.bin --out nowhere/no.safetensors
refused 2 'either --out FILE or --list' unpickle honest.pt
refused 2 'unpickle.py --help' unpickle

if python3 -c 'import torch' 2>/dev/null; then
    cat >with_torch.py <<'PYTHON'
import sys, torch
w = torch.randn(4, 6)
state = {"t": w.t(), "cut": w[1:3, ::2], "bf16": w.bfloat16(), "perm": torch.randn(2, 3, 4).double().permute(2, 0, 1),
         "bool": w > 0, "tied": w, "parameter": torch.nn.Parameter(w[:, 1]), "module": None}
state.update({"gru." + name: value for name, value in torch.nn.GRU(3, 5).state_dict().items()})
for name, how in (("torch", True), ("torch-legacy", False)):
    torch.save({"model": state}, name + ".pt", _use_new_zipfile_serialization=how)
torch.save(state, "expected.pt")
PYTHON
    check "files by PyTorch" python3 with_torch.py
    for file in torch torch-legacy; do
        done_by unpickle $file.pt --out $file.safetensors
        check "$file: the same numbers" python3 - $file.safetensors <<'PYTHON'
import json, struct, sys, torch
content = open(sys.argv[1], "rb").read()
length = struct.unpack_from("<Q", content)[0]
header = json.loads(content[8:8 + length])
expected = {name: value for name, value in torch.load("expected.pt").items() if value is not None}
assert header.keys() - {"__metadata__"} == expected.keys()
for name, value in expected.items():
    begin, end = header[name]["data_offsets"]
    found = torch.frombuffer(bytearray(content[8 + length + begin:8 + length + end]), dtype=value.dtype)
    assert torch.equal(found.reshape(header[name]["shape"]), value), name
PYTHON
    done
else
    left_out "files written by PyTorch: no torch here"
fi

finish
