#!/usr/bin/env bash
# Training with several processes under mpirun: the same files for any number of ranks, resumed with another number
# after one was killed; ranks that do not fit together, are slow, or are too many; what is said where MPI is missing.
# usage: cli_ranks.sh path/to/minrnn
source "$(dirname "$0")/cli_support.bash"
source "$tests/ranks_support.bash"

# ---- without a launcher, and without MPI

brief=("$minrnn" train "${six[@]}" --steps 2)
run env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MINRNN_MPI=/nowhere.so "${brief[@]}" --out none
check "a plug-in that is missing is status 1" [ $status -eq 1 ]
check "one line names it" grep -qE 'MINRNN_MPI: .*nowhere.so.*libopenmpi-dev' err
check "nothing was written" [ ! -e none ]
run env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost MASTER_PORT=1 "${brief[@]}" --out none
check "rank 1 leaves it to rank 0, and speaks later if it is not ended" [ "$(head -n 1 err | cut -c 1-22)" = \
    'rank 1: minrnn train: ' ]
refused 1 'torchrun does not start MPI programs' env RANK=0 WORLD_SIZE=2 "${brief[@]}" --out none
refused 1 'NCCL moves memory of GPUs only' env RANK=0 WORLD_SIZE=2 "${brief[@]}" --out none --device cpu --ranks nccl
done_by env RANK=0 WORLD_SIZE=2 "${brief[@]}" --out off --ranks off --quiet
refused 1 'one of auto, mpi, nccl, off' "${brief[@]}" --out none --ranks mpich
refused 1 'ranks = mpi: this process was not started as one of several' "${brief[@]}" --out none --ranks mpi
done_by "$minrnn" train "${six[@]}" --steps 60 --out alone --quiet

if [ ! -e "$plugin" ] || ! command -v mpirun >/dev/null; then
    left_out "ranks under mpirun: no MPI here (Debian: apt-get install openmpi-bin libopenmpi-dev, then make again)"
    finish
fi

# The tensors of a state: its metadata has times.
tensors() {
    python3 - "$1" <<'PYTHON'
import hashlib, json, struct, sys
content = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", content[:8])[0]
head = json.loads(content[8:8 + size])
head.pop("__metadata__")
assert len(content) == 8 + size + max(entry["data_offsets"][1] for entry in head.values())
total = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
total.update(content[8 + size:])
print(total.hexdigest())
PYTHON
}

same_run() { # WHAT DIR    is it the run of one process, to the last bit?
    check "$1: the last model" same_files "$2/last.safetensors" alone/last.safetensors
    check "$1: the best model" same_files "$2/model.safetensors" alone/model.safetensors
    check "$1: weights and moments" [ "$(tensors "$2/state.safetensors")" = "$(tensors alone/state.safetensors)" ]
    check "$1: the log" [ "$(timeless "$2/log.jsonl")" = "$(timeless alone/log.jsonl)" ]
}

# ---- the plug-in is found beside a command that is found in PATH, and named where it cannot be loaded

mkdir bin
cp "$minrnn" "$plugin" bin
done_by env PATH="$PWD/bin:$PATH" mpirun -n 2 minrnn train "${six[@]}" --steps 2 --out path
echo nothing >bin/libminrnn_mpi.so
refused 1 'bin/libminrnn_mpi.so: ' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 \
    bin/minrnn train "${six[@]}" --steps 2 --out none

# ---- a launcher of another MPI than the plug-in's: each process would be alone

refused 1 'mpirun started 2 processes, but .* joins 1; build libminrnn_mpi.so with' env PMI_RANK=0 PMI_SIZE=2 \
    "${brief[@]}" --out none
check "nothing was written" [ ! -e none ]

# ---- any number of ranks

for n in 1 2 3 4; do
    done_by ranks $n "ranks$n" "${six[@]}" --steps 60
    same_run "$n ranks" "ranks$n"
done
check "only rank 0 speaks" [ "$(grep -c 'parameters, batch' err)" -eq 1 ]
done_by ranks 3 shard "${six[@]}" --steps 60 --shard
same_run "a sharded optimiser" shard

# ---- stopped, killed, resumed with another number

done_by ranks 4 steps "${six[@]}" --steps 20 --shard
done_by ranks 3 steps --resume --steps 60
same_run "4 sharded ranks, then 3" steps

