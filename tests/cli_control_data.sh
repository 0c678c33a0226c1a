#!/usr/bin/env bash
# minrnn data make: D4RL-like data is the same on any number of threads and can be read back; what is wrong gets one
# line.
source "$(dirname "$0")/cli_support.bash"
export XDG_CACHE_HOME=$work/cache

refused 2 "unknown kind of data" "$minrnn" data make d4rl hopper medium
refused 2 "unknown environment hoper; did you mean hopper" "$minrnn" data make d4rl-like hoper medium
refused 2 "unknown set" "$minrnn" data make d4rl-like hopper expert
refused 2 "missing" "$minrnn" data make d4rl-like hopper
refused 2 "--step" "$minrnn" data make d4rl-like hopper medium --step 10
refused 1 "from 0 to 1000000000" "$minrnn" data make d4rl-like hopper medium --steps -1
done_by "$minrnn" data make --help
check "help has examples" grep -q 'minrnn data make d4rl-like hopper medium$' out
check "nothing is left of these" [ -z "$(find cache -type f 2>/dev/null)" ]

"$minrnn" --version >version
if grep -qxE '(hdf5|mujoco): no' version; then
    refused 1 'built without (HDF5|MuJoCo).*bootstrap.sh control' env MINRNN_DATA="$work" \
        "$minrnn" data make d4rl-like hopper medium
    [ $failures -eq 0 ] || finish
    echo "skipped: without HDF5 or MuJoCo"; exit 77
fi
refused 1 "policies are not on this machine.*--policies" env MINRNN_DATA="$work" \
    "$minrnn" data make d4rl-like hopper medium
refused 1 "none.h5" "$minrnn" data make d4rl-like hopper medium --policies none.h5
[ -n "${MINRNN_DATA:-}" ] && [ -e "$MINRNN_DATA/rl/policies.h5" ] ||
    { echo "skipped: set MINRNN_DATA to the folder that has rl/policies.h5"; [ $failures -eq 0 ] || finish; exit 77; }
make=("$minrnn" data make d4rl-like)

# ---- the same file, always
for set in "hopper medium" "halfcheetah medium-replay" "walker2d medium-expert"; do
    done_by "${make[@]}" $set --steps 3000 --threads 1 --out one.hdf5
    check "$set: the path" [ "$(cat out)" = one.hdf5 ]
    check "$set: returns beside D4RL's" grep -qE '^medium.* [0-9]+ episodes .*return .*D4RL.s:.*difference' err
    done_by "${make[@]}" $set --steps 3000 --threads 2 --out two.hdf5 --quiet
    check "$set: quiet" [ ! -s err ]
    check "$set: the same by two threads" same_files one.hdf5 two.hdf5
    done_by "${make[@]}" $set --steps 3000 --out two.hdf5 --quiet
    check "$set: the same again, in its place" same_files one.hdf5 two.hdf5
    done_by "${make[@]}" $set --steps 3000 --seed 8 --out two.hdf5 --quiet
    check "$set: another seed" [ "$(sum_of one.hdf5)" != "$(sum_of two.hdf5)" ]
done
done_by "${make[@]}" walker2d medium-expert --steps 3000 --out two.hdf5 --json
check "two parts" [ "$(grep -cE '^(medium|expert) ' err)" -eq 2 ]
check "what was made, in JSON" json "[(p['name'], p['steps'], p['d4rl_return_mean']) for p in d['parts']] ==
    [('medium', 1500, 2852), ('expert', 1500, 4921)] and d['made_by'].startswith('D4RL-like, by minrnn ') and
    d['path'] == 'two.hdf5'" out

done_by "${make[@]}" hopper medium --steps 5 --out cut.hdf5 --json
check "no complete episode, no return" grep -q 'return unknown .*difference unknown' err
check "nor in JSON" json "d['parts'][0]['episodes'] == 0 and d['parts'][0]['return_mean'] is None" out

# ---- the default place, and reading it back
done_by "${make[@]}" hopper medium --steps 3000 --quiet
check "in the cache folder" [ "$(cat out)" = "$XDG_CACHE_HOME/minrnn/d4rl-like/hopper-medium.hdf5" ]
done_by "$minrnn" train rl-hopper-medium --data "$(cat out)" --dim 8 --layers 1 --batch 4 --steps 2 --device cpu \
    --out run --quiet
if python3 -c 'import h5py' 2>/dev/null; then
    check "as h5py sees it" python3 - one.hdf5 <<'PYTHON'
import sys
import h5py
import numpy as np
f = h5py.File(sys.argv[1])
assert f.attrs["made_by"].startswith("D4RL-like")
o, a, r, t, e = (f[n][()] for n in ("observations", "actions", "rewards", "terminals", "timeouts"))
assert o.shape == (3000, 17) and a.shape == (3000, 6) and r.shape == t.shape == e.shape == (3000,)
assert np.isfinite(o).all() and (abs(a) <= 1).all() and not (t & e).any() and (t | e)[1499] and (t | e)[2999]
PYTHON
else
    left_out "what h5py reads: it is not installed"
fi

# ---- nothing is lost or left over
echo text >text.h5
refused 1 'text.h5.* not ' "${make[@]}" hopper medium --steps 100 --policies text.h5 --out new.hdf5
echo mine >notes.txt
refused 1 'notes.txt exists and was not made by this command' "${make[@]}" hopper medium --steps 100 --out notes.txt
check "notes are kept" [ "$(cat notes.txt)" = mine ]
refused 1 'no/folder' "${make[@]}" hopper medium --steps 100 --out no/folder/x.hdf5
refused 1 'no/folder' timeout 60 "${make[@]}" hopper medium --steps 1000000000 --out no/folder/x.hdf5 # before the work
refused 1 'nowhere' "${make[@]}" hopper medium --steps 100 --assets nowhere --out new.hdf5
mkdir half
"${make[@]}" walker2d medium-expert --out half/x.hdf5 2>err &
sleep 1
kill -TERM $!
wait $!
check "stopped: status" [ $? -eq 143 ]
check "stopped: no file" [ -z "$(ls half)" ]
check "no other files" [ ! -e new.hdf5 -a ! -e MUJOCO_LOG.TXT ]
finish
