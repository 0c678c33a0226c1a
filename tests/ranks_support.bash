# What the tests of ranks share: a text, small runs, mpirun, and ranks by their numbers. Sourced after cli_support.bash.

plugin=$(dirname "$minrnn")/libminrnn_mpi.so
python3 - >text.txt <<'PYTHON'
import random
random.seed(3)
words = ["lorem", "ipsum", "dolor", "sit", "amet", "tempor", "magna", "aliqua"]
print(" ".join(random.choice(words) for _ in range(4000)))
PYTHON
small=(--dim 24 --layers 2 --batch 2 --context 16 --eval-every 20 --eval-tokens 2000 --threads 1)
rest=("${small[@]}" --accumulate 6 --schedule constant)
six=(text --data text.txt "${rest[@]}")

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
# MPI keeps memory of its own until the end.
[ "$sanitized" -eq 1 ] && export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
# Open MPI's own threads take locks in orders, and free memory at times, that ThreadSanitizer does not like.
if grep -qa '__tsan_init' "$minrnn"; then
    printf '%s\n' deadlock:mca_ race:mca_ race:libopen-pal race:libopen-rte race:libpmix race:libevent race:libmpi.so \
        mutex:mca_ signal:libopen-pal >tsan.supp
    export TSAN_OPTIONS=suppressions=$PWD/tsan.supp:${TSAN_OPTIONS:-}
fi
ranks() { # N DIR [flags…]    trains with N ranks
    local n=$1 dir=$2
    shift 2
    timeout --kill-after=5 120 mpirun -n "$n" "$minrnn" train "$@" --out "$dir"
}
said() { grep -aE '^minrnn' "$1"; } # mpirun adds lines of its own

pid_of_rank() { # DIR RANK
    local pid
    for pid in $(pgrep -f -- "$minrnn train .*--out $1\$|$minrnn train .*--out $1 "); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
    done
}
wait_for() { # COMMAND…    up to 30 s
    local i
    for ((i = 0; i < 300; i++)); do
        "$@" && return
        sleep 0.1
    done
    return 1
}
none_left() { ! pgrep -f -- "$minrnn train .*--out $1( |\$)" >/dev/null; }
has_state() { [ -e "$1/state.safetensors" ]; }