# seconds from TERM to KILL: on a busy machine one is not enough for a line
export OMPI_MCA_odls_base_sigkill_timeout=4
for victim in 1 0; do
    for ((try = 0; try < 5; try++)); do # one that has ended before it was killed shows nothing
        rm -rf killed
        ranks 3 killed "${six[@]}" --steps 100000 --save-every 3 >out 2>err &
        job=$!
        check "the run has saved" wait_for has_state killed
        sleep "0.$((RANDOM % 10))"
        pid=$(pid_of_rank killed $victim)
        began=$SECONDS
        [ -n "$pid" ] && kill -KILL "$pid" && break
        kill $job
    done
    wait $job
    status=$?
    check "rank $victim killed: the job fails" [ $status -ne 0 ]
    check "rank $victim killed: it ends within 10 s" [ $((SECONDS - began)) -le 10 ]
    said err >lines
    check "rank $victim killed: one line" [ "$(wc -l <lines)" -eq 1 ]
    check "rank $victim killed: it says so" grep -q "rank $victim .*has ended or does not answer" lines
    check "rank $victim killed: no rank is left" wait_for none_left killed
    for file in killed/last.safetensors killed/state.safetensors; do # nothing is half written
        check "rank $victim killed: $file is whole" tensors "$file" >sums
    done
    step=$(grep -oE '"step":[0-9]+' killed/log.jsonl | tail -n 1 | cut -d : -f 2)
    steps=$((${step:-0} + 20))
    done_by ranks 2 killed --resume --steps $steps --save-every 0
    done_by "$minrnn" train "${six[@]}" --steps $steps --out whole$victim --quiet
    check "rank $victim killed: resumed with 2 ranks to the bits of one" \
        same_files killed/last.safetensors whole$victim/last.safetensors
    check "rank $victim killed: the log, too" [ "$(timeless killed/log.jsonl)" = "$(timeless whole$victim/log.jsonl)" ]
done
unset OMPI_MCA_odls_base_sigkill_timeout

# with Open MPI's own settings, whichever rank it is; a busy machine may need a second try
names_the_dead() { # RANK
    rm -rf dead
    env -u OMPI_MCA_btl_vader_single_copy_mechanism timeout --kill-after=5 60 mpirun -n 3 "$minrnn" train "${six[@]}" \
        --steps 100000 --save-every 3 --out dead >out 2>err &
    job=$!
    wait_for has_state dead
    kill -KILL "$(pid_of_rank dead "$1")"
    wait $job
    grep -aqE "^minrnn train: rank $1 .*has ended or does not answer" err
}
for victim in 0 1 2; do
    check "rank $victim killed: it is named in time" eval "for i in 1 2 3; do names_the_dead $victim && break; done"
done

# ---- sequences that ranks share

near() { # A B    the logs of two runs, up to the order of sums
    python3 - "$1/log.jsonl" "$2/log.jsonl" <<'PYTHON'
import json, sys
a, b = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(a) == len(b) > 20
for x, y in zip(a, b):
    for key in "loss", "grad_norm":
        assert (key in x) == (key in y)
        assert key not in x or abs(x[key] - y[key]) <= 1e-4 * abs(y[key]), (x, y)
PYTHON
}
for mixer in minlstm mamba; do
    cut=(text --data text.txt "${rest[@]/16/37}" --dropout 0 --mixer $mixer --conv 4 --h0 learned --steps 20)
    [ $mixer = minlstm ] || cut=("${cut[@]/learned/zero}")
    done_by "$minrnn" train "${cut[@]}" --out whole-$mixer --quiet
    for shape in "2 2" "4 2" "3 3"; do
        read -r n share <<<"$shape"
        done_by ranks $n "cut-$mixer-$n" "${cut[@]}" --sequence-ranks $share
        check "$mixer, sequences cut in $share: the run agrees" near "cut-$mixer-$n" whole-$mixer
    done
    check "$mixer: two groups have the bits of one" \
        same_files cut-$mixer-2/last.safetensors cut-$mixer-4/last.safetensors
done
done_by ranks 4 cut-mamba-2 --resume --steps 24 --sequence-ranks 2 --shard
done_by ranks 2 cut-mamba-4 --resume --steps 24 --sequence-ranks 2
check "resumed: the same bits" same_files cut-mamba-2/last.safetensors cut-mamba-4/last.safetensors
run ranks 3 odd "${six[@]}" --steps 2 --sequence-ranks 2
check "ranks that are no groups" grep -qE '^minrnn train: sequence-ranks = 2: does not divide the 3 ranks' err
for mixer in gru lstm attention; do
    run ranks 2 odd "${six[@]}" --steps 2 --sequence-ranks 2 --mixer $mixer
    check "$mixer is not cut" grep -qE "^minrnn train: sequence-ranks = 2: mixer = $mixer cannot be cut in time" err
