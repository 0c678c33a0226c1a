#!/usr/bin/env bash
# What takes ranks longer to get wrong: a disk that is full for rank 0 alone, a rank lost while it reads, and rank 0
# busy by itself while others are told to stop. usage: slow_ranks.sh path/to/minrnn
source "$(dirname "$0")/cli_support.bash"
source "$tests/ranks_support.bash"
[ -e "$plugin" ] && command -v mpirun >/dev/null || { echo "skipped: no MPI here"; exit 77; }
export OMPI_MCA_odls_base_sigkill_timeout=4

# ---- a full disk, which only rank 0 sees

# Ranks that get an error, not a signal, where a file would grow beyond the limit. MPI has files of its own, so the
# limit comes later.
roomless() { # DIR [flags…]
    local dir=$1
    shift
    timeout --kill-after=5 60 mpirun -n 2 bash -c 'trap "" XFSZ; exec "$@"' - "$minrnn" train "${six[@]/24/4}" \
        --steps 1000000 --out "$dir" "$@"
}
log_is_long() { [ -e "$1/log.jsonl" ] && [ "$(stat -c %s "$1/log.jsonl")" -gt 120000 ]; }
for flags in "--save-every 1000000" "--save-every 25 --shard"; do
    rm -rf roomless
    # shellcheck disable=SC2086
    roomless roomless $flags >out 2>err &
    job=$!
    check "$flags: the log has grown" wait_for log_is_long roomless
    prlimit --pid "$(pid_of_rank roomless 0)" --fsize=130000:130000
    began=$SECONDS
    wait $job
    status=$?
    check "$flags, a full disk: status 1" [ $status -eq 1 ]
    check "$flags, a full disk: all ranks end" [ $((SECONDS - began)) -le 30 ]
    said err >lines
    check "$flags, a full disk: one line: $(cat lines)" [ "$(wc -l <lines)" -eq 1 ]
    check "$flags, a full disk: it names the file" grep -q 'roomless/log.jsonl: cannot be written: File too large' lines
done
step=$(grep -oE '"step":[0-9]+' roomless/log.jsonl | tail -n 1 | cut -d : -f 2)
done_by ranks 3 roomless --resume --steps $((step + 20)) --save-every 0

# ---- a rank that is lost while it reads its data

for ((i = 0; i < 8000; i++)); do cat text.txt; done >endless.txt
reads() { [ -n "$(pid_of_rank reads 1)" ]; }
for pause in 0.5 1 2 4 8; do # until rank 1 has joined, and still reads
    mpirun -n 1 "$minrnn" train "${six[@]}" --steps 2 --out reads : \
        -n 1 "$minrnn" train text --data endless.txt "${rest[@]}" --steps 2 --out reads >out 2>err &
    job=$!
    check "rank 1 was started" wait_for reads
    sleep $pause
    kill -KILL "$(pid_of_rank reads 1)"
    wait $job
    said err >lines
    grep -q 'rank 1 ' lines && break
done
check "lost while it reads: one line: $(cat lines)" [ "$(wc -l <lines)" -eq 1 ]
check "it says so" grep -q 'rank 1 (process .* has ended or does not answer; nothing was begun' lines
rm endless.txt

# ---- rank 0 scores the whole test text alone, while others are told to stop

for ((i = 0; i < 100; i++)); do cat text.txt text.txt text.txt text.txt; done >long.txt
ranks 2 scores text --data long.txt --split 0.1 "${rest[@]/24/64}" --steps 3 >out 2>err &
job=$!
check "the run has saved" wait_for has_state scores
wait_for grep -q '"step":3' scores/log.jsonl
kill -TERM "$(pid_of_rank scores 1)"
sleep 12
kill -TERM "$(pid_of_rank scores 0)"
wait $job
check "nobody is given up" [ "$(grep -c 'has ended or does not answer' err)" -eq 0 ]
check "the result is there" grep -q 'best at step 3' out

finish