done
run ranks 4 odd "${six[@]/16/5}" --steps 2 --sequence-ranks 4 --conv 4
check "chunks too short for a convolution" grep -qE '^minrnn train: sequence-ranks = 4: 1 tokens a rank' err
check "nothing was begun" [ ! -e odd/recipe.ini ]
refused 1 'sequence-ranks = 2: this process was not started as one of several' \
    "$minrnn" train "${six[@]}" --steps 2 --sequence-ranks 2 --out odd

# ---- from C

example=$(dirname "$minrnn")/example_ranks
done_by "$example" text.txt one.safetensors
check "the example learns: $(cat out)" grep -qE '^1 ranks, step 100: [01]\.' out
for n in 2 5; do
    done_by mpirun -n $n "$example" text.txt several.safetensors
    check "rank 0 speaks: $(cat out)" grep -q "^$n ranks, step 100" out
    check "$n ranks make the same file" same_files one.safetensors several.safetensors
done

# ---- the exchange by itself

done_by mpirun -n 3 "$minrnn" bench ranks --parameters 3000000 --repeats 3 --json
check "rank 0 prints one object" json 'd["ranks"] == 3 and d["rows"][0]["parameters"] == 3000000' out
check "bytes are those of the model" json 'd["rows"][0]["bytes"] == 2 * 4 * 3000000 * 2 / 3' out
check "times are times" json 'd["rows"][0]["ms"] >= d["rows"][0]["best_ms"] > 0 < d["rows"][0]["model_ms"]' out
refused 1 'was not started as one of several' "$minrnn" bench ranks

# ---- a slow rank

ranks 2 slow "${six[@]}" --steps 100000 --save-every 50 >out 2>err &
job=$!
check "the slow run has saved" wait_for has_state slow
pid=$(pid_of_rank slow 1)
kill -STOP "$pid"
named() { grep -qE "^minrnn: rank 1 \(process $pid on .*has kept the others waiting" err; }
check "a stopped rank is named" wait_for named
kill -CONT "$pid"
kill -TERM "$pid" # a signal to any rank stops all, and they save
wait $job
check "it stopped and saved" grep -q 'stopped at step [0-9]*, saved' err

# ---- ranks that do not fit together

other() { # PATTERN [flags of rank 1]    one line, nothing written
    local pattern=$1
    shift
    rm -rf other
    run timeout --kill-after=5 60 mpirun -n 1 "$minrnn" train "${six[@]}" --steps 2 --out other : \
        -n 1 "$minrnn" train "$@" --out other
    check "refused: $pattern" [ $status -eq 1 ]
    check "one line: $pattern" [ "$(said err | wc -l)" -eq 1 ]
    check "it says $pattern: $(said err)" grep -qE "^minrnn train: $pattern" err
    check "nothing written: $pattern" [ ! -e other/state.safetensors ]
}
head -c 20000 text.txt >shorter.txt
other 'rank 1 has lr = 0.5, and rank 0 lr = ' "${six[@]}" --steps 2 --lr 0.5
other 'rank 1 has data with the SHA-256' text --data shorter.txt "${rest[@]}" --steps 2
other 'rank 1 has context = 8, and rank 0 context = 16' text --data text.txt "${rest[@]/16/8}" --steps 2
other 'rank 1: nowhere.txt: cannot be opened' text --data nowhere.txt "${rest[@]}" --steps 2
other 'rank 1 has the device = ' "${six[@]}" --steps 2 --device ref
other 'rank 1 has --shard = yes, and rank 0 --shard = no' "${six[@]}" --steps 2 --shard
other 'rank 1 has --sequence-ranks = 2, and rank 0 --sequence-ranks = 1' "${six[@]}" --steps 2 --sequence-ranks 2
run timeout --kill-after=5 60 mpirun -n 1 "$minrnn" train "${six[@]}" --steps 2 --out other : \
    -n 1 "$minrnn" train "${six[@]}" --layerss 2 --out other
check "a rank that fails before it joins says so" grep -q '^rank 1: minrnn train: unknown flag --layerss' err
rm -rf other
run ranks 3 few text --data text.txt "${small[@]}" --accumulate 2 --steps 2
check "more ranks than micro-batches" grep -qE '^minrnn train: accumulate = 2: 3 ranks need .*--accumulate 3' err
check "nothing was begun for them" [ ! -e few ]
run ranks 2 killed --resume --accumulate 6 --gradient-sum order --steps 100000
check "the order of sums is the run's" grep -qE 'gradient-sum = tree, which cannot become order' err
rm -rf old
run ranks 2 old "${six[@]}" --steps 2 --gradient-sum order
check "sums in order are for one process" [ "$(said err | grep -c 'gradient-sum = order')" -eq 1 ]
check "nothing was begun for them, either" [ ! -e old ]

finish
